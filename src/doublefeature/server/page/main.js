// Which view an address shows. Addresses are #/kind or #/kind/id, the id as JSON so that 7 and "7" stay apart.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { nowhere, trouble } from "./trouble.js";
import { showTry } from "./try.js";
import { showFeature, showFeatures } from "./features.js";
import { showItem, showItems } from "./items.js";
import { showUser, showUsers } from "./users.js";
import { showModel } from "./model.js";

const VIEWS = {
  try: [showTry, showTry],
  features: [showFeatures, showFeature],
  items: [showItems, showItem],
  users: [showUsers, showUser],
  model: [showModel, showModel],
};
const WORDS = { features: "feature", items: "item", users: "user" };
const main = document.getElementById("main");
let turn = 0;

async function show(moved) {
  const [, kind = "try", given] = location.hash.split("/");
  const [all, one] = VIEWS[kind] ?? VIEWS.try;
  const mine = ++turn;
  for (const entry of document.querySelectorAll("nav a")) {
    if (entry.getAttribute("href") === `#/${kind || "try"}`) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  const place = h("div", { class: "view" });
  main.setAttribute("aria-busy", "true");
  try {
    const info = await get("/model");
    if (given === undefined) await all(place, info);
    else await one(place, info, idOf(given));
  } catch (failure) {
    replace(place, h("h1", {}, "That did not work"), told(failure, kind));
  }
  if (mine !== turn) return;
  main.removeAttribute("aria-busy");
  replace(main, place);
  document.title = `${place.querySelector("h1")?.textContent ?? "doublefeature"} · doublefeature`;
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

// An address that leads nowhere gets a way back; a service that cannot answer gets another try.
function told(failure, kind) {
  if (!nowhere(failure)) return trouble(failure, () => show(true));
  const [back, words] = WORDS[kind] ? [kind, `all ${kind}`] : ["try", "the start"];
  return [h("p", { class: "callout" }, `There is no such ${WORDS[kind] ?? "page"}.`), h("p", {}, h("a", { href: `#/${back}` }, `← ${words}`))];
}

function idOf(text) {
  const given = decodeURIComponent(text);
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}

addEventListener("hashchange", () => show(true));
show(false);
