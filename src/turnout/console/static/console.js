// Dynamic parts of the pages: fragments that follow events, forms that send JSON, and previews during input.

const EVERY = 5000;
const TOGETHER = 400;
/** Counts are fetched this much later than they change, and ten times the duration of a fetch later: a thousand routes
 * report theirs all the time. */
const COUNTS = 1000;
const SHARE = 10;

const headers = { "Content-Type": "application/json", Accept: "text/html, application/json" };

const drawn = new WeakMap();

/** Put HTML of this server into an element, and leave open what was open and the focus where it was. */
function show(element, html) {
  // Equal parts are kept, with the user's selection in them; so are those under a button that is held down.
  if (drawn.get(element) === html || element.querySelector(":active")) return;
  drawn.set(element, html);
  const open = [...element.querySelectorAll("details[open][id]")].map((one) => one.id);
  const closed = [...element.querySelectorAll("details:not([open])[id]")].map((one) => one.id);
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...element.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  element.innerHTML = html;
  open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  closed.forEach((id) => document.getElementById(id)?.removeAttribute("open"));
  [...element.querySelectorAll(".scroll")].forEach((one, place) => { one.scrollLeft = scrolled[place] ?? 0; });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  element.dispatchEvent(new Event("shown", { bubbles: true }));
}

const costs = new WeakMap();

async function refresh(element) {
  const begun = performance.now();
  try {
    const response = await fetch(element.dataset.live, { headers: { Accept: "application/json" } });
    if (response.status === 401) location.reload();
    if (response.ok) show(element, await response.text());
  } catch {
    // The server is unreachable: the next event or the next fetch shows its state.
  }
  costs.set(element, performance.now() - begun);
}

function follow(elements) {
  const waiting = new Map();
  const soon = (element, delay = TOGETHER) => {
    const before = waiting.get(element);
    const due = performance.now() + delay;
    if (document.hidden || (before && before.due <= due)) return;
    clearTimeout(before?.timer);
    const timer = setTimeout(() => { waiting.delete(element); refresh(element); }, delay);
    waiting.set(element, { due, timer });
  };
  const counted = (element) => soon(element, Math.max(COUNTS, SHARE * (costs.get(element) ?? 0)));
  const heard = (event) => {
    const { route } = JSON.parse(event.data);
    const concerned = elements.filter((one) => !one.dataset.of || one.dataset.of === route);
    if (event.type !== "route.progress") concerned.forEach((one) => soon(one));
    else concerned.filter((one) => !("slow" in one.dataset)).forEach(counted);
  };
  const events = new EventSource("/v1/events");
  for (const kind of ["state", "version", "mistakes", "pending", "offsets", "removed", "progress"]) {
    events.addEventListener(`route.${kind}`, heard);
  }
  // Fragments that take long to render, as a month of counts, are requested less often.
  setInterval(() => elements.forEach((one) => soon(one, Math.max(TOGETHER, SHARE * (costs.get(one) ?? 0)))), EVERY);
  document.addEventListener("visibilitychange", () => elements.forEach((one) => soon(one)));
}

/** The fields of a form as JSON; `data-as` is the type of a field's text. */
function body(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    const text = field.type === "checkbox" ? field.checked : field.value;
    if (field.dataset.as === "lines") values[field.name] = text.split("\n").map((line) => line.trim()).filter(Boolean);
    else if (field.dataset.as === "pairs") values[field.name] = pairs(text);
    else if (field.dataset.as === "place") values[field.name] = place(text.trim());
    else if (field.dataset.as === "boolean") values[field.name] = text === "true";
    else if (field.dataset.as === "number") values[field.name] = Number(text);
    else values[field.name] = text;
  }
  return values;
}

/** A start: a sequence, an object with one for each stream or topic, a word or a time. */
function place(text) {
  if (/^\d+$/.test(text)) return Number(text);
  try {
    return text.startsWith("{") ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}

function pairs(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => {
    const [name, ...rest] = line.split("=");
    return [name.trim(), rest.join("=").trim()];
  }));
}

async function problemOf(response) {
  try {
    const { detail, mistakes } = await response.json();
    return mistakes?.length ? mistakes.map((one) => `${one.path}: ${one.problem}`).join("\n") : detail;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

/** Show the fragment in a response; where the server answers with something else, its problem as a sentence. */
async function showAnswer(target, response, quietly = false) {
  if (response.headers.get("Content-Type")?.startsWith("text/html")) {
    show(target, await response.text());
    if (!quietly) target.querySelectorAll("form[data-at-once]").forEach((form) => ask(form));
    return;
  }
  drawn.delete(target);
  target.textContent = await problemOf(response);
}

async function send(form, button) {
  const output = form.querySelector("output");
  if (output) output.textContent = "";
  if (button) button.disabled = true;
  try {
    const seen = form.dataset.ifMatch ? { "If-Match": `"${form.dataset.ifMatch}"` } : {};
    const response = await fetch(form.getAttribute("action"), { method: form.dataset.json, headers: { ...headers, ...seen, Accept: "application/json" }, body: JSON.stringify(body(form)) });
    if (!response.ok) {
      if (output) output.textContent = await problemOf(response);
    } else if (form.dataset.then === "reload") location.reload();
    else if (form.dataset.then === "refresh") document.querySelectorAll("[data-live]").forEach(refresh);
    else location.assign(form.dataset.then);
  } catch {
    if (output) output.textContent = "The server does not answer.";
  } finally {
    if (button) button.disabled = false;
  }
}

const asked = new WeakMap();

/** Ask with a form and show the answer; one sent *quietly*, during input, shows no problem. */
async function ask(form, quietly = false) {
  const target = document.querySelector(form.dataset.fragment);
  const button = form.querySelector("button:not([type=button])");
  const turn = {};
  asked.set(form, turn);
  button.disabled = true;
  target.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(form.getAttribute("action"), { method: "POST", headers, body: JSON.stringify(body(form)) });
    if (asked.get(form) !== turn) return;
    if (response.ok || !quietly) await showAnswer(target, response, quietly);
    else show(target, "");
  } catch {
    drawn.delete(target);
    target.textContent = "The server does not answer.";
  } finally {
    if (asked.get(form) === turn) {
      button.disabled = false;
      target.removeAttribute("aria-busy");
    }
  }
}

/** Add a test to the condition in a field, as if it were typed there. */
async function extend(form) {
  const field = document.querySelector(form.dataset.builder);
  const target = document.querySelector(form.dataset.into);
  try {
    const response = await fetch(form.getAttribute("action"), { method: "POST", headers, body: JSON.stringify({ ...body(form), text: field.value }) });
    if (!response.ok) return await showAnswer(target, response);
    field.value = (await response.json()).text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  } catch {
    drawn.delete(target);
    target.textContent = "The server does not answer.";
  }
}

/** Copy a text; the clipboard is there for pages of this machine and over TLS alone. */
export async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "The browser does not allow it";
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.json && !form.dataset.fragment && !form.dataset.builder) return;
  event.preventDefault();
  clearTimeout(timers.get(form));
  if (form.dataset.confirm && !window.confirm(form.dataset.confirm)) return;
  if (form.dataset.builder) extend(form);
  else if (form.dataset.json) send(form, event.submitter ?? form.querySelector("button"));
  else ask(form);
});

// A button that copies what an address of the interface answers.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy-from]");
  if (!button) return;
  const response = await fetch(button.dataset.copyFrom).catch(() => null);
  if (response?.ok) copy(button, JSON.stringify(await response.json(), null, 2));
  else button.textContent = response ? await problemOf(response) : "The server does not answer.";
});

// A preview of the meaning of a field's text, during input.
const timers = new WeakMap();
document.addEventListener("input", (event) => {
  const field = event.target;
  if (!field.dataset.preview) return;
  clearTimeout(timers.get(field));
  timers.set(field, setTimeout(async () => {
    const target = document.querySelector(field.dataset.into);
    try {
      const response = await fetch(`${field.dataset.preview}?${new URLSearchParams({ [field.dataset.previewName ?? field.name]: field.value })}`);
      await showAnswer(target, response);
    } catch {
      drawn.delete(target);
      target.textContent = "";
    }
  }, TOGETHER));
});

// A form that is sent during input: text that cannot be read yet gets no answer.
document.addEventListener("input", (event) => {
  const mirror = event.target.dataset.mirror && document.querySelector(event.target.dataset.mirror);
  if (mirror) {
    mirror.value = event.target.value;
    mirror.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const form = event.target.closest("form[data-typed]");
  if (!form) return;
  clearTimeout(timers.get(form));
  timers.set(form, setTimeout(() => { if (form.checkValidity()) ask(form, true); }, 2 * TOGETHER));
});

document.querySelectorAll("form[data-at-once]").forEach((form) => ask(form));

// The editor is large: pages load it only with a field to edit.
for (const field of document.querySelectorAll("textarea.file")) {
  const around = field.closest("details:not([open])");
  const load = () => import("./editor.js");
  if (around) around.addEventListener("toggle", load, { once: true });
  else load();
}

const live = [...document.querySelectorAll("[data-live]")];
if (live.length) follow(live);
