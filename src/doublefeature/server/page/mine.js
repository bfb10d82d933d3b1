// The left side of "Try it": search, the item being rated, the question, and what was rated.

import { h, named, refresh, replace } from "./dom.js";
import { itemSearch, levelPicker } from "./search.js";

export function ownRatings(info, state, act) {
  const search = itemSearch("Find something you know", open);
  const opened = h("div");
  const asking = h("div", { class: "question", "aria-live": "polite" });
  const list = h("div");
  const field = search.querySelector("input");
  const view = h("section", { class: "mine", "aria-label": "Your ratings" }, h("h2", {}, "Your ratings"), search, opened, asking, list);

  function open(row) {
    const known = [...list.querySelectorAll("[data-item]")].find((one) => one.dataset.item === JSON.stringify(row.item));
    if (known) {
      replace(opened);
      known.querySelector("[aria-pressed=true], select").focus();
      return;
    }
    replace(opened, h("div", { class: "open" },
      h("p", {}, "How would you rate ", h("strong", {}, named(row)), "?"),
      levelPicker(info.levels, undefined, `Your rating of ${named(row)}`, "open", (level) => {
        replace(opened);
        field.focus();
        act.rate(row, level);
      })));
    opened.querySelector("button, select").focus();
  }

  function ask(question) {
    refresh(asking, question ? [
      h("h3", {}, "What would help most"),
      h("p", {}, "Do you know ", h("strong", {}, named(question)), "? Your answer would tell more about your taste than any other."),
      levelPicker(info.levels, undefined, `Your rating of ${named(question)}`, "question", (level) => answer(() => act.rate(question, level, { from: asking, to: firstAnswer }))),
      h("button", { type: "button", class: "plain", "data-focus": "skip", onclick: () => answer(() => act.skip(question, { from: asking, to: skip })) }, "I don’t know it"),
    ] : null);
  }
  const answer = (given) => asking.hasAttribute("aria-busy") || given();
  const firstAnswer = () => asking.querySelector("button, select") ?? field;
  const skip = () => asking.querySelector("[data-focus=skip]") ?? field;

  // While the next question is on its way the last one stays, so that nothing jumps.
  function wait(busy) {
    if (busy) asking.setAttribute("aria-busy", "true");
    else asking.removeAttribute("aria-busy");
    for (const one of asking.querySelectorAll("button, select")) {
      if (busy) one.setAttribute("aria-disabled", "true");
      else one.removeAttribute("aria-disabled");
    }
  }

  function remove(row) {
    const place = state.rated.indexOf(row);
    act.remove(row);
    (list.querySelectorAll("button.remove")[place] ?? field).focus();
  }
  function restart() {
    replace(opened);
    field.focus();
    act.restart();
  }
  function drawRated() {
    if (!state.rated.length) {
      replace(list, h("p", { class: "soft" }, "Nothing yet. Your ratings stay in this browser; the service does not keep them."));
      return;
    }
    refresh(list,
      h("ul", { class: "rated" }, state.rated.map((row) => h("li", { "data-item": JSON.stringify(row.item) },
        h("span", { class: "name" }, named(row)),
        levelPicker(info.levels, row.rating, `Your rating of ${named(row)}`, `rated ${JSON.stringify(row.item)}`, (level) => act.rate(row, level)),
        h("button", { type: "button", class: "plain remove", "data-focus": `remove ${JSON.stringify(row.item)}`, "aria-label": `Remove ${named(row)}`, onclick: () => remove(row) }, "✕")))),
      h("button", { type: "button", class: "plain", "data-focus": "restart", onclick: restart }, "Start over"));
  }
  return { view, ask, wait, drawRated };
}
