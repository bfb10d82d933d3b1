// Why a prediction is what it is: one sentence, and behind it the whole sum.

import { counted, h, percent, run, signed } from "./dom.js";
import { strip, levelBars } from "./charts.js";

// Returns a function from a feature's number to a few of its items, for people who do not know features by number.
export function featureNames(list) {
  return (number) => {
    const leading = list.features[number]?.leading.slice(0, 3).map((row) => row.title || row.item) ?? [];
    return leading.length ? `${leading.join(", ")} …` : "";
  };
}

export function sentence(told, nameOf, who = "you") {
  const you = who === "you";
  const parts = told.features.filter((part) => part.feature !== null && part.shared >= 0.3 && Math.abs(part.contribution.mean) >= 0.05)
    .map((part) => ({
      size: part.contribution.mean,
      words: [
        signed(part.contribution.mean), ` because ${you ? "you" : "they"} ${part.shared >= 0.6 ? "seem to" : "may"} share `,
        h("a", { href: `#/features/${part.feature}` }, `feature ${part.feature}`), ` (${nameOf(part.feature)})`,
      ],
    }));
  const offset = told.item_offset.mean;
  if (Math.abs(offset) >= 0.1) {
    parts.push({ size: offset, words: [signed(offset), offset > 0 ? " because people like it in general" : " because people rate it low in general"] });
  }
  parts.sort((a, b) => Math.abs(b.size) - Math.abs(a.size));
  const habit = told.user_offset.mean;
  if (parts.length < 2 && Math.abs(habit) >= 0.1) {
    parts.push({ size: habit, words: [signed(habit), ` because ${you ? "you" : "they"} rate ${habit > 0 ? "higher" : "lower"} than most`] });
  }
  if (!parts.length) return h("p", { class: "why" }, "Why: nothing stands out; this is close to what anybody would be told.");
  return h("p", { class: "why" }, "Why: ", parts.slice(0, 3).flatMap((part, k) => [k ? ", " : "", ...part.words]), ".");
}

export function wholeSum(told, nameOf) {
  const rows = [
    ["everybody starts at", { mean: told.base, lower: told.base, upper: told.base }, ""],
    ["this item in general", told.item_offset, ""],
    ["this person’s habit", told.user_offset, ""],
    ...told.features.filter((part) => part.feature === null || !small(part)).map((part) => [
      part.feature === null ? "all other features" : h("a", { href: `#/features/${part.feature}` }, `feature ${part.feature}`),
      part.contribution,
      part.feature === null ? "" : `shared with ${percent(part.shared)}: ${nameOf(part.feature)}`,
    ]),
    ...(told.remainder ? [["what no feature says", told.remainder, ""]] : []),
    [h("strong", {}, "adds up to"), told.score, "about the rating expected, before it is cut to the levels"],
  ];
  const hidden = told.features.filter((part) => part.feature !== null && small(part)).length;
  const ends = rows.flatMap(([, part]) => [part.lower, part.upper, 0]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  return h("div", { class: "sum" },
    h("table", {}, h("caption", {}, `How the prediction adds up, in levels; lines hold ${percent(told.mass)} of the plausible values`),
      h("tbody", {}, rows.map(([name, part, note]) => h("tr", {},
        h("th", { scope: "row" }, name), h("td", { class: "number" }, signed(part.mean, 2)),
        h("td", {}, strip(part, low, high)), h("td", { class: "soft" }, note))))),
    hidden ? h("p", { class: "soft" }, `${counted(hidden, "feature")} of less than 0.02 each ${hidden === 1 ? "is" : "are"} not shown.`) : null);
}

const small = (part) => Math.abs(part.contribution.mean) < 0.02;

export function prediction(row, levels) {
  return h("div", { class: "prediction" }, levelBars(levels, row.proba),
    h("p", {}, h("strong", {}, row.mean.toFixed(1)), h("span", { class: "soft" }, ` expected; ${run(row.lower, row.upper)} with 80 %`)));
}
