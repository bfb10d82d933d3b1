// The API's description as a page on which every route can be tried; made from openapi.json alone.

import { get, raw } from "./api.js";
import { askForKey, heldKey, knock } from "./door.js";
import { h, replace } from "./dom.js";
import { trouble } from "./trouble.js";

const main = document.getElementById("main");
const METHODS = ["get", "post", "put", "delete"];

async function show() {
  const spec = await get("/openapi.json");
  const groups = new Map();
  for (const [path, entry] of Object.entries(spec.paths)) {
    for (const method of METHODS.filter((name) => entry[name])) {
      const tag = entry[method].tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), [method, path, entry[method]]]);
    }
  }
  replace(main, h("h1", {}, "API"), spec.info.description.trim().split("\n\n").map((part) => h("p", {}, part)),
    h("p", { class: "soft" }, `Version ${spec.info.version}. Machine-readable: `, h("a", { href: "api/v1/openapi.json" }, "openapi.json"), "."),
    [...groups].map(([tag, routes]) => h("section", {}, h("h2", {}, tag), routes.map((route) => operation(spec, ...route)))));
}

function operation(spec, method, path, told) {
  const fields = (told.parameters ?? []).filter((one) => one.in !== "header").map((one) => parameter(one, `${method}-${path}`));
  const schema = told.requestBody?.content?.["application/json"]?.schema;
  const body = schema ? h("textarea", { rows: 6, spellcheck: false, "aria-label": "Body", class: "code" }) : null;
  if (body) body.value = JSON.stringify(example(spec, schema), null, 2);
  const shown = h("pre", { class: "code", tabindex: 0, hidden: true, "aria-live": "polite" });
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); send(); } },
    fields.map((one) => one.view), body ? h("label", { class: "stack" }, "Body", body) : null,
    h("button", { class: "main" }, "Send"), shown);
  async function send() {
    let address = path;
    const query = new URLSearchParams();
    for (const { one, field } of fields) {
      if (one.in === "path") address = address.replace(`{${one.name}}`, encodeURIComponent(field.value));
      else if (field.value !== "") query.append(one.name, field.value);
    }
    shown.hidden = false;
    try {
      const answer = await asked(() => raw(method.toUpperCase(), `.${address}${query.size ? `?${query}` : ""}`, body ? body.value : undefined));
      const text = await answer.text();
      shown.textContent = `${answer.status} ${answer.statusText}\n${pretty(text)}`;
    } catch (failure) {
      shown.textContent = failure.message;
    }
  }
  return h("details", { class: "route" },
    h("summary", {}, h("code", { class: `method ${method}` }, method.toUpperCase()), " ", h("code", {}, path), " ", h("span", { class: "soft" }, told.description?.split("\n")[0] ?? told.summary)),
    form, h("h3", {}, "Answers"), h("ul", {}, Object.entries(told.responses).map(([code, one]) => h("li", {}, h("code", {}, code), ` ${one.description} `, shape(one)))));
}

// Sends, and where a key is needed asks for it and sends once more.
async function asked(go) {
  const key = heldKey();
  const answer = await go();
  if (answer.status !== 401) return answer;
  knock();
  await askForKey(key);
  return go();
}

function shape(answer) {
  const found = answer.content?.["application/json"]?.schema?.$ref;
  return found ? h("span", { class: "soft" }, found.split("/").at(-1)) : null;
}

function parameter(one, prefix) {
  const choices = one.schema.enum;
  const id = `${prefix}-${one.name}`;
  const field = choices ? h("select", { id }, choices.map((value) => h("option", { value }, value)))
    : h("input", { id, required: Boolean(one.required), placeholder: one.schema.default === undefined ? "" : String(one.schema.default) });
  return { one, field, view: h("label", { class: "stack", for: id }, `${one.name}${one.required ? "" : " (optional)"}`, field) };
}

function example(spec, schema) {
  if (schema.$ref) return example(spec, schema.$ref.split("/").slice(1).reduce((place, key) => place[key], spec));
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return example(spec, schema.anyOf[0]);
  if (schema.type === "object") return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, part]) => [name, example(spec, part)]));
  if (schema.type === "array") return [example(spec, schema.items)];
  return { integer: 1, number: 1, boolean: true, null: null }[schema.type] ?? "text";
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function start() {
  await show().catch((failure) => replace(main, h("h1", {}, "API"), trouble(failure, start)));
}

start();
