// Why a prediction is what it is: one sentence, and behind it the whole sum.

import { counted, decimal, h, named, percent, run, signed } from "./dom.js";
import { strip, levelBars } from "./charts.js";

const SHOWN = 6;

// Returns a function from a feature's number to a few of its items, for people who do not know features by number;
// with a way, 1 or -1, only items that the feature's people rate higher, or lower.
export function featureNames(list) {
  return (number, way = 0, but = undefined) => {
    const feature = list.features[number];
    const leading = (feature?.leading ?? []).filter((row) => row.item !== but && (!way || way * (row.effect ?? feature.effect.mean) > 0));
    return leading.slice(0, way ? 2 : 3).map(named);
  };
}

export function sentence(told, nameOf, who = "you") {
  const you = who === "you";
  const parts = told.features.filter((part) => part.feature !== null && part.shared >= 0.3 && Math.abs(part.contribution.mean) >= 0.05)
    .map((part) => ({
      size: part.contribution.mean,
      words: [
        signed(part.contribution.mean), ` because ${you ? "you" : "they"} ${part.shared >= 0.6 ? "seem to" : "may"} be among the people who rate `,
        company(told.item, part, nameOf), " than others (", h("a", { href: `#/features/${part.feature}` }, `feature ${part.feature}`), ")",
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
  return h("p", { class: "why" }, "Why: ", parts.slice(0, 3).flatMap((part, k) => [k ? "; " : "", ...part.words]), ".");
}

// What a feature's people do, told by items that they move the same way as this one.
function company(item, part, nameOf) {
  const way = part.contribution.mean > 0 ? 1 : -1;
  const word = (sign) => (sign > 0 ? "higher" : "lower");
  const alike = nameOf(part.feature, way, item), unlike = nameOf(part.feature, -way, item);
  if (alike.length) return `${quoted(alike)} and this ${word(way)}`;
  return unlike.length ? `${quoted(unlike)} ${word(-way)}, and this ${word(way)},` : `this ${word(way)}`;
}

const quoted = (titles) => titles.map((title) => `“${title}”`).join(", ");

export function wholeSum(told, nameOf) {
  const alone = told.features.filter((part) => part.feature !== null).sort((a, b) => Math.abs(b.contribution.mean) - Math.abs(a.contribution.mean));
  const others = told.features.filter((part) => part.feature === null);
  const row = (part) => [h("a", { href: `#/features/${part.feature}` }, `feature ${part.feature}`), part.contribution, `shared with ${percent(part.shared)}: ${nameOf(part.feature).join("; ")}`];
  const rest = alone.slice(SHOWN);
  const restSum = rest.reduce((sum, part) => sum + part.contribution.mean, 0);
  const rows = [
    ["the model’s starting point", fixed(told.base), "", true],
    ["this item in general", told.item_offset, ""],
    ["this person’s habit", told.user_offset, ""],
    ...alone.slice(0, SHOWN).map(row),
    ...(rest.length ? [[counted(rest.length, "smaller feature"), fixed(restSum), "listed below"]] : []),
    ...others.map((part) => ["all other features", part.contribution, ""]),
    ...(told.remainder ? [["what no feature says", told.remainder, ""]] : []),
    [h("strong", {}, "adds up to a score of"), told.score, `${decimal(told.score.lower)} to ${decimal(told.score.upper)}`, true],
  ];
  const ends = [...rows, ...rest.map(row)].filter(([, , , whole]) => !whole).flatMap(([, part]) => [part.lower, part.upper, 0]);
  const drawn = (some) => h("tbody", {}, some.map((one) => line(one, Math.min(...ends), Math.max(...ends))));
  return h("div", { class: "sum" },
    h("table", {}, h("caption", {}, `The parts of the score. Dots are averages; lines hold ${percent(told.mass)} of the plausible values.`), drawn(rows)),
    h("p", { class: "soft" }, outcome(told)),
    rest.length ? h("details", {}, h("summary", {}, `show all: ${counted(rest.length, "smaller feature")}`), h("table", {}, drawn(rest.map(row)))) : null);
}

const fixed = (value) => ({ mean: value, lower: value, upper: value });

function line([name, part, note, whole], low, high) {
  return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, whole ? decimal(part.mean, 2) : signed(part.mean, 2)),
    h("td", {}, whole || part.lower === part.upper ? null : strip(part, low, high)), h("td", { class: "soft" }, note));
}

// The score is on the model's own scale; what it says about levels comes from the borders between them.
function outcome(told) {
  const numbers = told.levels.every((level) => typeof level === "number");
  const expected = told.proba.reduce((sum, share, k) => sum + share * (numbers ? told.levels[k] : 0), 0);
  const end = numbers ? `, and from those the expected rating of ${decimal(expected)}` : "";
  return `The score is on a scale of the model’s own. Borders on that scale divide one level from the next; where the score lies between them gives the chance of each level${end}.`;
}

export function prediction(row, levels) {
  const [first, last] = [levels.indexOf(row.lower), levels.indexOf(row.upper)];
  const held = row.proba.slice(first, last + 1).reduce((sum, share) => sum + share, 0);
  return h("div", { class: "prediction" }, levelBars(levels, row.proba),
    h("p", {}, h("strong", {}, decimal(row.mean)), h("span", { class: "soft" }, ` expected; ${run(row.lower, row.upper)} holds ${percent(held)}`)));
}
