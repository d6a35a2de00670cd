// A table of numbers to edit: P(token | class), as weights that the server normalises.
export function render({ model }) {
  const root = document.createElement("div");
  root.className = "scroll";
  const show = () => {
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const text of ["token", ...model.classes]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    }
    const body = table.createTBody();
    model.tokens.forEach((token, row) => {
      const line = body.insertRow();
      const cell = document.createElement("th");
      cell.scope = "row";
      cell.textContent = token;
      line.append(cell);
      model.classes.forEach((name, column) => {
        const input = document.createElement("input");
        input.type = "number";
        input.min = 0;
        input.step = "any";
        input.value = model.weights[column][row];
        input.setAttribute("aria-label", `weight of token ${token} in ${name}`);
        input.addEventListener("change", () => {
          model.send_msg({ column, row, weight: Number(input.value) });
        });
        line.insertCell().append(input);
      });
    });
    root.replaceChildren(table);
  };
  model.on("weights", show);
  show();
  return root;
}
