// Users: a list to search, and one user with ratings, habit, features, neighbours and recommendations.

import { get, idPath } from "./api.js";
import { counted, decimal, h, link, named, replace, signed } from "./dom.js";
import { levelBars, strip } from "./charts.js";
import { fact } from "./features.js";
import { memberships } from "./items.js";
import { searchList } from "./lists.js";
import { featureNames, prediction, sentence, wholeSum } from "./reasons.js";

export async function showUsers(place) {
  const list = searchList({
    path: "/users", role: "users", label: "Find a user by id", columns: ["user", "ratings", "mean rating"],
    row: (one) => h("tr", {}, h("td", {}, link("users", one.user, String(one.user))), h("td", { class: "number" }, one.n_ratings.toLocaleString("en")), h("td", { class: "number" }, decimal(one.mean))),
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
  const levels = one.counts.map((row) => row.level), counts = one.counts.map((row) => row.count);
  replace(place,
    h("p", {}, h("a", { href: "#/users" }, "← all users")),
    h("h1", {}, `User ${one.user}`),
    h("dl", { class: "facts" }, fact("Ratings", one.n_ratings.toLocaleString("en")),
      fact("Changed since the fit", one.n_changes ? counted(one.n_changes, "rating") : "none"), fact("Known to the model", one.in_model ? "yes" : "no")),
    h("div", { class: "two even" },
      h("section", {}, h("h2", {}, "How they rate"), levelBars(levels, counts.map((n) => n / Math.max(1, one.n_ratings)), { tall: 90, counts }),
        one.offset ? [strip(one.offset, Math.min(-1, one.offset.lower), Math.max(1, one.offset.upper), { label: "offset", wide: 260 }),
          h("p", { class: "soft" }, `User offset ${signed(one.offset.mean, 2)} (${signed(one.offset.lower, 2)} to ${signed(one.offset.upper, 2)}): how much higher or lower than most people they rate.`)] : null),
      memberships(one.features, "user")),
    h("section", {}, h("h2", {}, "What they would be recommended"), h("ol", { class: "cards" }, found.items.map((row) => {
      const why = h("details", {}, h("summary", {}, "why?"));
      why.addEventListener("toggle", async () => {
        const told = await get(`${path}/explanations/${idPath(row.item)}`);
        replace(why, h("summary", {}, "why?"), sentence(told, nameOf, "they"), wholeSum(told, nameOf));
      }, { once: true });
      return h("li", {}, h("h3", {}, link("items", row.item, named(row))), prediction(row, found.levels), why);
    }))),
    h("div", { class: "two even" },
      h("section", {}, h("h2", {}, "Rated"), h("table", {}, h("tbody", {}, rated.ratings.map((row) => h("tr", {},
        h("td", {}, row.known_item ? link("items", row.item, named(row)) : named(row), row.changed ? h("span", { class: "badge likely" }, "new") : null),
        h("td", { class: "number" }, String(row.rating))))))),
      h("section", {}, h("h2", {}, "Users with the same taste"), one.similar.length ? h("table", {}, h("tbody", {}, one.similar.map((row) => h("tr", {},
        h("td", {}, link("users", row.user, String(row.user))), h("td", { class: "number" }, signed(row.correlation, 2)))))) : h("p", { class: "soft" }, "Nobody to compare with."))));
}
