// The picture of all features: rows are users, columns are items, colour is where a feature's users meet its items.

import { counted, h } from "./dom.js";

const COLOURS = ["#3b7dd8", "#e8871e", "#2ca36b", "#d6528f", "#8b62d6", "#c2a21a", "#1fa6b8", "#d94a3d"];
const colour = (k) => COLOURS[k % COLOURS.length];

export function figure(picture, features, nameOf) {
  const meetings = picture.users.map((own) => picture.items.map((theirs) => own.filter((k) => theirs.includes(k))));
  const met = meetings.flat().filter((shared) => shared.length);
  const crowded = met.reduce((sum, shared) => sum + shared.length, 0) > 1.5 * met.length;
  const canvas = h("canvas", { class: "blocks", role: "img" });
  canvas.setAttribute("aria-label", `Users by items; ${picture.features.map((k) => `feature ${k} joins ${counted(features[k].n_users, "user")} and ${counted(features[k].n_items, "item")}`).join("; ")}`);
  const only = (k) => draw(canvas, meetings, k, crowded);
  only(null);
  return h("figure", {},
    h("p", { class: "soft axis-words" }, "users ↓ items →"), canvas,
    h("ul", { class: "legend" }, picture.features.map((number, k) => h("li", {}, h("button", {
      type: "button", class: "plain", onmouseenter: () => only(k), onfocus: () => only(k), onclick: () => only(k), onmouseleave: () => only(null), onblur: () => only(null),
    }, swatch(colour(k)), `feature ${number}: ${nameOf(number)[0] ?? ""}`)))),
    h("figcaption", {}, "Each row is a user, each column an item. ",
      crowded ? "The stronger the colour, the more of the largest features meet there; grey means none. " : "A coloured block is where a feature’s users meet its items; stripes are overlaps; blank means none of the largest features. ",
      "Point at a feature above, or step to it with the Tab key, to see its block alone. ",
      picture.users.length < picture.n_users || picture.items.length < picture.n_items ? "Some users and items are left out to keep it readable." : ""));
}

function draw(canvas, meetings, only, crowded) {
  const wide = Math.max(3, Math.min(20, Math.floor(1160 / meetings[0].length)));
  const tall = Math.max(2, Math.min(14, Math.floor(420 / meetings.length)));
  canvas.width = meetings[0].length * wide;
  canvas.height = meetings.length * tall;
  const pen = canvas.getContext("2d");
  meetings.forEach((row, y) => row.forEach((shared, x) => {
    for (const [place, [tone, strength]] of tones(shared, only, crowded).entries()) {
      const stripe = wide / (only === null && !crowded ? shared.length : 1);
      pen.fillStyle = tone;
      pen.globalAlpha = strength;
      pen.fillRect(x * wide + place * stripe, y * tall, stripe, tall);
    }
  }));
}

// The colours of one cell, with their strengths: of one feature, of how many meet, or of each of them.
function tones(shared, only, crowded) {
  if (!shared.length) return [];
  if (only !== null) return [shared.includes(only) ? [colour(only), 1] : ["#888888", 0.15]];
  if (crowded) return [[COLOURS[0], Math.min(1, 0.18 * shared.length)]];
  return shared.map((k) => [colour(k), 1]);
}

function swatch(tone) {
  const found = h("span", { class: "swatch", "aria-hidden": "true" });
  found.style.background = tone;
  return found;
}
