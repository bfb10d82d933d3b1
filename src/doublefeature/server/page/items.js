// Items: a list to search, and one item with its ratings, offset, features and neighbours.

import { get, idPath } from "./api.js";
import { decimal, h, link, named, percent, replace, signed } from "./dom.js";
import { levelBars, meter, strip } from "./charts.js";
import { fact } from "./features.js";
import { searchList } from "./lists.js";

export async function showItems(place) {
  const list = searchList({
    path: "/items", role: "items", label: "Find an item", columns: ["item", "ratings", "mean rating"],
    row: (one) => h("tr", {}, h("td", {}, link("items", one.item, named(one))), h("td", { class: "number" }, one.n_ratings.toLocaleString("en")), h("td", { class: "number" }, decimal(one.mean))),
  });
  await list.load(true);
  replace(place, h("h1", {}, "Items"), h("p", { class: "lead" }, "Everything that was rated, the most rated first. Open one to see how it is rated, by whom it is liked, and what is like it."), list.view);
}

export async function showItem(place, info, id) {
  const [one, near] = await Promise.all([get(`/items/${idPath(id)}`), get(`/items/${idPath(id)}/similar`, { n: 8 })]);
  const levels = one.counts.map((row) => row.level), counts = one.counts.map((row) => row.count);
  const total = Math.max(1, one.n_ratings);
  const others = Object.entries(one.columns).filter(([name, value]) => name !== "title" && !/^column \d+$/.test(name) && value);
  replace(place,
    h("p", {}, h("a", { href: "#/items" }, "← all items")),
    h("h1", {}, named(one)),
    h("dl", { class: "facts" }, fact("Id", String(one.item)), fact("Ratings", one.n_ratings.toLocaleString("en")),
      others.slice(0, 8).map(([name, value]) => fact(name, value.replaceAll("|", ", ")))),
    h("div", { class: "two even" },
      h("section", {}, h("h2", {}, "How it was rated"), levelBars(levels, counts.map((n) => n / total), { tall: 90, counts }),
        h("p", { class: "soft" }, "The ratings that were given.")),
      h("section", {}, h("h2", {}, "How everybody would rate it"), levelBars(levels, one.predicted, { tall: 90 }),
        h("p", { class: "soft" }, "What the model expects over all users, those who have not rated it included."))),
    h("section", {}, h("h2", {}, "In general"),
      h("p", {}, strip(one.offset, Math.min(-1, one.offset.lower), Math.max(1, one.offset.upper), { label: "offset", wide: 260 })),
      h("p", {}, `Its item offset is ${signed(one.offset.mean, 2)} (80 % between ${signed(one.offset.lower, 2)} and ${signed(one.offset.upper, 2)}): how far it is rated ${one.offset.mean >= 0 ? "above" : "below"} the average item by those who share no feature with it.`)),
    h("div", { class: "two even" }, memberships(one.features, "item"),
      h("section", {}, h("h2", {}, "Liked by the same people"), near.items.length ? h("table", {}, h("tbody", {}, near.items.map((row) => h("tr", {},
        h("td", {}, link("items", row.item, named(row))), h("td", { class: "number" }, signed(row.correlation, 2)))))) : h("p", { class: "soft" }, "There is nothing to compare it with."),
      h("p", { class: "soft" }, "1 means: who likes one likes the other; 0: no connection; below 0: the opposite."))));
}

export function memberships(rows, what) {
  return h("section", {}, h("h2", {}, "Features"), rows.length ? h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "feature"), h("th", { class: "number" }, "effect"), h("th", {}, "belongs"))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, h("a", { href: `#/features/${row.feature}` }, `feature ${row.feature}`)),
      h("td", { class: "number" }, signed(row.effect)), h("td", { class: "narrow" }, meter(row.probability, "belongs"), percent(row.probability))))))
    : h("p", { class: "soft" }, `This ${what} belongs to no feature with 10 % or more.`));
}
