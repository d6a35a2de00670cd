// A button that copies a text; one that begins with "?" is a link to this page.
export function render({ model }) {
  const root = document.createElement("div");
  const button = document.createElement("button");
  button.type = "button";
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  const show = () => { button.textContent = model.label; };
  button.addEventListener("click", async () => {
    const here = window.location.origin + window.location.pathname;
    const text = model.text.startsWith("?") ? here + model.text : model.text;
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "copied";
    } catch { // no clipboard on pages that came over plain http from another machine
      window.prompt("Copy this:", text);
    }
    setTimeout(() => { said.textContent = ""; }, 2000);
  });
  model.on("label", show);
  show();
  root.append(button, said);
  return root;
}
