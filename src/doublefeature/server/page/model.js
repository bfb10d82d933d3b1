// Model: what it is, whether its chains agree, whether its probabilities come true, and its card.

import { get } from "./api.js";
import { counted, decimal, h, percent, replace } from "./dom.js";
import { calibration, legend, lines } from "./charts.js";
import { fact } from "./features.js";

const VERDICTS = {
  good: ["stable", "The chains agree. Answers do not depend on where the search began."],
  usable: ["likely", "The chains do not agree in every detail, but predictions are steady enough to use."],
  "run longer": ["unsure", "The search was too short. Treat answers with care, and fit for longer."],
};
// What the numbers of the table are called and mean; scores are on the model's own scale, with levels about one apart.
const NAMES = {
  log_likelihood: ["log-likelihood", "how well the model fits the ratings; closer to 0 is better"],
  K: ["number of features (K)", "features in a draw, those of a single user included"],
  noise_scale: ["noise scale", "how far ratings stray from their scores by chance"],
  effect_sd: ["effect sd", "how strong features are: the spread of their effects"],
  item_offset_sd: ["item offset sd", "how much items differ in how well they are liked in general"],
  user_offset_sd: ["user offset sd", "how much users differ in how high they rate in general"],
  grade_sd: ["grade sd", "how much the items of one feature differ in its effect on them"],
  user_grade_sd: ["user grade sd", "how much the users of one feature differ in how strongly they hold it"],
  user_scale_sd: ["user scale sd", "how much users differ in how predictable they are"],
  mass: ["mass", "how many features to expect"],
  item_rate: ["item rate", "the share of items that a feature has"],
  remainder_sd: ["remainder sd", "how much is left that no feature says"],
};
const nameOf = (row) => NAMES[row.name]?.[0] ?? row.name.replaceAll("_", " ");

export async function showModel(place, info) {
  const [diagnosis, quality, card] = await Promise.all([get("/model/diagnosis"), get("/model/quality"), get("/model/card")]);
  const [badge, told] = VERDICTS[diagnosis.level] ?? ["likely", ""];
  replace(place,
    h("h1", {}, "The model"),
    info.alarm ? h("p", { class: "callout" }, `A new model was refused, and this one goes on: ${info.alarm}`) : null,
    h("dl", { class: "facts" }, fact("Learnt from", `${counted(info.ratings, "rating")} of ${counted(info.items, "item")} by ${counted(info.users, "user")}`),
      fact("Levels", info.levels.join(" < ")), fact("Kind", `preset ${info.preset}, ${counted(info.draws, "draw")} of ${counted(info.chains, "chain")}`), fact("Version", info.model)),
    h("section", {}, h("h2", {}, "Did the search settle?", h("span", { class: `badge ${badge}` }, diagnosis.level)), h("p", {}, told),
      h("ul", {}, [...diagnosis.reasons, ...diagnosis.advice].map((line) => h("li", {}, line))),
      traces(diagnosis),
      quantities(diagnosis.quantities),
      h("p", { class: "soft" }, "R-hat near 1: chains cannot be told apart. Effective draws: how many independent draws would know as much.")),
    h("section", {}, h("h2", {}, "Do its probabilities come true?"), quality.n ? truth(quality) : h("p", { class: "soft" }, "No ratings were kept out of the fit, so this cannot be said. Fit with --holdout.")),
    card.markdown ? h("section", { class: "card" }, h("h2", {}, "Card"), markdown(card.markdown)) : null);
}

function quantities(rows) {
  const known = rows.filter((row) => NAMES[row.name]);
  return [
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers of the search" }, h("table", {},
      h("thead", {}, h("tr", {}, ["", "mean", "R‑hat", "effective draws"].map((name) => h("th", { class: "number" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, nameOf(row)),
        h("td", { class: "number" }, decimal(row.mean, Math.abs(row.mean) >= 1000 ? 0 : 2)), h("td", { class: "number" }, decimal(row.rhat, 2)), h("td", { class: "number" }, decimal(row.ess, 0))))))),
    known.length ? h("details", {}, h("summary", {}, "What these are"), h("dl", { class: "facts" }, known.map((row) => fact(nameOf(row), NAMES[row.name][1])),
      fact("sd", "short for standard deviation, a measure of spread"))) : null,
  ];
}

function traces(diagnosis) {
  if (!diagnosis.traces.length || diagnosis.traces[0].sweeps.length < 2) return null;
  const kinds = [["Log-likelihood", "log_likelihood"], ["Number of features", "n_features"], ["Noise scale", "noise_scale"]];
  return h("figure", {}, h("div", { class: "panels" }, kinds.map(([title, key]) => h("div", {}, h("h3", {}, title),
    lines(title, diagnosis.traces.map((trace) => ({ name: `chain ${trace.chain}`, x: trace.sweeps, y: trace[key] })), { shaded: diagnosis.warmup })))),
  legend(diagnosis.traces.map((trace) => `chain ${trace.chain}`)),
  h("figcaption", {}, "One line per chain, an independent search. The grey part is the warm-up, which is thrown away. After it the lines should waver about one height and cover the same range."));
}

function truth(quality) {
  return h("div", { class: "two even" },
    h("figure", {}, calibration(quality.bins), h("figcaption", {}, `Of all predictions that promised, say, 30 %, about 30 % should come true: dots on the dashed line. From ${counted(quality.n, "rating")} that the model did not see; lines are 95 % intervals.`)),
    h("dl", { class: "facts" }, fact("Exactly right", percent(quality.exact)), fact("At most one level off", percent(quality.within_one)),
      fact("Root mean squared error", decimal(quality.rmse, 3)), fact("Inside its 80 % sets", percent(quality.coverage_80)), fact("Calibration error", decimal(quality.calibration_error, 3))));
}

// The few marks that cards use: headings, bullets, paragraphs; lines that follow one another belong together.
function markdown(text) {
  const out = [];
  let open = null;
  for (const line of text.split("\n")) {
    if (line.startsWith("# ")) continue;
    if (line.startsWith("## ")) out.push(h("h3", {}, line.slice(3)));
    else if (line.startsWith("* ")) {
      if (out.at(-1)?.tagName !== "UL") out.push(h("ul"));
      out.at(-1).append(open = h("li", {}, line.slice(2)));
    } else if (line.trim() && open) open.append(` ${line.trim()}`);
    else if (line.trim()) out.push(open = h("p", {}, line.trim()));
    if (!line.trim() || line.startsWith("#")) open = null;
  }
  return out;
}
