// Records of a live tap as a table.

import { copy } from "./console.js";

const KEPT = 200;
const FIRST = 5;

const form = document.querySelector("form[data-tap]");
const shown = document.getElementById("records");
const list = document.getElementById("tapped");
const status = form.querySelector("[role=status]");
const pause = form.querySelector("[data-pause]");
const chooser = document.querySelector("#columns fieldset");

/** The rows shown, the newest first: the record, and its two rows of the table. */
let records = [];
/** Columns by path, and whether each is shown. */
let columns = new Map();
let tapping = null;

/** The fields of a record by path, one level below objects; lists and deeper objects as JSON. */
function fields(side) {
  const found = new Map();
  for (const [part, value] of Object.entries(side ?? {})) {
    const inner = value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : null;
    if (inner) inner.forEach(([name, one]) => found.set(`${part}.${name}`, one));
    else if (part === "headers" && Array.isArray(value)) value.forEach(([name, one]) => found.set(`headers.${name}`, one));
    else found.set(part, value);
  }
  return found;
}

const written = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** The text of a cell: a value, or what became of it. */
function cellOf({ before, after }, path) {
  const [old, now] = [written(before.get(path)), written(after?.get(path))];
  return !after || old === now ? old : `${old || "–"} → ${now || "–"}`;
}

function cell(name, text) {
  const made = document.createElement("td");
  made.dataset.name = name;
  made.append(Object.assign(document.createElement("bdi"), { textContent: text }));
  return made;
}

/** Put the cells of the chosen columns behind the first two of a row. */
function fill(one) {
  one.row.replaceChildren(...[...one.row.children].slice(0, 2));
  for (const [path, chosen] of columns) if (chosen) one.row.append(cell(path, cellOf(one, path)));
  one.detail.firstElementChild.colSpan = one.row.children.length;
}

function drawHead() {
  const names = ["Record", "Outcome", ...[...columns].filter(([, chosen]) => chosen).map(([path]) => path)];
  shown.querySelector("thead tr").replaceChildren(...names.map((name) => Object.assign(document.createElement("th"), { scope: "col", textContent: name })));
  records.forEach(fill);
}

/** Offer the paths that are new in a record as columns; the first ones are shown. */
function offer(one) {
  const paths = [...new Set([...one.before.keys(), ...(one.after?.keys() ?? [])])].filter((path) => !columns.has(path));
  for (const path of paths) {
    const chosen = (path === "topic" || path.startsWith("value")) && [...columns.values()].filter(Boolean).length < FIRST;
    columns.set(path, chosen);
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: chosen });
    box.onchange = () => { columns.set(path, box.checked); drawHead(); };
    label.append(box, ` ${path}`);
    chooser.append(label);
  }
  if (paths.length) drawHead();
}

function matches({ record }) {
  return JSON.stringify(record).toLowerCase().includes(document.getElementById("search").value.toLowerCase());
}

function sift() {
  for (const one of records) {
    one.row.hidden = !matches(one);
    if (one.row.hidden) one.detail.hidden = true;
  }
}

function add(record) {
  const [row, detail] = document.getElementById("tapped-record").content.cloneNode(true).children;
  const place = `${record.stream}:${record.sequence}`;
  const one = { record, before: fields(record.before), after: record.after && fields(record.after), row, detail };
  const put = (selector, text) => { detail.querySelector(selector).textContent = text; };
  const button = row.querySelector("button");
  button.textContent = place;
  button.onclick = () => { detail.hidden = !detail.hidden; button.setAttribute("aria-expanded", String(!detail.hidden)); };
  row.children[1].textContent = `${record.stage}: ${record.outcome.replaceAll("_", " ")}`;
  put(".reason", record.reason ?? (record.messages ?? []).map((message) => `→ ${message.topic}`).join(" "));
  put(".before", JSON.stringify(record.before, null, 2));
  put(".after", JSON.stringify(record.after, null, 2));
  const route = decodeURIComponent(form.dataset.tap.split("/").pop());
  detail.querySelector("a").href = `/sandbox?${new URLSearchParams({ route, at: place })}`;
  detail.querySelector("[data-copy]").onclick = (event) => copy(event.target, JSON.stringify(record, null, 2));
  records.unshift(one);
  fill(one);
  offer(one);
  row.hidden = !matches(one);
  list.prepend(row, detail);
  records.splice(KEPT).forEach((old) => { old.row.remove(); old.detail.remove(); });
}

/** Watch a route: records are put on top, the oldest of many go. */
function watch() {
  const asked = new URLSearchParams([...new FormData(form)].filter(([, text]) => text));
  tapping?.close();
  list.replaceChildren();
  chooser.replaceChildren(chooser.firstElementChild);
  [records, columns] = [[], new Map()];
  shown.hidden = false;
  document.getElementById("last").hidden = true;
  drawHead();
  tapping = new EventSource(`${form.dataset.tap}?${asked}`);
  const stop = (text) => { tapping.close(); pause.hidden = true; status.textContent = text; };
  let paused = false;
  let missed = 0;
  const tell = () => { status.textContent = paused ? `Paused; ${missed} skipped.` : "Watching."; };
  pause.hidden = false;
  pause.textContent = "Pause";
  pause.onclick = () => { paused = !paused; missed = 0; pause.textContent = paused ? "Resume" : "Pause"; tell(); };
  tapping.onopen = tell;
  tapping.onerror = () => stop("The route cannot be watched like that: check the stage and the condition.");
  tapping.addEventListener("problem", (event) => stop(JSON.parse(event.data).detail));
  tapping.addEventListener("record", (event) => {
    if (paused) { missed += 1; tell(); } else add(JSON.parse(event.data));
  });
}

/** The records that the search shows, as JSON lines, the oldest first. */
const lines = () => records.filter(matches).map(({ record }) => JSON.stringify(record)).reverse().join("\n");

document.getElementById("search").addEventListener("input", sift);
document.querySelector("[data-copy-all]").addEventListener("click", (event) => copy(event.target, lines()));
document.querySelector("[data-download]").addEventListener("click", () => {
  const href = URL.createObjectURL(new Blob([`${lines()}\n`], { type: "application/x-ndjson" }));
  Object.assign(document.createElement("a"), { href, download: "records.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
});
form.addEventListener("submit", (event) => { event.preventDefault(); watch(); });
