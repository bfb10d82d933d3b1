// Small charts in SVG: drawn here, coloured by the style sheet.

import { h, s, decimal, percent, signed, whole } from "./dom.js";

const READABLE = 11;
const LETTER = 6.4;

export function levelBars(levels, proba, { tall = 34, counts = null } = {}) {
  const most = Math.max(...proba, 0.001);
  const step = Math.max(14, Math.min(44, 340 / levels.length));
  const wide = step * levels.length;
  const top = levels.length > READABLE ? 2 : 14;
  const base = top + tall;
  const few = levels.length > READABLE ? Math.ceil(levels.length / 6) : 1;
  const told = levels.map((level, k) => `${level}: ${counts ? `${whole(counts[k])} (${percent(proba[k])})` : percent(proba[k])}`);
  const bars = proba.map((share, k) => {
    const high = Math.max(1, (tall * share) / most);
    return s("g", {}, s("title", {}, told[k]),
      s("rect", { class: "bar", x: k * step + 1.5, y: base - high, width: step - 3, height: high, rx: 2 }),
      levels.length > READABLE ? null : s("text", { class: "share", x: (k + 0.5) * step, y: base - high - 3 }, brief(share)));
  });
  const texts = levels.map((level, k) => (k % few ? null : s("text", { x: (k + 0.5) * step, y: base + 12 }, short(level))));
  return s("svg", {
    class: "levels", viewBox: `0 0 ${wide} ${base + 16}`, width: wide, height: base + 16, role: "img", "aria-label": told.join(", "),
  }, bars, texts);
}

const brief = (share) => (share > 0 && share < 0.01 ? "<1\u00a0%" : percent(share));
const short = (level) => (String(level).length > 6 ? `${String(level).slice(0, 5)}…` : String(level));

// A dot with a line about it; with `ends`, the ends of the scale are named below.
export function strip(part, low, high, { label = "", wide = 180, ends = false } = {}) {
  const edge = ends ? 16 : 5;
  const at = (value) => edge + ((wide - 2 * edge) * (value - low)) / (high - low || 1);
  const crosses = low <= 0 && high >= 0;
  const named = [...new Set(crosses ? [low, 0, high] : [low, high])].filter((value) => value === 0 || !crosses || Math.abs(at(value) - at(0)) > 34);
  return s("svg", {
    class: "strip", viewBox: `0 0 ${wide} ${ends ? 32 : 18}`, width: wide, height: ends ? 32 : 18, role: "img",
    "aria-label": `${label} ${signed(part.mean, 2)}, 80 % between ${signed(part.lower, 2)} and ${signed(part.upper, 2)}`.trim(),
  },
  ends ? s("line", { class: "axis", x1: at(low), x2: at(high), y1: 17, y2: 17 }) : null,
  crosses ? s("line", { class: "zero", x1: at(0), x2: at(0), y1: 1, y2: 17 }) : null,
  s("line", { class: "span", x1: at(part.lower), x2: at(part.upper), y1: 9, y2: 9 }),
  s("circle", { class: "middle", cx: at(part.mean), cy: 9, r: 4.5 }),
  ends ? named.map((value) => s("text", { class: "tick", x: at(value), y: 29, "text-anchor": "middle" }, value ? signed(value) : "0")) : null);
}

// A plain bar from zero, to the right or to the left.
export function bar(value, most, { wide = 64 } = {}) {
  const at = (x) => wide / 2 + ((wide / 2 - 2) * x) / most;
  return s("svg", { class: "strip", viewBox: `0 0 ${wide} 18`, width: wide, height: 18, role: "img", "aria-label": signed(value, 2) },
    s("rect", { class: "bar", x: Math.min(at(0), at(value)), y: 4, width: Math.max(1, Math.abs(at(value) - at(0))), height: 10, rx: 1 }),
    s("line", { class: "zero", x1: at(0), x2: at(0), y1: 1, y2: 17 }));
}

export function meter(share, label) {
  return s("svg", { class: "meter", viewBox: "0 0 100 8", role: "img", "aria-label": `${label}: ${percent(share)}`, preserveAspectRatio: "none" },
    s("rect", { class: "rail", x: 0, y: 0, width: 100, height: 8 }),
    s("rect", { class: "bar", x: 0, y: 0, width: Math.max(0.5, 100 * share), height: 8 }));
}

export function lines(title, series, { wide = 400, tall = 180, shaded = 0, across = "sweep", up = "" } = {}) {
  const right = 8, top = up ? 24 : 10, bottom = 24;
  const xs = series.flatMap((one) => one.x), ys = settled(series, shaded);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const pad = (Math.max(...ys) - Math.min(...ys) || 1) * 0.08;
  const [y0, y1] = [Math.min(...ys) - pad, Math.max(...ys) + pad];
  const heights = [y0 + pad, (y0 + y1) / 2, y1 - pad];
  const left = 10 + LETTER * Math.max(...heights.map((y) => size(y).length));
  const px = (x) => left + ((wide - left - right) * (x - x0)) / (x1 - x0 || 1);
  const py = (y) => top + (tall - top - bottom) * (1 - (Math.min(Math.max(y, y0), y1) - y0) / (y1 - y0));
  const paths = series.map((one, k) => s("path", {
    class: `line c${k % 8}`, d: one.x.map((x, i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(one.y[i]).toFixed(1)}`).join(""),
  }));
  const marks = heights.map((y) => s("text", { class: "tick", x: left - 6, y: py(y) + 4, "text-anchor": "end" }, size(y)));
  const ends = [[x0, "start"], [x1, "end"]].map(([x, anchor]) => s("text", { class: "tick", x: px(x), y: tall - 8, "text-anchor": anchor }, whole(x)));
  return s("svg", {
    class: "chart", viewBox: `0 0 ${wide} ${tall}`, role: "img",
    "aria-label": `${title}: ${series.map((one) => `${one.name} ends at ${size(one.y.at(-1))}`).join(", ")}`,
  },
  shaded > x0 ? s("rect", { class: "shade", x: px(x0), y: top, width: px(Math.min(shaded, x1)) - px(x0), height: tall - top - bottom }) : null,
  s("line", { class: "axis", x1: left, x2: wide - right, y1: tall - bottom, y2: tall - bottom }),
  paths, marks, ends, up ? s("text", { class: "tick", x: 2, y: 12 }, up) : null,
  s("text", { class: "tick", x: (left + wide) / 2, y: tall - 8, "text-anchor": "middle" }, across));
}

// Which line is whose, for charts of several lines.
export function legend(names) {
  return h("ul", { class: "legend" }, names.map((name, k) => h("li", {},
    s("svg", { viewBox: "0 0 22 10", width: 22, height: 10, "aria-hidden": "true" }, s("line", { class: `line key c${k % 8}`, x1: 1, x2: 21, y1: 5, y2: 5 })), ` ${name}`)));
}

function settled(series, shaded) {
  const kept = series.flatMap((one) => one.y.filter((_, i) => one.x[i] > shaded));
  return kept.length > 1 ? kept : series.flatMap((one) => one.y);
}

const size = (value) => decimal(value, Math.abs(value) >= 20 ? 0 : 2);

export function calibration(bins) {
  const side = 280, left = 44, top = 24, bottom = 40;
  const at = (share) => left + (side - left - 14) * share;
  const up = (share) => top + (side - top - bottom) * (1 - share);
  const marks = [0, 0.5, 1].flatMap((share) => [
    s("text", { class: "tick", x: at(share), y: side - 22, "text-anchor": share === 1 ? "end" : "middle" }, `${100 * share} %`),
    s("text", { class: "tick", x: left - 8, y: up(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]);
  const points = bins.flatMap((bin) => [
    s("line", { class: "span", x1: at(bin.predicted), x2: at(bin.predicted), y1: up(bin.lower), y2: up(bin.upper) }),
    s("circle", { class: "middle", cx: at(bin.predicted), cy: up(bin.observed), r: 4 }),
  ]);
  const told = bins.map((bin) => `predicted ${percent(bin.predicted)}, came true ${percent(bin.observed)}`).join("; ");
  return s("svg", { class: "chart square", viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": told },
    s("line", { class: "zero", x1: at(0), y1: up(0), x2: at(1), y2: up(1) }), marks, points,
    s("text", { class: "tick", x: 2, y: 12 }, "came true"),
    s("text", { class: "tick", x: at(0.5), y: side - 5, "text-anchor": "middle" }, "predicted"));
}
