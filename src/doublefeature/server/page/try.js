// Try it: rate a few items, see what would be recommended, why, and what to say next.

import { get, post } from "./api.js";
import { h, replace, whole } from "./dom.js";
import { ownRatings } from "./mine.js";
import { featureNames } from "./reasons.js";
import { recommendations } from "./theirs.js";
import { addDoubt, dropUnknown, keep, recall } from "./tried.js";
import { trouble } from "./trouble.js";

const SHOWN = 8;

export async function showTry(place, info) {
  const state = recall(info.levels);
  const nameOf = featureNames(await get("/features"));
  await dropUnknown(state);
  const ratings = () => state.rated.map(({ item, rating }) => ({ item, rating }));
  const act = { ratings, rate, remove, skip, restart };
  const mine = ownRatings(info, state, act);
  const theirs = recommendations(info, state, act, nameOf);
  const note = h("div", { class: "note", role: "alert" });
  let turn = 0;

  // A landing says where the keyboard goes on when the answer has come, unless somebody has moved it meanwhile.
  function rate(row, rating, landing) {
    const known = state.rated.find((one) => one.item === row.item);
    if (known) known.rating = rating;
    else state.rated.unshift({ item: row.item, title: row.title, rating });
    update(landing);
  }
  function remove(row) {
    state.rated = state.rated.filter((one) => one !== row);
    update();
  }
  function skip(row, landing) {
    state.skipped.push(row.item);
    update(landing);
  }
  function restart() {
    Object.assign(state, { rated: [], skipped: [], doubts: [] });
    update();
  }

  async function update(landing) {
    const now = ++turn;
    keep(state);
    mine.drawRated();
    wait(true);
    const asked = { ratings: ratings() };
    try {
      const [found, next] = await Promise.all([
        post("/recommendations", { ...asked, n: SHOWN }),
        post("/questions", { ...asked, n: Math.min(50, 1 + state.skipped.length) }),
      ]);
      if (now !== turn) return;
      addDoubt(state, next.doubt);
      keep(state);
      const goesOn = landing && (document.activeElement === document.body || landing.from.contains(document.activeElement));
      mine.ask(next.items.find((row) => !state.skipped.includes(row.item)));
      theirs.draw(found);
      replace(note);
      wait(false);
      if (goesOn) landing.to().focus();
    } catch (failure) {
      if (now !== turn) return;
      replace(note, trouble(failure, () => update({ from: note, to: () => theirs.title })));
      wait(false);
    }
  }
  function wait(busy) {
    mine.wait(busy);
    if (busy) theirs.view.setAttribute("aria-busy", "true");
    else theirs.view.removeAttribute("aria-busy");
  }

  replace(place,
    h("h1", {}, "What should you see next?"),
    h("p", { class: "lead" }, `Rate a few of ${whole(info.items)} items. You will see what is recommended, how sure that is, and the exact reason.`),
    h("div", { class: "two" }, mine.view, theirs.view), note);
  await update();
}
