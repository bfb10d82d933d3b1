// Talking with the service: JSON in, JSON out, one place for keys, waiting and failures.

import { askForKey, Failure, heldKey } from "./door.js";

const TRIES = 8;
const MOST_SECONDS = 12;
const busy = { waiting: 0 };

export const get = (path, query = {}) => send("GET", withQuery(path, query));
export const post = (path, body) => send("POST", path, body);

export async function send(method, path, body) {
  for (let tried = 1; ;) {
    const key = heldKey();
    const answer = await raw(method, `api/v1${path}`, body);
    if (answer.ok) return answer.json();
    if (answer.status === 401) await askForKey(key);
    else if ((answer.status === 503 || answer.status === 429) && tried < TRIES) await pause(answer, tried++);
    else {
      const told = await answer.json().catch(() => ({}));
      throw new Failure(answer.status, told.detail ?? `the service answered ${answer.status}.`);
    }
  }
}

// Waits for longer each time, and as long as the service asks for; a line says that it is waiting.
async function pause(answer, tried) {
  const asked = Number(answer.headers.get("Retry-After")) || 0;
  const seconds = Math.min(MOST_SECONDS, Math.max(asked, 1.5 ** (tried - 1)));
  sayBusy(1);
  await new Promise((go) => setTimeout(go, 1000 * seconds));
  sayBusy(-1);
}

function sayBusy(change) {
  busy.waiting += change;
  const note = document.getElementById("busy");
  const words = busy.waiting ? "The service is busy, trying again …" : "";
  if (note.textContent !== words) note.textContent = words;
}

export async function raw(method, path, body) {
  const headers = {};
  const key = heldKey();
  if (key) headers["X-API-Key"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method, headers, body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, "the service does not answer. Is it still running?");
  }
}

function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export const idPath = (id) => encodeURIComponent(String(id));
