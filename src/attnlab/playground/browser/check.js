// A native check box inside its label, so that it has a name.
export function render({ model }) {
  const label = document.createElement("label");
  label.className = "check";
  const input = document.createElement("input");
  input.type = "checkbox";
  label.append(input, model.label);
  const show = () => { input.checked = model.value; };
  input.addEventListener("change", () => { model.value = input.checked; });
  model.on("value", show);
  show();
  return label;
}
