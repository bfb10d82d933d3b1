// Features: all of them as cards and as a picture, and one of them with its members.

import { get } from "./api.js";
import { counted, decimal, h, link, named, percent, replace, signed } from "./dom.js";
import { blocks, COLOURS, meter, strip } from "./charts.js";

export function effectWords(feature) {
  return `rate ${graded(feature) || plain(feature)} than they otherwise would`;
}

function plain(feature) {
  const size = decimal(Math.abs(feature.effect.mean), 1);
  return `${feature.n_items === 1 ? "this item" : "these items"} about ${size} levels ${feature.effect.mean >= 0 ? "higher" : "lower"}`;
}

// Where items have effects of their own, their average says little: name those that stand out, both ways.
function graded(feature) {
  const leading = feature.leading.filter((row) => row.effect !== null);
  const some = (rows, way) => rows.length ? `${rows.slice(0, 2).map(named).join(" and ")} ${way}` : null;
  return [some(leading.filter((row) => row.effect > 0), "higher"), some(leading.filter((row) => row.effect < 0), "lower")].filter(Boolean).join(", ");
}

export function stability(feature) {
  if (feature.recurrence >= 0.8) return "stable";
  return feature.recurrence >= 0.5 ? "likely" : "unsure";
}

export async function showFeatures(place) {
  const [{ features }, picture] = await Promise.all([get("/features"), get("/features/blocks")]);
  const shared = features.filter((one) => one.n_users > 1);
  const alone = features.length - shared.length;
  const ends = features.flatMap((one) => [one.effect.lower, one.effect.upper, 0]);
  replace(place,
    h("h1", {}, "Features"),
    h("p", { class: "lead" }, "A feature is a group of users, a group of items, and what happens where they meet: these users rate these items higher, or lower, than they otherwise would. Nobody named them; they were found in the ratings."),
    features.length ? null : h("p", { class: "callout" }, "No feature stands out: how much people like things in general explains these ratings."),
    picture.features.length ? figure(picture, features) : null,
    h("ul", { class: "cards grid" }, shared.map((one) => card(one, ends))),
    alone ? h("p", { class: "soft" }, `${counted(alone, "feature")} of a single user ${alone === 1 ? "is" : "are"} not shown.`) : null);
}

function figure(picture, features) {
  const canvas = blocks(picture.users, picture.items);
  canvas.setAttribute("aria-label", `Users by items; ${picture.features.map((k) => `feature ${k} joins ${counted(features[k].n_users, "user")} and ${counted(features[k].n_items, "item")}`).join("; ")}`);
  return h("figure", {},
    h("p", { class: "soft axis-words" }, "users ↓ items →"), canvas,
    h("ul", { class: "legend" }, picture.features.map((number, k) => h("li", {},
      swatch(COLOURS[k % COLOURS.length]), h("a", { href: `#/features/${number}` }, `feature ${number}`)))),
    h("figcaption", {}, "Each row is a user, each column an item. A coloured block is where a feature’s users meet its items; stripes are overlaps; blank means none of the largest features. ",
      picture.users.length < picture.n_users || picture.items.length < picture.n_items ? "Some users and items are left out to keep it readable." : ""));
}

function swatch(colour) {
  const found = h("span", { class: "swatch", "aria-hidden": "true" });
  found.style.background = colour;
  return found;
}

function card(one, ends) {
  const sure = stability(one);
  return h("li", {},
    h("h2", {}, h("a", { href: `#/features/${one.number}` }, `Feature ${one.number}`), h("span", { class: `badge ${sure}` }, sure)),
    h("p", {}, `${counted(one.n_users, "user")} ${effectWords(one)}.`),
    strip(one.effect, Math.min(...ends), Math.max(...ends), { label: "effect" }),
    h("p", { class: "soft" }, `effect ${signed(one.effect.mean)} (${signed(one.effect.lower)} to ${signed(one.effect.upper)}); found in ${percent(one.recurrence)} of draws`),
    h("h3", {}, `Leading items of ${one.n_items}`),
    h("ul", { class: "plainlist" }, one.leading.slice(0, 5).map((row) => h("li", {}, link("items", row.item, named(row)), row.effect === null ? null : h("span", { class: "soft" }, ` ${signed(row.effect)}`)))));
}

export async function showFeature(place, info, number) {
  const { feature, items, users } = await get(`/features/${Number(number)}`);
  const sizes = items.map((row) => row.effect ?? feature.effect.mean);
  const most = Math.max(...sizes.map(Math.abs), 0.1);
  replace(place,
    h("p", {}, h("a", { href: "#/features" }, "← all features")),
    h("h1", {}, `Feature ${feature.number}`, h("span", { class: `badge ${stability(feature)}` }, stability(feature))),
    h("p", { class: "lead" }, `${counted(feature.n_users, "user")} ${effectWords(feature)}.`),
    h("dl", { class: "facts" },
      fact("Effect", `${signed(feature.effect.mean, 2)} levels, 80 % between ${signed(feature.effect.lower, 2)} and ${signed(feature.effect.upper, 2)}`),
      fact("Rests on", feature.n_ratings === null ? "–" : counted(feature.n_ratings, "rating")),
      fact("Found in", `${percent(feature.recurrence)} of draws (by chain: ${Object.values(feature.recurrence_by_chain).map(percent).join(", ")})`)),
    h("div", { class: "two even" },
      h("section", {}, h("h2", {}, `Items (${feature.n_items})`), h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "item"), h("th", {}, "effect"), h("th", {}, "belongs"))),
        some(items.map((row, k) => h("tr", {},
          h("td", {}, link("items", row.item, named(row))),
          h("td", {}, strip({ mean: sizes[k], lower: Math.min(0, sizes[k]), upper: Math.max(0, sizes[k]) }, -most, most, { wide: 90 }), h("span", { class: "number" }, signed(sizes[k]))),
          h("td", { class: "narrow" }, meter(row.probability, "belongs"), percent(row.probability))))))),
      h("section", {}, h("h2", {}, `Users (${feature.n_users})`), h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "user"), h("th", {}, "belongs"))),
        some(users.map((row) => h("tr", {}, h("td", {}, link("users", row.user, String(row.user))), h("td", { class: "narrow" }, meter(row.probability, "belongs"), percent(row.probability)))))),
      users.length < feature.n_users ? h("p", { class: "soft" }, `The surest ${users.length} are shown.`) : null)));
}

// A table's body with its first rows, and a last row that brings the others.
function some(rows, first = 25) {
  const body = h("tbody", {}, rows.slice(0, first));
  if (rows.length <= first) return body;
  const last = h("tr", {}, h("td", { colspan: "3" }, h("button", { type: "button", class: "plain", onclick: () => last.replaceWith(...rows.slice(first)) }, `Show ${rows.length - first} more`)));
  body.append(last);
  return body;
}

export const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
