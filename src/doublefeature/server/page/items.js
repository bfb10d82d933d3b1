// Items: a list to search, and one item with its ratings, offset, features and neighbours.

import { get, idPath } from "./api.js";
import { between, decimal, h, link, named, percent, replace, signed, whole } from "./dom.js";
import { levelBars, meter, strip } from "./charts.js";
import { fact, some } from "./features.js";
import { searchList } from "./lists.js";
import { featureNames } from "./reasons.js";

export async function showItems(place) {
  const list = searchList({
    path: "/items", role: "items", label: "Find an item", columns: ["item", "ratings", "mean rating"],
    row: (one) => h("tr", {}, h("td", {}, link("items", one.item, named(one))), h("td", { class: "number" }, whole(one.n_ratings)), h("td", { class: "number" }, decimal(one.mean))),
  });
  await list.load(true);
  replace(place, h("h1", {}, "Items"), h("p", { class: "lead" }, "Everything that was rated, the most rated first. Open one to see how it is rated, by whom it is liked, and what is like it."), list.view);
}

export async function showItem(place, info, id) {
  const path = `/items/${idPath(id)}`;
  const [one, near, list] = await Promise.all([get(path), get(`${path}/similar`, { n: 8 }), get("/features")]);
  const levels = one.counts.map((row) => row.level), counts = one.counts.map((row) => row.count);
  const total = Math.max(1, one.n_ratings);
  const others = Object.entries(one.columns).filter(([name, value]) => name !== "title" && !/^column \d+$/.test(name) && value);
  replace(place,
    h("p", {}, h("a", { href: "#/items" }, "← all items")),
    h("h1", {}, named(one)),
    h("dl", { class: "facts" }, fact("Id", String(one.item)), fact("Ratings", whole(one.n_ratings)),
      others.slice(0, 8).map(([name, value]) => fact(name, value.replaceAll("|", ", ")))),
    h("div", { class: "two even" },
      h("section", {}, h("h2", {}, "How it was rated"), levelBars(levels, counts.map((n) => n / total), { tall: 90, counts }),
        h("p", { class: "soft" }, "The ratings that were given.")),
      h("section", {}, h("h2", {}, "How everybody would rate it"), levelBars(levels, one.predicted, { tall: 90 }),
        h("p", { class: "soft" }, "What the model expects over all users, those who have not rated it included."))),
    h("section", {}, h("h2", {}, "In general"),
      h("p", {}, strip(one.offset, Math.min(-1, one.offset.lower), Math.max(1, one.offset.upper), { label: "offset", wide: 260, ends: true })),
      h("p", {}, `Its item offset is ${between(one.offset, 2)}, the brackets holding 80 %: how far it is rated ${one.offset.mean >= 0 ? "above" : "below"} the average item by those who share no feature with it.`)),
    h("div", { class: "two even" }, memberships(one.features, "item", featureNames(list)),
      h("section", {}, h("h2", {}, "Liked by the same people"), near.items.length ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "item"), h("th", { class: "number" }, "correlation"))), h("tbody", {}, near.items.map((row) => h("tr", {},
        h("td", {}, link("items", row.item, named(row))), h("td", { class: "number" }, signed(row.correlation, 2)))))) : h("p", { class: "soft" }, "There is nothing to compare it with."),
      h("p", { class: "soft" }, "A correlation of 1 means: who likes one likes the other; 0: no connection; below 0: the opposite."))));
}

export function memberships(rows, what, nameOf) {
  const effect = what === "item" ? "effect on it" : "effect";
  return h("section", {}, h("h2", {}, "Features"), rows.length ? h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "feature"), h("th", { class: "number" }, effect), h("th", {}, "belongs"))),
    some(rows.map((row) => h("tr", {},
      h("td", {}, h("a", { href: `#/features/${row.feature}` }, `feature ${row.feature}`), h("span", { class: "soft" }, ` ${nameOf(row.feature).join("; ")}`)),
      h("td", { class: "number" }, row.effect === null ? "–" : signed(row.effect)), h("td", { class: "narrow" }, meter(row.probability, "belongs"), percent(row.probability)))), 8))
    : h("p", { class: "soft" }, `This ${what} belongs to no feature with 10 % or more.`));
}
