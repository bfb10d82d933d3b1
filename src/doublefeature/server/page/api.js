// Talking with the service: JSON in, JSON out, one place for keys and failures.

const KEY = "doublefeature.key";
const waiting = { door: null };

export class Failure extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const get = (path, query = {}) => send("GET", withQuery(path, query));
export const post = (path, body) => send("POST", path, body);

export async function send(method, path, body) {
  for (;;) {
    const answer = await raw(method, `api/v1${path}`, body);
    if (answer.ok) return answer.json();
    if (answer.status === 401) {
      await askForKey();
      continue;
    }
    if (answer.status === 503 || answer.status === 429) {
      await new Promise((go) => setTimeout(go, 1000));
      continue;
    }
    const told = await answer.json().catch(() => ({ detail: `the service answered ${answer.status}` }));
    throw new Failure(answer.status, told.detail);
  }
}

export async function raw(method, path, body) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
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

function askForKey() {
  if (waiting.door) return waiting.door;
  const door = document.getElementById("door");
  const field = document.getElementById("door-key");
  field.value = "";
  waiting.door = new Promise((open) => {
    door.addEventListener("close", () => {
      sessionStorage.setItem(KEY, field.value);
      waiting.door = null;
      open();
    }, { once: true });
  });
  door.showModal();
  return waiting.door;
}

export const idPath = (id) => encodeURIComponent(String(id));
