// A search box with suggestions: arrow keys choose, Enter takes, Escape closes, and then empties the box.

import { get } from "./api.js";
import { h, later, named, replace, counted } from "./dom.js";

let boxes = 0;

export function itemSearch(label, choose) {
  const number = ++boxes;
  const list = h("ul", { id: `found-${number}`, class: "found", role: "listbox", hidden: true, "aria-label": label });
  const field = h("input", {
    id: `search-${number}`, type: "search", role: "combobox", autocomplete: "off", spellcheck: false,
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id, placeholder: "Type a title …",
  });
  let rows = [], active = -1, asked = 0, wanted = false;

  function close() {
    wanted = false;
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
    active = -1;
  }
  function mark(place) {
    active = place;
    [...list.children].forEach((entry, k) => entry.setAttribute("aria-selected", String(k === active)));
    if (active >= 0) field.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active]?.scrollIntoView({ block: "nearest" });
  }
  function take(row) {
    field.value = "";
    close();
    choose(row);
  }
  const look = later(async () => {
    const mine = ++asked;
    const found = await get("/items", { search: field.value, limit: 8 }).catch(() => null);
    if (mine !== asked || !wanted) return;
    rows = found?.items ?? [];
    replace(list, rows.map((row, k) => h("li", {
      id: `found-${number}-${k}`, role: "option", "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); take(row); },
    }, named(row), h("span", { class: "soft" }, ` ${counted(row.n_ratings, "rating")}`))),
    rows.length ? null : h("li", { class: "soft" }, found ? "Nothing found" : "The service does not answer"));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    active = -1;
  });
  // An answer that comes after the list was closed does not open it again.
  function ask() {
    wanted = true;
    rows = [];
    look();
  }
  field.addEventListener("input", ask);
  field.addEventListener("click", () => list.hidden && ask());
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (!wanted) field.value = "";
      close();
      event.preventDefault();
    }
    if (event.key === "ArrowDown" && list.hidden) ask();
    if (!rows.length || list.hidden) return;
    if (event.key === "ArrowDown") mark(Math.min(active + 1, rows.length - 1));
    else if (event.key === "ArrowUp") mark(Math.max(active - 1, 0));
    else if (event.key === "Enter") take(rows[Math.max(active, 0)]);
    else return;
    event.preventDefault();
  });
  return h("div", { class: "search" }, h("label", { for: field.id }, label), field, list);
}

// A choice of one level: buttons while there are few, a list when there are many.
export function levelPicker(levels, chosen, label, key, choose) {
  if (levels.length > 11) {
    return h("select", { class: "picker", "aria-label": label, "data-focus": key, onchange: (event) => choose(levels[event.target.value]) },
      h("option", { value: "", disabled: true, selected: chosen === undefined }, "rate …"),
      levels.map((level, k) => h("option", { value: String(k), selected: level === chosen }, String(level))));
  }
  return h("div", { class: "picker", role: "group", "aria-label": label }, levels.map((level) => h("button", {
    type: "button", "aria-pressed": String(level === chosen), "data-focus": `${key} ${level}`, onclick: () => choose(level),
  }, String(level))));
}
