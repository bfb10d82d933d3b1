// Model: what it is, whether its chains agree, whether its probabilities come true, and its card.

import { get } from "./api.js";
import { counted, decimal, h, percent, replace } from "./dom.js";
import { calibration, lines } from "./charts.js";
import { fact } from "./features.js";

const VERDICTS = {
  good: ["stable", "The chains agree. Answers do not depend on where the search began."],
  usable: ["likely", "The chains do not agree in every detail, but predictions are steady enough to use."],
  "run longer": ["unsure", "The search was too short. Treat answers with care, and fit for longer."],
};
const NAMES = { log_likelihood: "log-likelihood", K: "number of features (K)" };

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
      h("table", {}, h("thead", {}, h("tr", {}, ["", "mean", "R-hat", "effective draws"].map((name) => h("th", { class: "number" }, name)))),
        h("tbody", {}, diagnosis.quantities.map((row) => h("tr", {}, h("th", { scope: "row" }, NAMES[row.name] ?? row.name.replaceAll("_", " ")),
          h("td", { class: "number" }, decimal(row.mean, 2)), h("td", { class: "number" }, decimal(row.rhat, 2)), h("td", { class: "number" }, decimal(row.ess, 0)))))),
      h("p", { class: "soft" }, "R-hat near 1: chains cannot be told apart. Effective draws: how many independent draws would know as much.")),
    h("section", {}, h("h2", {}, "Do its probabilities come true?"), quality.n ? truth(quality) : h("p", { class: "soft" }, "No ratings were kept out of the fit, so this cannot be said. Fit with --holdout.")),
    card.markdown ? h("section", { class: "card" }, h("h2", {}, "Card"), markdown(card.markdown)) : null);
}

function traces(diagnosis) {
  if (!diagnosis.traces.length || diagnosis.traces[0].sweeps.length < 2) return null;
  const kinds = [["Log-likelihood", "log_likelihood"], ["Number of features", "n_features"], ["Noise scale", "noise_scale"]];
  return h("figure", {}, h("div", { class: "panels" }, kinds.map(([title, key]) => h("div", {}, h("h3", {}, title),
    lines(title, diagnosis.traces.map((trace) => ({ name: `chain ${trace.chain}`, x: trace.sweeps, y: trace[key] })), { shaded: diagnosis.warmup })))),
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
