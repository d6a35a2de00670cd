// The transport: says what is happening in the frame shown, plays, steps and scrubs. Frames are in
// the browser already, in sources that are found by name; the server is not told.
const RATES = [2, 5, 10, 20, 40]; // frames a second
const COLUMNS = ["attention", "logit", "predicted"];

// The index of the value nearest to x, on a logarithmic axis.
const nearest = (values, x) => {
  let best = 0;
  for (let i = 1; i < values.length; i++) {
    if (Math.abs(Math.log(values[i] / x)) < Math.abs(Math.log(values[best] / x))) best = i;
  }
  return best;
};

// Put bars and cursors at a frame of run A, and run B at the moment nearest to it.
const move = (page, frame) => {
  const named = (name) => page.get_model_by_name(name);
  const x = named("traces a").data.x[frame];
  if (x === undefined) return;
  for (const run of ["a", "b"]) {
    const at = run === "a" ? frame : nearest(named("traces b").data.x, x);
    for (let i = 0, bars; (bars = named(`bars ${run} ${i}`)); i++) {
      const size = bars.data.x.length;
      const frames = bars.tags[0].data;
      for (const column of COLUMNS) {
        bars.data[column] = frames[column].slice(at * size, (at + 1) * size);
      }
      bars.change.emit();
    }
  }
  for (let i = 0, cursor; (cursor = named(`cursor ${i}`)); i++) {
    cursor.setv({ location: x }, { sync: false });
  }
};

const button = (text, name) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", name);
  made.title = name;
  return made;
};

export function render({ model, data, el }) {
  const root = document.createElement("section");
  root.setAttribute("aria-label", "Time");
  const story = document.createElement("p");
  story.className = "story";
  const other = document.createElement("p");
  other.className = "story other";
  const bar = document.createElement("div");
  bar.className = "bar";
  const back = button("◀", "one frame back");
  const play = button("▶ Play", "play");
  play.className = "play";
  const forth = button("▶", "one frame on");
  const scrub = document.createElement("input");
  scrub.type = "range";
  scrub.min = 0;
  scrub.setAttribute("aria-label", "time");
  const now = document.createElement("output");
  const pace = document.createElement("select");
  pace.setAttribute("aria-label", "speed, frames a second");
  for (const rate of RATES) pace.add(new Option(`${rate} / s`, rate, rate === 10, rate === 10));
  bar.append(back, play, forth, scrub, now, pace);
  root.append(story, other, bar);

  let timer = null;
  const last = () => Math.max(model.words.length - 1, 0);
  const show = () => {
    const frame = Math.min(data.frame, last());
    scrub.max = last();
    scrub.value = frame;
    now.textContent = model.words[frame] ?? "";
    scrub.setAttribute("aria-valuetext", now.textContent);
    story.textContent = (model.other.length ? "A: " : "") + (model.stories[frame] ?? "");
    other.textContent = model.other.length ? `B: ${model.other[frame] ?? ""}` : "";
    if (data.document) move(data.document, frame);
  };
  const go = (frame) => {
    const within = Math.max(0, Math.min(frame, last()));
    if (within === data.frame) show();
    else data.setv({ frame: within }, { sync: false }); // which shows it
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
    play.setAttribute("aria-label", "play");
  };
  const start = () => {
    if (data.frame >= last()) go(0);
    timer = setInterval(() => {
      if (data.frame >= last()) stop();
      else go(data.frame + 1);
    }, 1000 / Number(pace.value));
    play.textContent = "❚❚ Pause";
    play.setAttribute("aria-label", "pause");
  };
  const toggle = () => (timer === null ? start() : stop());
  play.addEventListener("click", toggle);
  back.addEventListener("click", () => { stop(); go(data.frame - 1); });
  forth.addEventListener("click", () => { stop(); go(data.frame + 1); });
  scrub.addEventListener("input", () => { stop(); go(Number(scrub.value)); });
  pace.addEventListener("change", () => { if (timer !== null) { stop(); start(); } });
  // Space plays from anywhere on the page that has no use for it.
  const onKey = (event) => {
    if (event.key === " " && event.target === document.body) { event.preventDefault(); toggle(); }
  };
  document.addEventListener("keydown", onKey);
  model.on("remove", () => { stop(); document.removeEventListener("keydown", onKey); });

  let length = model.words.length;
  model.on("version", () => { // new frames: stay at the same place in time, the end at the end
    const place = length > 1 ? data.frame / (length - 1) : 1;
    length = model.words.length;
    go(Math.round(place * last()));
  });
  model.on("frame", show); // a click in a trace sets it too
  show();
  return root;
}
