// Attention of one class as bars over its tokens, and below them its logits.
const HEIGHT = { attention: 170, gap: 16, logit: 84 };
const MARGIN = { left: 52, right: 8, top: 8 };
const MOST_NAMES = 24; // that fit under the bars
const LETTER = 6.4; // pixels, about

const shortened = (name) => (name.length <= 12 ? name : `${name.slice(0, 11)}…`);

class Bars {
  constructor(name) {
    this.drawing = shape("svg", { role: "img" });
    this.title = element("h3");
    this.tip = element("div", { class: "tip", hidden: "" });
    this.note = element("p", { class: "note" }); // empty where all tokens are shown
    this.root = element(
      "figure", { "data-chart": name }, this.title, this.note, this.drawing, this.tip,
    );
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerdown", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => { this.pointed = null; this.tell(); });
    this.pointed = null;
    this.shown = []; // the attention that is drawn
  }

  // `of`: titles, facts and frames of a class; `limits`: how far attention and logits go.
  fill(of, limits) {
    Object.assign(this, { of, limits, predicted: null });
    this.title.replaceChildren(
      ...(of.run ? [element("span", { class: of.run }, of.run.toUpperCase()), " "] : []),
      of.title,
    );
    this.note.textContent = of.note;
    this.drawing.setAttribute(
      "aria-label", `${of.title}: bars of attention over its tokens, and of their logits`,
    );
    if (this.pointed >= of.token.length) this.pointed = null;
  }

  lay(width) {
    const { token, probability } = this.of;
    const around = JSON.stringify([width, this.limits, token, probability]);
    if (around === this.around) return; // new axes take longer than new bars
    Object.assign(this, { around, width });
    const size = this.of.token.length;
    const { left, top } = MARGIN;
    const right = width - MARGIN.right;
    const bottom = top + HEIGHT.attention;
    const under = bottom + HEIGHT.gap;
    const end = under + HEIGHT.logit;
    const { top: most, low, high } = this.limits;
    this.place = linear(0, most, bottom, top);
    this.lower = linear(low, high, end, under);
    this.pitch = (right - left) / size;
    const names = Array.from(this.of.token, shortened);
    const height = end + 12 + Math.ceil(LETTER * Math.max(...names.map((name) => name.length)));
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("height", height);
    const axes = [
      ...verticalAxis({ ticks: linearTicks(0, most, 4), place: this.place, left, right,
        name: "attention c", middle: (top + bottom) / 2 }),
      ...verticalAxis({ ticks: linearTicks(low, high, 3), place: this.lower, left, right,
        name: "logit z", middle: (under + end) / 2 }),
      shape("path", { class: "axis", d: `M${left} ${at(this.lower(0))}H${right}` }),
    ];
    const apart = Math.ceil(size / MOST_NAMES);
    for (let i = 0; i < size; i += apart) {
      const turned = `translate(${at(this.middle(i) + 4)} ${end + 6}) rotate(-90)`;
      axes.push(shape("text", { class: "right", transform: turned }, names[i]));
    }
    const starts = this.tokens((i) => this.dash(i, this.of.probability[i]));
    this.marker = shape("rect", { class: "pointed", y: top, height: end - top, width: 0 });
    this.paths = Object.fromEntries(
      ["common", "distinct", "predicted"].map((kind) => [kind, shape("path", { class: kind })]),
    );
    this.drawing.replaceChildren(
      ...axes, this.marker, this.paths.common, this.paths.distinct,
      shape("path", { class: "start", d: starts }), this.paths.predicted,
    );
  }

  // Draw a frame.
  move(frame) {
    const { token, common, attention, logit } = this.of;
    const size = token.length;
    this.frame = Math.min(frame, attention.length / size - 1);
    const from = this.frame * size;
    this.shown = Array.from(token, (_, i) => attention[from + i]);
    const bar = (i) =>
      this.bar(i, this.place, attention[from + i]) + this.bar(i, this.lower, logit[from + i]);
    this.paths.common.setAttribute("d", this.tokens((i) => (common[i] ? bar(i) : "")));
    this.paths.distinct.setAttribute("d", this.tokens((i) => (common[i] ? "" : bar(i))));
    this.paths.predicted.setAttribute(
      "d", this.predicted ? this.tokens((i) => this.diamond(i, this.predicted[from + i])) : "",
    );
    this.tell();
  }

  tokens(draw) {
    return Array.from(this.of.token, (_, i) => draw(i)).join("");
  }

  middle(i) {
    return MARGIN.left + (i + 0.5) * this.pitch;
  }

  bar(i, place, value) {
    const half = 0.43 * this.pitch;
    const zero = at(place(0));
    return `M${at(this.middle(i) - half)} ${zero}V${place(value).toFixed(2)}` +
      `h${at(2 * half)}V${zero}Z`;
  }

  dash(i, value) {
    const half = Math.min(0.43 * this.pitch, 6);
    return `M${at(this.middle(i) - half)} ${at(this.place(value))}h${at(2 * half)}`;
  }

  // A diamond; or a triangle at the upper edge, where the value is beyond it.
  diamond(i, value) {
    if (value > this.limits.top) return `M${at(this.middle(i))} ${MARGIN.top - 5}l4 6h-8Z`;
    return `M${at(this.middle(i))} ${at(this.place(value) - 4.5)}l3 4.5l-3 4.5l-3 -4.5Z`;
  }

  point(event) {
    const box = this.drawing.getBoundingClientRect();
    const i = Math.floor((event.clientX - box.left - MARGIN.left) / this.pitch);
    this.pointed = i >= 0 && i < this.of.token.length ? i : null;
    this.tell();
  }

  // What is known of the token under the pointer.
  tell() {
    const i = this.pointed;
    this.tip.hidden = i === null;
    this.marker.setAttribute("width", i === null ? 0 : at(this.pitch));
    if (i === null) return;
    const { token, common, probability, claimed, actual, logit } = this.of;
    this.marker.setAttribute("x", at(this.middle(i) - this.pitch / 2));
    const rows = [
      ["token", `${token[i]} (${common[i] ? "common" : "distinct"})`],
      ["P(l|n)", probability[i].toFixed(4)],
      ["attention now", this.shown[i].toFixed(4)],
      ["logit now", logit[this.frame * token.length + i].toFixed(3)],
      ["the theory claims", claimed[i]],
      ["by the end", actual[i]],
    ];
    this.tip.replaceChildren(
      ...rows.map(([name, value]) => element("div", {}, element("b", {}, `${name} `), value)),
    );
    const leftward = this.middle(i) > this.width / 2;
    this.tip.style.left = leftward ? "auto" : `${at(this.middle(i) + 12)}px`;
    this.tip.style.right = leftward ? `${at(this.width - this.middle(i) + 12)}px` : "auto";
  }
}
