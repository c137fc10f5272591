// The text of a route in CodeMirror: numbers, colours, completion from the schema, and mistakes in their lines.
// The form's field stays what is sent; without this script it is the editor.

import {
  EditorView, HighlightStyle, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, completionKeymap, defaultKeymap,
  highlightSpecialChars, history, historyKeymap, indentUnit, keymap, lineNumbers, lintGutter, lintKeymap, setDiagnostics, syntaxHighlighting, tags, yaml,
} from "./vendor/codemirror.js";
import { completionsAt } from "./completion.js";

const SCHEMA = "/fragments/route-schema";

const checked = document.getElementById("checked");
const editors = new Map();
let schema = null;

async function complete(context) {
  schema ??= fetch(SCHEMA).then((response) => (response.ok ? response.json() : Promise.reject(response.status)));
  try {
    const found = completionsAt(context.state.doc.toString(), context.pos, await schema);
    // Where nothing is typed yet, values follow their key at once; names wait to be asked for, or Enter would take one.
    if (!found || (!context.explicit && found.from === context.pos && !found.values)) return null;
    return { from: found.from, options: found.options, validFor: /^(?:- )?[\w$.-]*$/ };
  } catch {
    schema = null;
    return null;
  }
}

const colours = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--link)" },
  { tag: tags.comment, color: "var(--dim)", fontStyle: "italic" },
  { tag: [tags.string, tags.attributeValue], color: "var(--good)" },
  { tag: [tags.keyword, tags.labelName, tags.typeName, tags.meta], color: "var(--warn)" },
]);

const look = EditorView.theme({
  "&": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--dim)", borderRadius: "6px", maxHeight: "70vh" },
  "&.cm-focused": { outline: "3px solid var(--focus)", outlineOffset: "2px" },
  ".cm-scroller": { font: "13px/1.5 ui-monospace, Menlo, Consolas, monospace", minHeight: "420px" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--page)", color: "var(--dim)", borderRight: "1px solid var(--line)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--dim)", font: "13px/1.5 system-ui, sans-serif" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--link)", color: "var(--card)" },
  ".cm-completionDetail": { color: "inherit", fontStyle: "normal" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--bad)" },
}, { dark: matchMedia("(prefers-color-scheme: dark)").matches });

/** The mistakes of the last check, each at the words of its line. */
function diagnostics(state) {
  return [...checked.querySelectorAll("[data-line]")].map((link) => {
    const line = state.doc.line(Math.min(state.doc.lines, Number(link.dataset.line)));
    const from = line.from + line.text.search(/\S|$/);
    const message = link.closest("li").textContent.replace(/^Line \d+: /, "");
    return { from, to: Math.max(from, line.from + line.text.trimEnd().length), severity: "error", message };
  });
}

function edit(field) {
  const host = document.createElement("div");
  host.className = "code-editor";
  // Within a shadow root styles are constructed, not put into the page: the policy of this server allows no others.
  const root = host.attachShadow({ mode: "open" });
  const changed = EditorView.updateListener.of((update) => {
    if (!update.docChanged) return;
    field.value = update.state.doc.toString();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const view = new EditorView({
    doc: field.value,
    root,
    parent: root,
    extensions: [
      lineNumbers(), lintGutter(), highlightSpecialChars(), history(), bracketMatching(), closeBrackets(), yaml(), indentUnit.of("  "), syntaxHighlighting(colours), look, changed,
      autocompletion({ override: [complete], activateOnCompletion: ({ apply, label }) => apply !== label }),
      EditorView.contentAttributes.of({ "aria-label": field.labels[0].textContent, "aria-multiline": "true", tabindex: "0" }),
      // Tab leaves the field, as it leaves any other.
      keymap.of([...closeBracketsKeymap, ...completionKeymap, ...defaultKeymap, ...historyKeymap, ...lintKeymap]),
    ],
  });
  field.before(host);
  field.hidden = true;
  // An empty text is a mistake that the check tells; the browser cannot point at a hidden field.
  field.required = false;
  field.labels[0].addEventListener("click", () => view.focus());
  const mark = () => view.dispatch(setDiagnostics(view.state, diagnostics(view.state)));
  new MutationObserver(mark).observe(checked, { childList: true, subtree: true });
  mark();
  editors.set(`#${field.id}`, view);
}

// A mistake leads to its line in the text.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-line]");
  const view = link && editors.get(link.getAttribute("href"));
  if (!view) return;
  event.preventDefault();
  const { from, to } = view.state.doc.line(Math.min(view.state.doc.lines, Number(link.dataset.line)));
  view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
  view.focus();
});

document.querySelectorAll("textarea.file").forEach(edit);
