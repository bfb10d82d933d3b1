// The right side of "Try it": how sure the model is, and what it recommends, with reasons.

import { post } from "./api.js";
import { counted, decimal, h, link, named, percent, refresh } from "./dom.js";
import { prediction, sentence, wholeSum } from "./reasons.js";
import { levelPicker } from "./search.js";
import { lines } from "./charts.js";

const TITLES = {
  prior: ["What anybody would be told", () => "Nothing is known of you yet, so this is the answer for a person picked at random. Rate something and watch it change."],
  "fold-in": ["Recommended for you", (n) => `From ${counted(n, "rating")} of yours. Bars are the chances of each level.`],
};

export function recommendations(info, state, act, nameOf) {
  const title = h("h2", { tabindex: "-1" });
  const told = h("p", { class: "soft", "aria-live": "polite" });
  const body = h("div");
  const view = h("section", { class: "theirs", "aria-label": "Recommendations" }, title, told, body);
  let reasons = new Map();

  function draw(found) {
    const [heading, words] = TITLES[found.source] ?? TITLES["fold-in"];
    title.textContent = heading;
    told.textContent = words(state.rated.length);
    const before = reasons;
    reasons = new Map(found.items.map((row) => [row.item, before.get(row.item) ?? h("div", { class: "reason" }, h("p", { class: "why soft" }, "Why: …"))]));
    refresh(body,
      sureness(state, body.querySelector(".sure")?.open),
      h("ol", { class: "cards" }, found.items.map((row, k) => card(row, k, found))),
      found.items.length ? null : h("p", { class: "callout" }, "You have rated everything there is."));
    for (const row of found.items) explain(row.item, reasons.get(row.item));
  }

  function explain(item, why) {
    const asked = { ratings: act.ratings(), item };
    const mine = reasons;
    queue.push(async () => {
      if (mine !== reasons) return;
      const [words, sum] = await post("/explanations", asked).then((one) => [sentence(one, nameOf), wholeSum(one, nameOf)],
        () => [h("p", { class: "why soft" }, "Why: the service did not say."), null]);
      if (mine !== reasons) return;
      const open = [...why.querySelectorAll("details")].map((one) => one.open);
      refresh(why, words, sum ? h("details", {}, h("summary", { "data-focus": `sum ${JSON.stringify(item)}` }, "the whole sum"), sum) : null);
      why.querySelectorAll("details").forEach((one, k) => { one.open = open[k] ?? false; });
    });
  }

  function card(row, k, found) {
    const to = () => (view.querySelectorAll(".cards > li")[k] ?? view.querySelector(".cards > li:last-child"))?.querySelector(".rate button, .rate select") ?? title;
    return h("li", {},
      h("h3", {}, link("items", row.item, named(row))),
      prediction(row, found.levels),
      h("p", { class: "chance" }, `${percent(row.at_least)} chance of ${found.level} or more`),
      reasons.get(row.item),
      h("div", { class: "rate" }, h("span", { class: "soft" }, "Know it? "),
        levelPicker(info.levels, undefined, `Your rating of ${named(row)}`, `card ${JSON.stringify(row.item)}`, (level) => act.rate(row, level, { from: view, to }))));
  }
  return { view, draw, title };
}

function sureness(state, open = false) {
  if (!state.rated.length || !state.doubts.length) return null;
  const now = state.doubts.at(-1).doubt, last = state.doubts.at(-2), first = state.doubts[0];
  const change = last && now > last.doubt * 1.01 ? "Your last rating surprised the model, so that it is less sure than before."
    : first.n === 0 && now < first.doubt * 0.995 ? `Before your first rating it was ±${decimal(first.doubt, 2)}.` : "More ratings will narrow it.";
  return h("details", { class: "sure", open },
    h("summary", { "data-focus": "sure" }, `How sure: expected ratings may still move by about ±${decimal(now, 2)} levels. ${change}`),
    h("p", { class: "soft" }, "How far the expected rating still depends on what is not known about you, on average over all items. It mostly falls as you rate; a rating that surprises the model can raise it."),
    state.doubts.length > 1 ? lines("How far expected ratings may move", [{ name: "line", x: state.doubts.map((row) => row.n), y: state.doubts.map((row) => row.doubt) }],
      { tall: 150, across: "your ratings", up: "± levels", shaded: -1 }) : null);
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
    while (this.jobs.length) await this.jobs.shift()();
    this.busy = false;
  },
};
