/**
 * Experiments, named by what one sees; each with its paper, Scan and Snap where nothing else is said, and
 * with the figure or theorem that it belongs to.
 */
import { TEXT } from "./text.js"

const SGD = { name: "sgd", momentum: 0.9 }
const PLAIN = { name: "sgd", momentum: 0 }

/** Two kinds of sentences, about sport and about the weather, that share their small words. */
export const SPORT_OR_WEATHER = {
  vocabulary: [
    "the", "of", "is", "and", "match", "goal", "team", "coach", "rain", "wind", "cloud", "storm",
    "was", "won", "cold",
  ],
  normalize: true,
  classes: [
    { query: "was", next: "won",
      probs: { the: 10, of: 7, is: 6, and: 5, match: 7, goal: 5, team: 3, coach: 2 } },
    { query: "was", next: "cold",
      probs: { the: 10, of: 7, is: 6, and: 5, rain: 7, wind: 5, cloud: 3, storm: 2 } },
  ],
}
const LOPSIDED = {
  vocabulary: ["the", "today", "goal", "rain", "was", "won", "cold"],
  classes: [
    { query: "was", next: "won", probs: { the: 0.3, today: 0.6, goal: 0.1 } },
    { query: "was", next: "cold", probs: { the: 0.3, today: 0.02, rain: 0.68 } },
  ],
}

/** Two kinds with shared small words, in which one telling word is twice as frequent as the other. */
const TWICE = {
  vocabulary: ["the", "of", "match", "goal", "rain", "wind", "was", "won", "cold"],
  classes: [
    { query: "was", next: "won", probs: { the: 0.2, of: 0.2, match: 0.4, goal: 0.2 } },
    { query: "was", next: "cold", probs: { the: 0.2, of: 0.2, rain: 0.4, wind: 0.2 } },
  ],
}
const NO_NORM = { name: "extended", normalization: "none" }

/** A document; a length of "inf" takes the gradient of the population. */
function run({ classes = SPORT_OR_WEATHER, length = 24, size = 64, steps = 100, optimizer = SGD, motion, ...own }) {
  return {
    task: { name: "sequences", classes, length },
    gradient: length === "inf" ? { name: "population" } : { name: "batches", size },
    motion: motion ?? { name: "steps", steps, optimizer },
    eta_y: 1, eta_z: 2, init: "zero", seeds: [0], record: { geometric: 100 }, ...own,
  }
}

/** Two documents that differ in some settings. */
const both = (settings, changes) => ({ a: run(settings), b: run({ ...settings, ...changes }) })

const FOUR_KINDS = "family:classes=4,queries=1,common=2,distinct=5,common_mass=0.4,vocab_size=200"

/** The words shown where a setting was changed. */
export const OWN = {
  name: "", look: "Your own setting. Everything you see is trained in this page, as you turn it.", source: "",
}

export const EXPERIMENTS = [
  {
    name: "opening", title: "Sport or weather?", source: "Fig. 2",
    look: "Two kinds of sentences share “the”, “of”, “is” and “and”. Nobody tells the model which " +
      "words matter. Watch the shared words fade and “match” and “rain” win.",
    a: run({}),
  },
  {
    name: "slow-decoder", title: "What if the decoder is slow?", source: "Theorem 4, Fig. 6",
    look: "B’s decoder learns ten times more slowly than A’s. It still learns what to answer, but " +
      "attention slows down later, and with less left on shared words.",
    ...both({ classes: "syn-small", eta_y: 10, eta_z: 1, length: "inf", steps: 400 }, { eta_y: 1 }),
  },
  {
    name: "shared", title: "Too many shared words", source: "Theorem 2, Section 6",
    look: "The more is shared, the harder attention has to choose: where nine words in ten are shared (B) " +
      "they fall to a third, where three in ten are (A) hardly anything moves.",
    ...both({ classes: "family:common=6,distinct=4,common_mass=0.3,queries=1", eta_z: 1, length: "inf", steps: 400 },
      { classes: "family:common=6,distinct=4,common_mass=0.9,queries=1" }),
  },
  {
    name: "adam", title: "Adam picks other words", source: "Fig. 5",
    look: "The same data and learning rates: A is trained with SGD, B with Adam. With Adam the most frequent " +
      "words are no longer those that win.",
    ...both({ classes: "syn-small", length: 128, size: 128, eta_y: 0.5, eta_z: 0.5, steps: 200 }, { optimizer: { name: "adam" } }),
  },
  {
    name: "alike", title: "When all words are alike", source: "Theorem 3",
    look: "In A the telling words differ in frequency, and the most frequent gets ahead of the others. " +
      "In B all are equally frequent: they stay equal, and none wins.",
    ...both({ classes: "family:queries=1", eta_y: 2, eta_z: 5, length: "inf", steps: 200 },
      { classes: "family:queries=1,lowest=1" }),
  },
  {
    name: "short", title: "Short sentences are noisy", source: "Lemma 2",
    look: "A sees sentences of 8 words, B of infinitely many. The direction is the same; short " +
      "sentences make the path shake.",
    ...both({ classes: "syn-small", eta_y: 2, length: 8, size: 128, steps: 200 }, { length: "inf" }),
  },
  {
    name: "snap", title: "Scan, then snap", source: "Theorem 4, Fig. 3",
    look: "Up to t₀ (green) attention moves fast; after it, it goes on only with the logarithm of time " +
      "and seems to stand still, while the loss still falls.",
    a: run({ classes: FOUR_KINDS, eta_z: 1, length: "inf", optimizer: PLAIN, steps: 5000 }),
  },
  {
    name: "common-wins", title: "A shared word that wins", source: "Corollary 2, where it stops",
    look: "“today” occurs in both kinds of sentences, but far more often in one. It tells them apart, " +
      "and gains. The theorem is about words that all share alike.",
    a: run({ classes: LOPSIDED, length: "inf", steps: 200 }),
  },
  {
    name: "text", title: "Text: before “the …”", source: "Figs. 7 and 10",
    look: "Words before “the same”, “the class”, “a string” and “a function” in Python’s documentation. " +
      "Nearly all are shared; those that tell one ending from the others gain.",
    a: run({ classes: TEXT, length: 35, size: 128, eta_y: 2, steps: 500 }),
  },
  {
    name: "residual", title: "A shortcut past attention", source: "Section 7",
    look: "B adds the query itself to what the decoder sees (a residual connection). It then needs " +
      "attention less, and shared words keep more of theirs.",
    ...both({ classes: "syn-small", eta_y: 2, eta_z: 5, length: "inf" }, { model: { name: "extended", residual: true } }),
  },
  {
    name: "flow", title: "Does it ever stop?", source: "Theorem 4, Fig. 8",
    look: "Small steps become a flow. Followed to time 10⁶, attention still moves, ever more slowly: " +
      "it never comes to rest.",
    a: run({ classes: FOUR_KINDS, eta_z: 1, length: "inf", motion: { name: "flow", time: 1e6 } }),
  },
  {
    name: "joma", paper: "JoMA", title: "Does it come back?", source: "JoMA, as we know it",
    look: "B adds a small network (an MLP), as JoMA does, the paper’s successor. As we read it, it expects " +
      "attention to open up again in the end. Here B’s snaps and stays; A’s opens up a little.",
    ...both({ length: "inf", steps: 1000 }, { model: { name: "joint", hidden: 16, activation: "relu", scale: 0.1 } }),
  },
  {
    name: "polarisation", paper: "Polarisation", title: "One word takes all", source: "Polarisation, as we know it",
    look: "Nothing normalises what attention reads here. As we know that paper, attention then ends on one " +
      "word, ever more slowly: “match” and “rain” take nearly all of it.",
    a: run({ classes: TWICE, eta_z: 1, length: "inf", optimizer: PLAIN, steps: 5000, model: NO_NORM }),
  },
  {
    name: "max-margin", paper: "Max-margin", title: "When the answers are fixed", source: "Max-margin, as we know it",
    look: "A’s decoder learns, and the frequent “match” and “rain” win. B’s is random and stays so: the word that " +
      "speaks best for the answer wins, however rare it is. This is the rule of max-margin, as we know it.",
    ...both({ classes: TWICE, eta_y: 20, eta_z: 1, length: "inf", optimizer: PLAIN, steps: 5000, model: NO_NORM,
      init: "uniform", seeds: [2] }, { eta_y: 0, eta_z: 5 }),
  },
  {
    name: "freeze", paper: "Where theories meet", title: "Freeze, or winner takes all?", source: "Scan and Snap against polarisation, as we know it",
    look: "The same sentences and the same training. A normalises what attention reads, as Scan and Snap does, and slows " +
      "down at a half. B does not, and one word takes all.",
    ...both({ classes: TWICE, eta_z: 1, length: "inf", optimizer: PLAIN, steps: 5000 }, { model: NO_NORM }),
  },
]

/** Experiments by paper, in order. */
export const BY_PAPER = new Map()
for (const { paper = "Scan and Snap", ...of } of EXPERIMENTS) BY_PAPER.set(paper, [...(BY_PAPER.get(paper) ?? []), of])

/** The state that an experiment opens on. */
export function stateOf({ name, a, b = null }) {
  return { a, b, experiment: name, first: 0 }
}

export const byName = (name) => EXPERIMENTS.find((of) => of.name === name)
