// Elements without markup in strings: whatever comes from the service is text, never HTML.

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string" && element.namespaceURI !== SVG) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function replace(place, ...children) {
  place.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
}

// Replaces what a place shows; who was on a button that is still there stays on it.
export function refresh(place, ...children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  replace(place, ...children);
  if (key !== undefined) [...place.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === key)?.focus();
}

export function link(kind, id, text) {
  return h("a", { href: `#/${kind}/${encodeURIComponent(JSON.stringify(id))}` }, text);
}

// Words and numbers.

export const whole = (n) => n.toLocaleString("en").replace("-", "−");
export const percent = (share) => (share > 0 && share < 0.01 ? "under 1\u00a0%" : `${Math.round(100 * share)}\u00a0%`);
export const counted = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;

export function decimal(value, digits = 1) {
  if (value === null) return "–";
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return /[1-9]/.test(text) ? text.replace("-", "−") : text.replace("-", "");
}

export function signed(value, digits = 1) {
  const text = decimal(value, digits);
  return value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

// A middle and its two ends; ends that look the same get one more digit.
export function between({ mean, lower, upper }, digits = 1) {
  const exact = signed(lower, digits) === signed(upper, digits) ? Math.max(2, digits) : digits;
  return `${signed(mean, exact)} (${signed(lower, exact)} to ${signed(upper, exact)})`;
}

export const named = (row) => row.title || String(row.item);
export const run = (lower, upper) => (lower === upper ? String(lower) : `${lower} to ${upper}`);

export function later(work, wait = 150) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}
