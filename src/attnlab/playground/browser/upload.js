// A file of text, refused here when it is too large, so that it never travels.
export function render({ model }) {
  const root = document.createElement("div");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const said = document.createElement("p");
  said.setAttribute("role", "alert");
  input.type = "file";
  input.accept = ".yaml,.yml,.json";
  label.className = "file";
  label.append(model.label, input);
  input.addEventListener("change", async () => {
    const file = input.files[0];
    if (file === undefined) return;
    said.textContent = "";
    if (file.size > model.most) {
      said.textContent =
        `${file.name} has ${file.size.toLocaleString()} bytes; the playground takes up to ` +
        `${model.most.toLocaleString()}. Use attnlab simulate for larger classes.`;
    } else {
      model.send_msg({ name: file.name, text: await file.text() });
    }
    input.value = ""; // the same file may be chosen again
  });
  root.append(label, said);
  return root;
}
