// A list with a search box above it and pages below: items and users alike.

import { get } from "./api.js";
import { h, later, replace, whole } from "./dom.js";
import { trouble } from "./trouble.js";

const PAGE = 50;

export function searchList({ path, role, label, columns, row }) {
  const body = h("tbody");
  const count = h("div", { class: "soft", "aria-live": "polite" });
  const more = h("button", { type: "button", class: "plain", hidden: true }, "Show more");
  const field = h("input", { id: `list-${role}`, type: "search", autocomplete: "off", spellcheck: false });
  let shown = 0, turn = 0;
  async function load(anew) {
    const mine = ++turn;
    if (anew) shown = 0;
    const found = await get(path, { search: field.value, limit: PAGE, offset: shown });
    if (mine !== turn) return;
    const rows = found[role].map(row);
    if (anew) replace(body, rows);
    else body.append(...rows);
    shown += rows.length;
    count.textContent = `${whole(found.total)} found`;
    more.hidden = shown >= found.total;
  }
  const again = (anew) => load(anew).catch((failure) => replace(count, trouble(failure, () => again(anew))));
  field.addEventListener("input", later(() => again(true)));
  more.addEventListener("click", () => again(false));
  const view = h("div", {},
    h("div", { class: "search" }, h("label", { for: field.id }, label), field), count,
    h("table", { class: "wide" }, h("thead", {}, h("tr", {}, columns.map((name, k) => h("th", { class: k ? "number" : null }, name)))), body), more);
  return { view, load };
}
