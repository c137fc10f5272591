// The feed of a subscription, live.

const KEPT = 100;

function rowOf(message) {
  const row = document.createElement("tr");
  const texts = [["Topic", message.topic], ["Value", message.value ?? message.valueBase64 ?? ""], ["Time", message.timestamp ?? ""]];
  row.append(Object.assign(document.createElement("th"), { scope: "row", textContent: message.cursor }));
  for (const [name, text] of texts) {
    const cell = document.createElement("td");
    cell.dataset.name = name;
    cell.append(Object.assign(document.createElement("code"), { textContent: text }));
    row.append(cell);
  }
  return row;
}

function follow(form) {
  const section = form.closest("section");
  const list = section.querySelector("tbody");
  const status = form.querySelector("[role=status]");
  const stop = form.querySelector("[data-stop]");
  const feed = new EventSource(`${form.dataset.feed}&${new URLSearchParams(new FormData(form))}`);
  const end = (text) => { feed.close(); stop.hidden = true; status.textContent = text; };
  list.replaceChildren();
  section.querySelector(".scroll").hidden = false;
  stop.hidden = false;
  stop.onclick = () => end("Stopped.");
  feed.onopen = () => { status.textContent = "Following."; };
  feed.onerror = () => end("The feed cannot be followed: check the cursor.");
  feed.addEventListener("message", (event) => {
    list.prepend(rowOf(JSON.parse(event.data)));
    while (list.children.length > KEPT) list.lastElementChild.remove();
  });
  for (const kind of ["end", "problem"]) feed.addEventListener(kind, (event) => end(JSON.parse(event.data).detail));
  return feed;
}

for (const form of document.querySelectorAll("form[data-feed]")) {
  let feed = null;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    feed?.close();
    feed = follow(form);
  });
}
