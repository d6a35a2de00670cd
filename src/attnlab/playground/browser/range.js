// A native slider over a list of words: keyboard, touch and screen readers come with it.
const PAUSE = 15; // ms without movement before the server is told

export function render({ model }) {
  const label = document.createElement("label");
  const name = document.createElement("span");
  const value = document.createElement("span"); // an output would take the label for itself
  value.className = "value";
  value.setAttribute("aria-hidden", "true"); // the slider says it
  const input = document.createElement("input");
  input.type = "range";
  input.min = 0;
  label.append(name, value, input);

  const say = () => {
    value.textContent = model.words[input.value] ?? "";
    input.setAttribute("aria-valuetext", value.textContent);
  };
  const show = () => {
    name.textContent = model.label;
    input.max = model.words.length - 1;
    input.value = model.index;
    input.disabled = model.unused;
    say();
  };
  let timer;
  input.addEventListener("input", () => {
    say();
    clearTimeout(timer);
    timer = setTimeout(() => { model.index = Number(input.value); }, PAUSE);
  });
  for (const property of ["label", "words", "index", "unused"]) model.on(property, show);
  show();
  return label;
}
