// Try it: rate a few items, see what would be recommended, why, and what to say next.

import { get, post } from "./api.js";
import { counted, decimal, h, named, percent, refresh, replace } from "./dom.js";
import { featureNames, prediction, sentence, wholeSum } from "./reasons.js";
import { itemSearch, levelPicker } from "./search.js";
import { lines } from "./charts.js";

const STORE = "doublefeature.try";
const SHOWN = 8;
const PANEL = 30;

function recall() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    return { rated: kept.rated ?? [], skipped: kept.skipped ?? [], sureness: kept.sureness ?? [] };
  } catch {
    return { rated: [], skipped: [], sureness: [] };
  }
}

export async function showTry(place, info) {
  const state = recall();
  const nameOf = featureNames(await get("/features"));
  const mine = h("section", { class: "mine", "aria-label": "Your ratings" });
  const theirs = h("section", { class: "theirs", "aria-label": "Recommendations" });
  await dropUnknown(state, info);
  const panel = (await get("/items", { limit: PANEL })).items.map((row) => row.item);
  let turn = 0;

  const keep = () => localStorage.setItem(STORE, JSON.stringify(state));
  const ratings = () => state.rated.map(({ item, rating }) => ({ item, rating }));

  function rate(row, rating) {
    const known = state.rated.find((one) => one.item === row.item);
    if (known) known.rating = rating;
    else state.rated.unshift({ item: row.item, title: row.title, rating });
    update();
  }
  function remove(row) {
    state.rated = state.rated.filter((one) => one.item !== row.item);
    update();
  }
  async function update() {
    keep();
    drawMine(null);
    theirs.setAttribute("aria-busy", "true");
    const now = ++turn;
    const asked = { ratings: ratings() };
    const [found, next, sure] = await Promise.all([
      post("/recommendations", { ...asked, n: SHOWN }),
      post("/questions", { ...asked, n: Math.min(50, 1 + state.skipped.length) }),
      post("/predictions/items", { ...asked, items: panel }),
    ]);
    if (now !== turn) return;
    const spread = sure.pairs.reduce((sum, pair) => sum + pair.sd, 0) / Math.max(sure.pairs.length, 1);
    state.sureness = [...state.sureness.slice(0, state.rated.length), spread].slice(0, 200);
    while (state.sureness.length <= state.rated.length) state.sureness.unshift(spread);
    keep();
    drawMine(next.items.find((row) => !state.skipped.includes(row.item)));
    drawTheirs(found);
    theirs.removeAttribute("aria-busy");
  }

  function drawMine(question) {
    refresh(mine,
      h("h2", {}, "Your ratings"),
      mine.search ??= itemSearch("Find something you know", (row) => { state.open = row; drawMine(question); mine.querySelector(".open button")?.focus(); }),
      state.open && !state.rated.some((one) => one.item === state.open.item) ? h("div", { class: "open" },
        h("p", {}, "How would you rate ", h("strong", {}, named(state.open)), "?"),
        levelPicker(info.levels, undefined, `Your rating of ${named(state.open)}`, "open", (level) => { const row = state.open; state.open = null; rate(row, level); })) : null,
      h("div", { class: "question", "aria-live": "polite" }, question ? [
        h("h3", {}, "What would help most"),
        h("p", {}, "Do you know ", h("strong", {}, named(question)), "? Your answer would tell more about your taste than any other."),
        levelPicker(info.levels, undefined, `Your rating of ${named(question)}`, "question", (level) => rate(question, level)),
        h("button", { type: "button", class: "plain", "data-focus": "skip", onclick: () => { state.skipped.push(question.item); update(); } }, "I don’t know it"),
      ] : null),
      state.rated.length ? h("ul", { class: "rated" }, state.rated.map((row) => h("li", {},
        h("span", { class: "name" }, named(row)),
        levelPicker(info.levels, row.rating, `Your rating of ${named(row)}`, `rated ${JSON.stringify(row.item)}`, (level) => rate(row, level)),
        h("button", { type: "button", class: "plain", "aria-label": `Remove ${named(row)}`, onclick: () => remove(row) }, "✕"))))
        : h("p", { class: "soft" }, "Nothing yet. Your ratings stay in this browser; the service does not keep them."),
      state.rated.length ? h("button", { type: "button", class: "plain", onclick: () => { state.rated = []; state.skipped = []; state.sureness = []; update(); } }, "Start over") : null);
  }

  function drawTheirs(found) {
    const titles = {
      prior: ["What anybody would be told", "Nothing is known of you yet, so this is the answer for a person picked at random. Rate something and watch it change."],
      "fold-in": ["Recommended for you", `From ${counted(state.rated.length, "rating")} of yours. Bars are the chances of each level.`],
    };
    const [title, told] = titles[found.source] ?? titles["fold-in"];
    refresh(theirs,
      h("h2", {}, title), h("p", { class: "soft", "aria-live": "polite" }, told),
      sureness(),
      h("ol", { class: "cards" }, found.items.map((row) => card(row, found))),
      found.items.length ? null : h("p", { class: "callout" }, "You have rated everything there is."));
  }

  function sureness() {
    if (state.rated.length < 1) return null;
    const [first, now] = [state.sureness[0], state.sureness.at(-1)];
    const change = now < first * 0.995 ? `Before your first rating it was ±${decimal(first, 2)}.` : "More ratings will narrow it.";
    return h("details", { class: "sure" },
      h("summary", {}, `How sure: typically ±${decimal(now, 2)} levels. ${change}`),
      h("p", { class: "soft" }, "The typical spread of predictions over well-known items, after each of your ratings. It falls as you rate, down to what tastes vary by themselves."),
      lines("Spread of predictions", [{ name: "spread", x: state.sureness.map((_, k) => k), y: state.sureness }], { tall: 130, across: "your ratings", shaded: -1 }));
  }

  function card(row, found) {
    const why = h("div", { class: "reason" }, h("p", { class: "why soft" }, "Why: …"));
    const asked = { ratings: ratings(), item: row.item };
    queue.push(async () => {
      if (!why.isConnected && theirs.isConnected) return;
      const told = await post("/explanations", asked);
      replace(why, sentence(told, nameOf), h("details", {}, h("summary", {}, "the whole sum"), wholeSum(told, nameOf)));
    });
    return h("li", {},
      h("h3", {}, h("a", { href: `#/items/${encodeURIComponent(JSON.stringify(row.item))}` }, named(row))),
      prediction(row, found.levels),
      h("p", { class: "chance" }, `${percent(row.at_least)} chance of ${found.level} or more`),
      why,
      h("div", { class: "rate" }, h("span", { class: "soft" }, "Know it? "), levelPicker(info.levels, undefined, `Your rating of ${named(row)}`, `card ${JSON.stringify(row.item)}`, (level) => rate(row, level))));
  }

  replace(place,
    h("h1", {}, "What should you see next?"),
    h("p", { class: "lead" }, `Rate a few of ${info.items.toLocaleString("en")} items. You will see what is recommended, how sure that is, and the exact reason.`),
    h("div", { class: "two" }, mine, theirs));
  drawMine(null);
  await update();
}

// Reasons are asked for one after another, so that they never stand in the way of recommendations.
const queue = {
  jobs: [], busy: false,
  push(job) {
    this.jobs.push(job);
    this.work();
  },
  async work() {
    if (this.busy) return;
    this.busy = true;
    await new Promise((go) => setTimeout(go, 30));
    while (this.jobs.length) {
      try {
        await this.jobs.shift()();
      } catch { /* a reason that does not come leaves its place as it is */ }
    }
    this.busy = false;
  },
};

// After a change of model some items may be gone; what is left is kept.
async function dropUnknown(state, info) {
  state.rated = state.rated.filter((row) => info.levels.includes(row.rating));
  if (!state.rated.length) return;
  const { pairs } = await post("/predictions/items", { items: state.rated.map((row) => row.item) });
  state.rated = state.rated.filter((_, k) => pairs[k].known_item);
}
