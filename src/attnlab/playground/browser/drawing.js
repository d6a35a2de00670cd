// Small tools for drawing: elements, scales, ticks, and numbers as text.
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

const shape = (tag, attributes = {}, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== "") made.textContent = text;
  return made;
};

// From values between low and high to places between start and end.
const linear = (low, high, start, end) => {
  const unit = (end - start) / (high - low || 1);
  return (value) => start + (value - low) * unit;
};

const logarithmic = (low, high, start, end) => {
  const straight = linear(Math.log(low), Math.log(high), start, end);
  return (value) => straight(Math.log(value));
};

// Round values between low and high, `most` of them or a few less.
const linearTicks = (low, high, most) => {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((round) => round * power >= 0.999 * rough);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => (first + i) * step);
};

// Powers of ten, with their doubles and halves where there would be few.
const logarithmicTicks = (low, high) => {
  const powers = [];
  for (let p = Math.floor(Math.log10(low)); 10 ** p <= high; p++) powers.push(p);
  const within = (value) => value >= low * 0.999 && value <= high * 1.001;
  const apart = Math.ceil(powers.length / 6);
  const coarse = powers.filter((p) => p % apart === 0).map((p) => 10 ** p).filter(within);
  const fine = powers.flatMap((p) => [1, 2, 5].map((round) => round * 10 ** p)).filter(within);
  if (coarse.length > 2) return coarse;
  return fine.length > 1 ? fine : linearTicks(low, high, 3);
};

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const inWords = (value) => {
  const power = Math.log10(Math.abs(value));
  if (Number.isInteger(power) && Math.abs(power) > 3) {
    const digits = [...String(Math.abs(power))].map((digit) => RAISED[digit]).join("");
    return `10${power < 0 ? "⁻" : ""}${digits}`;
  }
  return String(Number(value.toPrecision(3)));
};

const at = (place) => place.toFixed(1); // a tenth of a pixel is enough

// Grid lines and labels of a vertical axis, with its name beside it.
const verticalAxis = ({ ticks, place, left, right, name = "", middle = 0 }) => {
  const drawn = ticks.flatMap((tick) => [
    shape("path", { class: "grid", d: `M${left} ${at(place(tick))}H${right}` }),
    shape("text", { class: "right", x: left - 5, y: at(place(tick) + 4) }, inWords(tick)),
  ]);
  if (!name) return drawn;
  const turned = `translate(11 ${at(middle)}) rotate(-90)`;
  return [...drawn, shape("text", { class: "middle", transform: turned }, name)];
};

// The index of the value nearest to x, on a logarithmic axis.
const nearest = (values, x) => {
  let best = 0;
  for (let i = 1; i < values.length; i++) {
    if (Math.abs(Math.log(values[i] / x)) < Math.abs(Math.log(values[best] / x))) best = i;
  }
  return best;
};
