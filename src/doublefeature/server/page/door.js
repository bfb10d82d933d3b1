// The key: asked for in a dialog, kept in this tab only.

import { h } from "./dom.js";

const KEY = "doublefeature.key";
const PRINTABLE = /^[\x20-\x7e]+$/;
const door = { view: null, waiting: null, shut: false };

export class Failure extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function heldKey() {
  const key = sessionStorage.getItem(KEY);
  return key && PRINTABLE.test(key) ? key : null;
}

// Resolves when there is a key to try, and fails when the dialog was closed without one.
export function askForKey(tried) {
  if (door.waiting) return door.waiting;
  if (heldKey() !== tried) return Promise.resolve();
  sessionStorage.removeItem(KEY);
  if (door.shut) return Promise.reject(new Failure(401, "this service asks for a key."));
  door.view ??= build();
  door.view.told.textContent = tried ? "That key was not accepted. Check it and try again." : "";
  door.view.field.value = "";
  door.view.returnValue = "";
  door.waiting = new Promise((open, fail) => {
    door.view.addEventListener("close", () => {
      door.waiting = null;
      door.shut = door.view.returnValue !== "key";
      if (door.shut) fail(new Failure(401, "this service asks for a key."));
      else open();
    }, { once: true });
  });
  door.view.showModal();
  return door.waiting;
}

// After a dialog was closed it comes back only when somebody asks for it.
export function knock() {
  door.shut = false;
}

function build() {
  const field = h("input", { id: "door-key", type: "password", autocomplete: "off", required: true, "aria-describedby": "door-told" });
  const told = h("p", { id: "door-told", class: "bad", role: "alert" });
  const view = h("dialog", { id: "door", "aria-labelledby": "door-title" }, h("form", { onsubmit: take },
    h("h2", { id: "door-title" }, "This service asks for a key"),
    h("p", {}, h("label", { for: "door-key" }, "API key"), " ", field), told,
    h("p", { class: "soft" }, "It is kept in this tab only, until you close it."),
    h("p", {}, h("button", { class: "main" }, "Open"), " ", h("button", { type: "button", class: "plain", onclick: () => view.close("") }, "Not now"))));
  function take(event) {
    event.preventDefault();
    const key = field.value.trim();
    if (!PRINTABLE.test(key)) {
      told.textContent = "A key has only plain letters, digits and signs. Copy it again.";
      field.focus();
      return;
    }
    sessionStorage.setItem(KEY, key);
    view.close("key");
  }
  document.body.append(view);
  return Object.assign(view, { field, told });
}
