// What went wrong, in plain words, and a way on.

import { Failure, knock } from "./door.js";
import { h, replace } from "./dom.js";

const NOWHERE = [404, 409, 422];

// Whether an address leads nowhere, as opposed to a service that cannot answer.
export const nowhere = (failure) => failure instanceof URIError || NOWHERE.includes(failure.status);

export function trouble(failure, again) {
  const line = h("p", { class: "callout" }, words(failure), " ");
  const door = failure.status === 401;
  line.append(h("button", { type: "button", onclick: () => { if (door) knock(); again(); } }, door ? "Enter a key" : "Try again"));
  return line;
}

function words(failure) {
  if (failure.status === 401) return "This service asks for a key, and none was given.";
  if (failure.status === 503 || failure.status === 429) return `The service is busy. It says: ${failure.message}`;
  if (failure.status === 422 || !(failure instanceof Failure)) return "Something went wrong on this page.";
  return failure.message.charAt(0).toUpperCase() + failure.message.slice(1);
}

// Fills a place with what the work brings; until then a line says so, and a failure is told in the same place.
export async function fillLater(place, waiting, work) {
  replace(place, h("p", { class: "soft" }, waiting));
  try {
    replace(place, await work());
  } catch (failure) {
    replace(place, trouble(failure, () => fillLater(place, waiting, work)));
  }
}
