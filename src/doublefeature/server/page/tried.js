// What this browser keeps of "Try it": ratings, skipped questions, and how the doubt fell.

import { post } from "./api.js";

const STORE = "doublefeature.try";
const MOST = 200;

const isId = (value) => typeof value === "string" || typeof value === "number";
const rows = (value, fits) => (Array.isArray(value) ? value.filter(fits) : []);

export function recall(levels) {
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem(STORE));
  } catch { /* what cannot be read is as good as nothing */ }
  return {
    rated: rows(kept?.rated, (row) => isId(row?.item) && levels.includes(row.rating)).map(({ item, title, rating }) => ({ item, title: String(title ?? ""), rating })),
    skipped: rows(kept?.skipped, isId),
    doubts: rows(kept?.doubts, (row) => Number.isInteger(row?.n) && Number.isFinite(row.doubt)),
  };
}

export function keep(state) {
  localStorage.setItem(STORE, JSON.stringify(state));
}

// One value for each number of ratings; taking ratings back takes their values back.
export function addDoubt(state, doubt) {
  const n = state.rated.length;
  state.doubts = [...state.doubts.filter((row) => row.n < n), { n, doubt }].slice(-MOST);
}

// After a change of model some items may be gone; what is left is kept.
export async function dropUnknown(state) {
  if (!state.rated.length) return;
  const { pairs } = await post("/predictions/items", { items: state.rated.map((row) => row.item) });
  state.rated = state.rated.filter((_, k) => pairs[k].known_item);
}
