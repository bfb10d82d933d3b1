// Features: all of them as cards and as a picture, and one of them with its members.

import { get } from "./api.js";
import { between, counted, decimal, h, link, named, percent, replace, signed, whole } from "./dom.js";
import { bar, meter, strip } from "./charts.js";
import { figure } from "./picture.js";
import { featureNames } from "./reasons.js";

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

export async function showFeatures(place, info) {
  const [{ features }, picture] = await Promise.all([get("/features"), get("/features/blocks")]);
  const shared = features.filter((one) => one.n_users > 1);
  const alone = features.length - shared.length;
  const nameOf = featureNames({ features });
  const ends = features.flatMap((one) => [one.effect.lower, one.effect.upper, 0]);
  replace(place,
    h("h1", {}, "Features"),
    h("p", { class: "lead" }, "A feature is a group of users, a group of items, and what happens where they meet: these users rate these items higher, or lower, than they otherwise would. Nobody named them; they were found in the ratings."),
    features.length ? meaning(info) : h("p", { class: "callout" }, "No feature stands out: how much people like things in general explains these ratings."),
    picture.features.length ? figure(picture, features, nameOf) : null,
    h("ul", { class: "cards grid" }, shared.map((one) => card(one, ends))),
    alone ? h("p", { class: "soft" }, `${counted(alone, "feature")} of a single user ${alone === 1 ? "is" : "are"} not shown.`) : null);
}

// What the words on the cards mean.
function meaning(info) {
  const share = info.chains > 1 ? ` With ${whole(info.chains)} chains, ${percent(1 / info.chains)} is what a feature gets that one of them found and the others did not.` : "";
  return h("p", { class: "soft lead" }, `The model was searched for in ${counted(info.chains, "separate run")}, called chains, which left ${counted(info.draws, "draw")}: plausible versions of the model. “Found in” says how many of the draws have the feature.${share} `,
    word("stable"), " is 80 % or more, ", word("likely"), " half or more, ", word("unsure"), " less: then it is one of several ways to explain the same ratings. Predictions average over all draws. Effects are on the scale of the model’s score, where levels are about one apart.");
}

const word = (sure) => h("span", { class: `badge inline ${sure}` }, sure);

function card(one, ends) {
  const sure = stability(one);
  return h("li", {},
    h("h2", {}, h("a", { href: `#/features/${one.number}` }, `Feature ${one.number}`), h("span", { class: `badge ${sure}` }, sure)),
    h("p", {}, `${counted(one.n_users, "user")} ${effectWords(one)}.`),
    strip(one.effect, Math.min(...ends), Math.max(...ends), { label: "effect", wide: 240, ends: true }),
    h("p", { class: "soft" }, `effect ${between(one.effect)}; found in ${percent(one.recurrence)} of draws`),
    h("h3", {}, `Leading items of ${whole(one.n_items)}`),
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
      fact("Effect", `${between(feature.effect, 2)}: the average over its items, with an 80 % interval, on the scale of the model’s score`),
      fact("Rests on", feature.n_ratings === null ? "–" : counted(feature.n_ratings, "rating")),
      fact("Found in", `${percent(feature.recurrence)} of draws (by chain: ${Object.values(feature.recurrence_by_chain).map(percent).join(", ")})`)),
    h("div", { class: "two even" },
      h("section", {}, h("h2", {}, `Items (${whole(feature.n_items)})`), h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "item"), h("th", { class: "number" }, "effect"), h("th", {}, "belongs"))),
        some(items.map((row, k) => h("tr", {},
          h("td", {}, link("items", row.item, named(row))),
          h("td", { class: "number" }, bar(sizes[k], most), ` ${signed(sizes[k])}`),
          h("td", { class: "narrow" }, meter(row.probability, "belongs"), percent(row.probability))))))),
      h("section", {}, h("h2", {}, `Users (${whole(feature.n_users)})`), h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "user"), h("th", {}, "belongs"))),
        some(users.map((row) => h("tr", {}, h("td", {}, link("users", row.user, String(row.user))), h("td", { class: "narrow" }, meter(row.probability, "belongs"), percent(row.probability)))))),
      users.length < feature.n_users ? h("p", { class: "soft" }, `The surest ${whole(users.length)} are shown.`) : null)));
}

// A table's body with its first rows, and a last row that brings the others.
export function some(rows, first = 25) {
  const body = h("tbody", {}, rows.slice(0, first));
  if (rows.length <= first) return body;
  const last = h("tr", {}, h("td", { colspan: "3" }, h("button", { type: "button", class: "plain", onclick: () => last.replaceWith(...rows.slice(first)) }, `Show ${whole(rows.length - first)} more`)));
  body.append(last);
  return body;
}

export const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
