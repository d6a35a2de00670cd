// What opens on demand: parts of the page, or text. The server makes the HTML, and escapes what is
// not its own in it.
export function render({ model }) {
  const root = document.createElement("details");
  const summary = document.createElement("summary");
  const content = document.createElement("div");
  summary.textContent = model.title;
  root.append(summary, content, ...model.get_child("parts"));
  const show = () => { content.innerHTML = model.html; };
  model.on("html", show);
  show();
  return root;
}
