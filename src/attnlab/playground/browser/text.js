// Text of the page. The server makes the HTML, and escapes what is not its own in it.
export function render({ model }) {
  const root = document.createElement("div");
  const show = () => { root.innerHTML = model.html; };
  model.on("html", show);
  show();
  return root;
}
