// Small charts in SVG: drawn here, coloured by the style sheet.

import { h, s, decimal, percent, signed } from "./dom.js";

export function levelBars(levels, proba, { tall = 34, counts = null, compact = false } = {}) {
  const most = Math.max(...proba, 0.001);
  const step = compact ? 14 : Math.max(14, Math.min(44, 320 / levels.length));
  const wide = step * levels.length;
  const base = tall + 2;
  const few = levels.length > 12 ? Math.ceil(levels.length / 6) : 1;
  const told = levels.map((level, k) => `${level}: ${counts ? counts[k] : percent(proba[k])}`).join(", ");
  const bars = proba.map((share, k) => {
    const high = Math.max(1, (tall * share) / most);
    return s("rect", { class: "bar", x: k * step + 1.5, y: base - high, width: step - 3, height: high, rx: 2 });
  });
  const texts = levels.map((level, k) => (k % few ? null : s("text", { x: (k + 0.5) * step, y: base + 11 }, short(level))));
  return s("svg", {
    class: "levels", viewBox: `0 0 ${wide} ${base + 14}`, width: wide, height: base + 14, role: "img", "aria-label": told,
  }, bars, texts);
}

const short = (level) => (String(level).length > 6 ? `${String(level).slice(0, 5)}…` : String(level));

export function strip(part, low, high, { label = "", wide = 180 } = {}) {
  const at = (value) => 4 + ((wide - 8) * (value - low)) / (high - low || 1);
  const zero = low < 0 && high > 0 ? s("line", { class: "zero", x1: at(0), x2: at(0), y1: 1, y2: 17 }) : null;
  return s("svg", {
    class: "strip", viewBox: `0 0 ${wide} 18`, width: wide, height: 18, role: "img",
    "aria-label": `${label} ${signed(part.mean, 2)}, 80 % between ${signed(part.lower, 2)} and ${signed(part.upper, 2)}`,
  }, zero,
  s("line", { class: "span", x1: at(part.lower), x2: at(part.upper), y1: 9, y2: 9 }),
  s("circle", { class: "middle", cx: at(part.mean), cy: 9, r: 4.5 }));
}

export function meter(share, label) {
  return s("svg", { class: "meter", viewBox: "0 0 100 8", role: "img", "aria-label": `${label}: ${percent(share)}`, preserveAspectRatio: "none" },
    s("rect", { class: "rail", x: 0, y: 0, width: 100, height: 8 }),
    s("rect", { class: "bar", x: 0, y: 0, width: Math.max(0.5, 100 * share), height: 8 }));
}

export function lines(title, series, { wide = 460, tall = 170, shaded = 0, across = "sweep" } = {}) {
  const left = 52, right = 8, top = 8, bottom = 24;
  const xs = series.flatMap((one) => one.x), ys = settled(series, shaded);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const pad = (Math.max(...ys) - Math.min(...ys) || 1) * 0.08;
  const [y0, y1] = [Math.min(...ys) - pad, Math.max(...ys) + pad];
  const px = (x) => left + ((wide - left - right) * (x - x0)) / (x1 - x0 || 1);
  const py = (y) => top + (tall - top - bottom) * (1 - (Math.min(Math.max(y, y0), y1) - y0) / (y1 - y0));
  const paths = series.map((one, k) => s("path", {
    class: `line c${k % 8}`, d: one.x.map((x, i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(one.y[i]).toFixed(1)}`).join(""),
  }));
  const marks = [y0 + pad, (y0 + y1) / 2, y1 - pad].map((y) => s("text", { class: "tick", x: left - 6, y: py(y) + 4, "text-anchor": "end" }, size(y)));
  const ends = [[x0, "start"], [x1, "end"]].map(([x, anchor]) => s("text", { class: "tick", x: px(x), y: tall - 8, "text-anchor": anchor }, x));
  return s("svg", {
    class: "chart", viewBox: `0 0 ${wide} ${tall}`, role: "img",
    "aria-label": `${title}: ${series.map((one) => `${one.name} ends at ${size(one.y.at(-1))}`).join(", ")}`,
  },
  shaded > x0 ? s("rect", { class: "shade", x: px(x0), y: top, width: px(Math.min(shaded, x1)) - px(x0), height: tall - top - bottom }) : null,
  s("line", { class: "axis", x1: left, x2: wide - right, y1: tall - bottom, y2: tall - bottom }),
  paths, marks, ends, s("text", { class: "tick", x: (left + wide) / 2, y: tall - 8, "text-anchor": "middle" }, across));
}

function settled(series, shaded) {
  const kept = series.flatMap((one) => one.y.filter((_, i) => one.x[i] > shaded));
  return kept.length > 1 ? kept : series.flatMap((one) => one.y);
}

const size = (value) => (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en").replace("-", "−") : decimal(value, Math.abs(value) >= 20 ? 0 : 2));

export function calibration(bins) {
  const side = 260, left = 40, top = 8;
  const at = (share) => left + (side - left - 8) * share;
  const up = (share) => top + (side - left - top) * (1 - share);
  const marks = [0, 0.5, 1].flatMap((share) => [
    s("text", { class: "tick", x: at(share), y: side - 18, "text-anchor": share === 1 ? "end" : "middle" }, `${100 * share} %`),
    s("text", { class: "tick", x: left - 6, y: up(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]);
  const points = bins.flatMap((bin) => [
    s("line", { class: "span", x1: at(bin.predicted), x2: at(bin.predicted), y1: up(bin.lower), y2: up(bin.upper) }),
    s("circle", { class: "middle", cx: at(bin.predicted), cy: up(bin.observed), r: 4 }),
  ]);
  const told = bins.map((bin) => `promised ${percent(bin.predicted)}, came true ${percent(bin.observed)}`).join("; ");
  return s("svg", { class: "chart square", viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": told },
    s("line", { class: "zero", x1: at(0), y1: up(0), x2: at(1), y2: up(1) }), marks, points,
    s("text", { class: "tick", x: at(0.5), y: side - 4, "text-anchor": "middle" }, "what was promised"));
}

export const COLOURS = ["#3b7dd8", "#e8871e", "#2ca36b", "#d6528f", "#8b62d6", "#c2a21a", "#1fa6b8", "#d94a3d"];

// Rows are users, columns are items; where their features meet, the cell has the features' colours in stripes.
export function blocks(users, items) {
  const wide = Math.max(3, Math.min(20, Math.floor(900 / items.length)));
  const tall = Math.max(2, Math.min(14, Math.floor(420 / users.length)));
  const canvas = h("canvas", { class: "blocks", width: items.length * wide, height: users.length * tall, role: "img" });
  const pen = canvas.getContext("2d");
  users.forEach((own, y) => items.forEach((theirs, x) => {
    const shared = own.filter((k) => theirs.includes(k));
    shared.forEach((k, place) => {
      const stripe = (wide - 1) / shared.length;
      pen.fillStyle = COLOURS[k % COLOURS.length];
      pen.fillRect(x * wide + place * stripe, y * tall, stripe, tall > 4 ? tall - 1 : tall);
    });
  }));
  return canvas;
}
