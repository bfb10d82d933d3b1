// Users: a list to search, and one user with ratings, habit, features, neighbours and recommendations.

import { get, idPath } from "./api.js";
import { between, counted, decimal, h, link, named, replace, signed, whole } from "./dom.js";
import { levelBars, strip } from "./charts.js";
import { fact } from "./features.js";
import { memberships } from "./items.js";
import { searchList } from "./lists.js";
import { fillLater } from "./trouble.js";
import { featureNames, prediction, sentence, wholeSum } from "./reasons.js";

export async function showUsers(place) {
  const list = searchList({
    path: "/users", role: "users", label: "Find a user by id", columns: ["user", "ratings", "mean rating"],
    row: (one) => h("tr", {}, h("td", {}, link("users", one.user, String(one.user))), h("td", { class: "number" }, whole(one.n_ratings)), h("td", { class: "number" }, decimal(one.mean))),
  });
  await list.load(true);
  replace(place, h("h1", {}, "Users"), h("p", { class: "lead" }, "Everybody whose ratings the model learnt from. Open one to see what they would be recommended, and why."), list.view);
}

export async function showUser(place, info, id) {
  const path = `/users/${idPath(id)}`;
  const [one, rated, found, list] = await Promise.all([
    get(path), get(`${path}/ratings`), get(`${path}/recommendations`, { n: 5 }), get("/features"),
  ]);
  const nameOf = featureNames(list);
  const near = h("div", { "aria-live": "polite" });
  replace(place,
    h("p", {}, h("a", { href: "#/users" }, "← all users")),
    h("h1", {}, `User ${one.user}`),
    h("dl", { class: "facts" }, fact("Ratings", whole(one.n_ratings)),
      fact("Changed since the fit", one.n_changes ? counted(one.n_changes, "rating") : "none"), fact("Known to the model", one.in_model ? "yes" : "no")),
    h("section", {}, h("h2", {}, "What they would be recommended"), h("ol", { class: "cards" }, found.items.map((row) => h("li", {},
      h("h3", {}, link("items", row.item, named(row))), prediction(row, found.levels), reason(`${path}/explanations/${idPath(row.item)}`, nameOf))))),
    h("div", { class: "two even" }, habits(one), memberships(one.features, "user", nameOf)),
    h("div", { class: "two even" }, ratedBy(rated.ratings, info.levels),
      h("section", {}, h("h2", {}, "Users with the same taste"), near)));
  fillLater(near, "Working it out …", async () => neighbours((await get(`${path}/similar`, { n: 8 })).users));
}

function habits(one) {
  const levels = one.counts.map((row) => row.level), counts = one.counts.map((row) => row.count);
  return h("section", {}, h("h2", {}, "How they rate"), levelBars(levels, counts.map((n) => n / Math.max(1, one.n_ratings)), { tall: 90, counts }),
    one.offset ? [strip(one.offset, Math.min(-1, one.offset.lower), Math.max(1, one.offset.upper), { label: "offset", wide: 260, ends: true }),
      h("p", { class: "soft" }, `User offset ${between(one.offset, 2)}: how much higher or lower than most people they rate.`)] : null);
}

function reason(path, nameOf) {
  const body = h("div");
  const view = h("details", {}, h("summary", {}, "why?"), body);
  view.addEventListener("toggle", () => fillLater(body, "Why: …", async () => {
    const told = await get(path);
    return [sentence(told, nameOf, "they"), wholeSum(told, nameOf)];
  }), { once: true });
  return view;
}

function ratedBy(rows, levels) {
  const sorted = [...rows].sort((a, b) => levels.indexOf(b.rating) - levels.indexOf(a.rating) || named(a).localeCompare(named(b)));
  return h("section", {}, h("h2", {}, "Rated"), h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "item"), h("th", { class: "number" }, "rating"))),
    h("tbody", {}, sorted.map((row) => h("tr", {},
      h("td", {}, row.known_item ? link("items", row.item, named(row)) : named(row), row.changed ? h("span", { class: "badge likely" }, "new") : null),
      h("td", { class: "number" }, String(row.rating)))))));
}

function neighbours(users) {
  if (!users.length) return h("p", { class: "soft" }, "Nobody to compare with.");
  return [h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "user"), h("th", { class: "number" }, "correlation"))),
    h("tbody", {}, users.map((row) => h("tr", {}, h("td", {}, link("users", row.user, String(row.user))), h("td", { class: "number" }, signed(row.correlation, 2)))))),
  h("p", { class: "soft" }, "A correlation of 1 means: what one likes the other likes; 0: no connection; below 0: the opposite.")];
}
