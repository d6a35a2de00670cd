// One measure of runs A and B against time on a logarithmic axis, with a cursor and Theorem 4's
// times. A click goes to that moment.
const PLOT = { left: 46, right: 10, top: 24, height: 140, bottom: 38 };

class Trace {
  constructor({ name, title, log }, jump) {
    Object.assign(this, { name, title, log });
    this.drawing = shape("svg", { role: "img", "aria-label": `${title} against time` });
    this.root = element("figure", { "data-trace": name }, this.drawing);
    this.drawing.addEventListener("click", (event) => {
      const box = this.drawing.getBoundingClientRect();
      const { left, right } = PLOT;
      const part = (event.clientX - box.left - left) / (this.width - left - right);
      const { low, high } = this.limits;
      jump(low * (high / low) ** Math.min(Math.max(part, 0), 1));
    });
  }

  // `lines`: {run: {x, y}}, with `theory` among them; `limits`: how far both axes go.
  fill(lines, limits, { clock, marks }) {
    Object.assign(this, { lines, limits, clock, marks });
    this.width = 0; // to be laid out anew
  }

  lay(width) {
    if (width === this.width) return;
    this.width = width;
    const { left, top } = PLOT;
    const right = width - PLOT.right;
    const bottom = top + PLOT.height;
    const { low, high, bottom: least, top: most } = this.limits;
    this.across = logarithmic(low, high, left, right);
    this.up = (this.log ? logarithmic : linear)(least, most, bottom, top);
    const ticks = this.log ? logarithmicTicks(least, most) : linearTicks(least, most, 4);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${bottom + PLOT.bottom}`);
    this.drawing.setAttribute("height", bottom + PLOT.bottom);
    const times = logarithmicTicks(low, high).map((tick) =>
      shape("text", { class: "middle", x: at(this.across(tick)), y: bottom + 15 }, inWords(tick)));
    const marks = this.marks.flatMap((time, i) => (time >= low && time <= high
      ? [shape("path", { class: `mark mark${i}`, d: `M${at(this.across(time))} ${top}V${bottom}` })]
      : []));
    const drawn = Object.entries(this.lines).map(([run, line]) =>
      shape("path", { class: `line ${run}`, d: this.line(line) }));
    this.cursor = shape("path", { class: "cursor" });
    this.drawing.replaceChildren(
      shape("text", { class: "title", x: left, y: 14 }, this.title),
      ...verticalAxis({ ticks, place: this.up, left, right }),
      shape("path", { class: "axis", d: `M${left} ${bottom}H${right}` }),
      ...times, ...marks, ...drawn, this.cursor,
      shape("text", { class: "middle", x: (left + right) / 2, y: bottom + 32 }, this.clock),
    );
  }

  line({ x, y }) {
    let d = "";
    let pen = "M";
    for (let i = 0; i < x.length; i++) {
      const fits = Number.isFinite(y[i]) && (!this.log || y[i] > 0);
      if (fits) d += `${pen}${at(this.across(x[i]))} ${at(this.up(y[i]))}`;
      pen = fits ? "L" : "M";
    }
    return d;
  }

  move(x) {
    const { top, height } = PLOT;
    this.cursor.setAttribute("d", `M${at(this.across(x))} ${top}v${height}`);
  }
}
