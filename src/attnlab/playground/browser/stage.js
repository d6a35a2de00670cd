// The stage: says what is happening in the frame shown, draws it, plays, steps and scrubs. The
// server sends whole runs; frames are drawn here, and it is not told which.
const RATES = [2, 5, 10, 20, 40]; // frames a second
const TRACES = [
  { name: "loss", title: "loss", log: true },
  { name: "entropy", title: "entropy (nats)", log: false },
  { name: "common", title: "mass on common tokens", log: false },
];

const button = (text, name) =>
  element("button", { type: "button", "aria-label": name, title: name }, text);

// The values of all given arrays that an axis can show, from the least to the largest.
const extent = (arrays, positive) => {
  let [low, high] = [Infinity, -Infinity];
  for (const array of arrays) {
    for (const value of array) {
      if (!Number.isFinite(value) || (positive && value <= 0)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return low <= high ? [low, high] : [0.1, 1];
};

export function render({ model }) {
  const story = element("p", { class: "story" });
  const other = element("p", { class: "story other" });
  const back = button("◀", "one frame back");
  const play = button("▶ Play", "play");
  play.className = "play";
  const forth = button("▶", "one frame on");
  const scrub = element("input", { type: "range", min: 0, "aria-label": "time" });
  const now = element("output");
  const pace = element("select", { "aria-label": "speed, frames a second" });
  for (const rate of RATES) pace.add(new Option(`${rate} / s`, rate, rate === 10, rate === 10));
  const legend = element("div");
  const panels = element("div", { class: "panels" });
  const traces = TRACES.map((trace) => new Trace(trace, (x) => go(nearest(model.scene.runs.a.x, x))));
  const below = element("div", { class: "traces" }, ...traces.map((trace) => trace.root));
  const note = element("div");
  const root = element("div", {},
    element("section", { "aria-label": "Time" }, story, other,
      element("div", { class: "bar" }, back, play, forth, scrub, now, pace)),
    legend, panels, below, note);

  const charts = { a: [], b: [] };
  let theory = {}; // of the runs shown
  let frame = 0;
  let length = 0; // in frames
  let timer = null;
  const last = () => Math.max(length - 1, 0);

  // -- new runs, and what the theory says of them -------------------------------------------------

  const fillCharts = () => {
    const { runs, limits } = model.scene;
    for (const [name, kept] of Object.entries(charts)) {
      const classes = runs[name]?.classes ?? [];
      while (kept.length < classes.length) kept.push(new Bars(`${name} ${kept.length}`));
      kept.length = classes.length;
      classes.forEach((of, i) => kept[i].fill({ ...of, run: runs.b ? name : "" }, limits));
    }
    // A's classes beside B's
    const order = charts.a.flatMap((chart, i) => (charts.b[i] ? [chart, charts.b[i]] : [chart]));
    panels.replaceChildren(...order.map((chart) => chart.root));
  };

  const fillTheory = () => {
    for (const [name, kept] of Object.entries(charts)) {
      kept.forEach((chart, i) => { chart.predicted = theory[name]?.predicted[i] ?? null; });
    }
  };

  const fillTraces = () => {
    const { runs, limits } = model.scene;
    const [low, high] = extent(Object.values(runs).map((run) => run.x), true);
    for (const trace of traces) {
      const lines = Object.fromEntries(
        Object.entries(runs).map(([name, run]) => [name, { x: run.x, y: run[trace.name] }]),
      );
      if (theory.a?.[trace.name]) lines.theory = { x: runs.a.x, y: theory.a[trace.name] };
      let [bottom, top] = [0, trace.name === "entropy" ? limits.entropy : 1];
      if (trace.log) {
        [bottom, top] = extent(Object.values(lines).map((line) => line.y), true);
        [bottom, top] = [bottom / 1.15, top * 1.15];
      }
      const { clock } = runs.a;
      trace.fill(lines, { low, high, bottom, top }, { clock, marks: theory.a?.marks ?? [] });
    }
  };

  const lay = () => {
    const all = [...charts.a, ...charts.b, ...traces];
    const widths = all.map((chart) => chart.root.clientWidth); // all read before any is written
    all.forEach((chart, i) => { if (widths[i] > 0) chart.lay(widths[i]); });
    return all.length > 0 && widths.every((width) => width > 0);
  };

  // -- one frame ----------------------------------------------------------------------------------

  const show = () => {
    if (length === 0 || !lay()) return; // nothing came yet, or the page is not laid out yet
    const { a, b } = model.scene.runs;
    scrub.max = last();
    scrub.value = frame;
    now.textContent = a.words[frame];
    scrub.setAttribute("aria-valuetext", now.textContent);
    story.textContent = (b ? "A: " : "") + a.stories[frame];
    other.textContent = b ? `B: ${b.stories[nearest(b.x, a.x[frame])]}` : "";
    for (const chart of charts.a) chart.move(frame);
    for (const chart of charts.b) chart.move(nearest(b.x, a.x[frame]));
    for (const trace of traces) trace.move(a.x[frame]);
  };

  const go = (wanted) => {
    frame = Math.max(0, Math.min(wanted, last()));
    show();
  };

  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
    play.setAttribute("aria-label", "play");
  };
  const start = () => {
    if (frame >= last()) go(0);
    timer = setInterval(() => {
      if (frame >= last()) stop();
      else go(frame + 1);
    }, 1000 / Number(pace.value));
    play.textContent = "❚❚ Pause";
    play.setAttribute("aria-label", "pause");
  };
  const toggle = () => (timer === null ? start() : stop());
  play.addEventListener("click", toggle);
  back.addEventListener("click", () => { stop(); go(frame - 1); });
  forth.addEventListener("click", () => { stop(); go(frame + 1); });
  scrub.addEventListener("input", () => { stop(); go(Number(scrub.value)); });
  pace.addEventListener("change", () => { if (timer !== null) { stop(); start(); } });
  // Space plays from anywhere on the page that has no use for it.
  const onKey = (event) => {
    if (event.key === " " && event.target === document.body) { event.preventDefault(); toggle(); }
  };
  document.addEventListener("keydown", onKey);

  const onScene = () => {
    if (model.scene.runs === undefined) return;
    const place = length > 1 ? frame / (length - 1) : 1; // stay there, the end at the end
    length = model.scene.runs.a.x.length;
    legend.innerHTML = model.scene.legend;
    theory = {}; // that of another run
    fillCharts();
    fillTraces();
    go(Math.round(place * last()));
  };
  const onTheory = () => {
    note.innerHTML = model.theory.note ?? "";
    if (!model.theory.a && !model.theory.b) return; // it says nothing, or nothing yet
    theory = model.theory;
    fillTheory();
    fillTraces();
    show();
  };
  model.on("scene", onScene);
  model.on("theory", onTheory);
  const watch = new ResizeObserver(show);
  watch.observe(root);
  model.on("remove", () => {
    stop();
    watch.disconnect();
    document.removeEventListener("keydown", onKey);
  });
  onScene();
  onTheory();
  return root;
}
