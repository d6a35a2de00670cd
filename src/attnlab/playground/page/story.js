/**
 * Story: what happens at each record, in plain words that follow from the bars on the screen: the speed
 * of attention against its peak, the attention on shared words, the word that leads.
 */
import { percent } from "./dom.js"

const SLOW = 0.02 // of the peak speed
const STILL = 0.02 // of all attention: as good as the start
const HALF = 0.5 // of what shared words will have lost, or of the way: from here on it is about who leads
const SEEN = 0.005 // of all attention: a bar that has moved

/**
 * Names of the four stages, and {stage, words} of each record, told of the classes whose bars are `shown`.
 * Numbers are those of the first of them, which the sentence belongs to.
 */
export function tell(classes, { steps, attention }, { commonMass }, shown) {
  const { K, size, offsets } = classes, [first] = shown
  const average = (value) => shown.reduce((sum, k) => sum + value(k), 0) / shown.length
  const distance = (r, s) => average((k) => {
    let sum = 0
    for (let i = offsets[k]; i < offsets[k + 1]; i++) sum += Math.abs(attention[r * size + i] - attention[s * size + i])
    return sum / 2
  })
  const leaders = Array.from(steps, (_, r) => shown.map((k) => leader(classes, attention, r, k)))
  const away = Array.from(steps, (_, r) => distance(r, 0)), far = Math.max(...away)
  const common = Array.from(steps, (_, r) => average((k) => commonMass[r * K + k]))
  const speed = Array.from(steps.subarray(1), (step, r) => distance(r + 1, r) / (step - steps[r]))
  const peak = Math.max(...speed, 0), peakAt = speed.indexOf(peak)
  const lost = common[0] - Math.min(...common), fades = lost > 0.03

  function stageOf(r) {
    const now = Math.min(r, speed.length - 1)
    if (peak === 0 || (away[r] < STILL && now <= peakAt)) return 0
    if (now > peakAt && speed[now] < SLOW * peak) return 3
    return (fades ? (common[0] - common[r]) / lost : away[r] / far) < HALF ? 1 : 2
  }

  function opening(stage, r) {
    if (stage === 0) return r > 0 ? "Hardly anything has moved yet." : beginning(classes, attention)
    if (stage === 1) return common[0] - common[r] > SEEN ? "The shared words are fading." : "Attention begins to choose."
    if (stage === 3) return "Attention has slowed down, to less than 2% of its fastest."
    const word = ahead(leaders[r])
    return word ? `${word} is ahead.` : "Attention goes on choosing."
  }

  const kind = `${classes.word(classes.query[first])} → ${classes.word(classes.next[first])}`
  const told = Array.from(steps, (_, r) => {
    const stage = stageOf(r), { alike, name, share, start } = leaders[r][0]
    const shared = `In “${kind}” shared words get ${percent(commonMass[r * K + first])} of attention`
    const from = r > 0 ? `, from ${percent(commonMass[first])} at the start` : ""
    const leads = alike > 1 ? `${alike} words lead alike with ${percent(share)} each`
      : `“${name}” ${stage === 3 && share > HALF ? "has won" : "leads"} with ${percent(share)}, from ${percent(start)}`
    return { stage, words: `${opening(stage, r)} ${shared}${from}${stage > 0 ? `, and ${leads}` : ""}.` }
  })
  return { told, names: ["Looks everywhere", fades ? "Shared words fade" : "Begins to choose", ending(leaders.at(-1)), "Slowed down"] }
}

function beginning({ values }, attention) {
  return values.every((p, i) => Math.abs(attention[i] - p) < SEEN)
    ? "Before training, every word is looked at as often as it occurs."
    : "Before training, attention is random."
}

/** What leads in the first class shown; nothing where words are alike, or where it has not gained. */
function ahead([{ alike, share, start, common }, ...others]) {
  if (alike > 1 || share - start < SEEN) return ""
  if (others.some((of) => of.common !== common)) return "One word" // of the other class another kind of word
  return common ? "A shared word" : "A telling word"
}

function ending([first, ...others]) {
  const word = ahead([first, ...others])
  if (word) return `${word} ${first.share > HALF ? "wins" : "leads"}`
  return first.alike > 1 ? "Some words lead alike" : "No word gains"
}

/** The word that is attended most in a class, and how many words have as much, as it is printed. */
export function leader(classes, attention, record, k) {
  const begin = classes.offsets[k], shares = attention.subarray(record * classes.size + begin, record * classes.size + classes.offsets[k + 1])
  const share = Math.max(...shares), at = shares.indexOf(share)
  const token = classes.tokens[begin + at], printed = percent(share)
  return {
    name: classes.word(token), share, start: attention[begin + at], common: classes.isCommon(token),
    alike: shares.filter((of) => of > 0.9 * share && percent(of) === printed).length,
  }
}

export function mean(values, record, K) {
  let sum = 0
  for (let k = 0; k < K; k++) sum += values[record * K + k]
  return sum / K
}
