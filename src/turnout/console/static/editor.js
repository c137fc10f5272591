// The text of a route: numbers beside its lines, marks on those with mistakes, and blocks that stay aligned.

const checked = document.getElementById("checked");

/** Lines with mistakes, as the last check has found them. */
const wrong = () => new Set([...checked.querySelectorAll("[data-line]")].map((link) => Number(link.dataset.line)));

function number(field, gutter) {
  const marked = wrong();
  const lines = field.value.split("\n").map((_, place) => Object.assign(document.createElement("span"), {
    textContent: `${place + 1}\n`,
    className: marked.has(place + 1) ? "bad" : "",
  }));
  gutter.replaceChildren(...lines);
  gutter.scrollTop = field.scrollTop;
}

/** A new line begins as far in as the one before; behind a key without a value, two further. */
function indent(event) {
  if (event.key !== "Enter" || event.isComposing || event.ctrlKey || event.metaKey) return;
  const field = event.target;
  const line = field.value.slice(0, field.selectionStart).split("\n").at(-1);
  const before = line.match(/^ */)[0];
  event.preventDefault();
  // Inserted as if typed, so that it can be undone.
  document.execCommand("insertText", false, `\n${before}${/:\s*$/.test(line) ? "  " : ""}`);
}

for (const editor of document.querySelectorAll(".editor")) {
  const field = editor.querySelector("textarea");
  const gutter = editor.querySelector(".lines");
  const draw = () => number(field, gutter);
  field.addEventListener("input", draw);
  field.addEventListener("scroll", () => { gutter.scrollTop = field.scrollTop; });
  field.addEventListener("keydown", indent);
  new MutationObserver(draw).observe(checked, { childList: true, subtree: true });
  draw();
}
