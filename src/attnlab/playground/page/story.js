/**
 * Story: what is happening at each recorded moment, in plain words that follow from measures: the
 * speed of attention against its peak, the attention on shared words, the word that leads.
 */
import { percent } from "./dom.js"
import { movement } from "./simulator/measures.js"

const SLOW = 0.02 // of the peak speed
const STILL = 0.02 // of all attention: as good as the start
const HALF = 0.5 // of what shared words will have lost, or of the way: from here on it is about who wins

/** names of the four stages; told: {stage, words} of each record, about all classes and class `first`. */
export function tell(classes, result, measured, first) {
  const { K, size } = classes, records = result.steps.length
  const moved = movement(classes, result.attention)
  const speed = moved.map((m, r) => m / (result.steps[r + 1] - result.steps[r]))
  const peak = Math.max(...speed, 0), peakAt = speed.indexOf(peak)
  const common = Array.from({ length: records }, (_, r) => mean(measured.commonMass, r, K))
  const lost = common[0] - Math.min(...common)
  const away = (r) => {
    let sum = 0
    for (let i = 0; i < size; i++) sum += Math.abs(result.attention[r * size + i] - result.attention[i])
    return sum / 2 / K
  }
  const far = Math.max(...Array.from({ length: records }, (_, r) => away(r)))
  const fades = lost > 0.03
  const told = []
  for (let r = 0; r < records; r++) {
    const now = Math.min(r, speed.length - 1)
    const lead = leader(classes, result.attention, r, first)
    let stage
    if (peak === 0 || (away(r) < STILL && now <= peakAt)) stage = 0
    else if (now > peakAt && speed[now] < SLOW * peak) stage = 3
    else if ((fades ? (common[0] - common[r]) / lost : away(r) / far) < HALF) stage = 1
    else stage = 2
    const shared = `Shared words get ${percent(common[r])} of attention` +
      (r ? `, from ${percent(common[0])} at the start.` : ".")
    const leads = lead.share < 1.25 * lead.start ? `No word stands out${stage === 3 ? "" : " yet"}.`
      : lead.alike > 1 ? `${lead.alike} words lead alike with ${percent(lead.share)} each.`
      : `“${lead.name}” ${stage === 3 ? "has won" : "leads"} with ${percent(lead.share)}, from ${percent(lead.start)}.`
    const opening = [
      r === 0 ? "Before training, every word is looked at as often as it occurs." : "Hardly anything has moved yet.",
      fades ? "The words that all sentences share are fading." : "Attention begins to choose.",
      lead.common ? "A shared word pulls ahead." : "A word that tells the sentences apart pulls ahead.",
      "Attention has slowed down, to less than 2 % of its fastest.",
    ][stage]
    told.push({ stage, words: `${opening} ${shared} ${stage === 0 && r === 0 ? "" : leads}`.trim() })
  }
  const end = leader(classes, result.attention, records - 1, first)
  const wins = end.share < 1.25 * end.start ? "No word stands out" : end.alike > 1 ? "Some words lead alike"
    : `A ${end.common ? "shared" : "telling"} word wins`
  return { told, names: ["Looks everywhere", fades ? "Shared words fade" : "Begins to choose", wins, "Slowed down"] }
}

/** The word that is attended most in a class. */
export function leader(classes, attention, record, k) {
  let best = classes.offsets[k]
  for (let i = best; i < classes.offsets[k + 1]; i++) {
    if (attention[record * classes.size + i] > attention[record * classes.size + best]) best = i
  }
  const token = classes.tokens[best], most = attention[record * classes.size + best]
  let alike = 0
  for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) {
    if (attention[record * classes.size + i] > 0.98 * most) alike += 1
  }
  return {
    alike,
    name: classes.word(token), share: attention[record * classes.size + best],
    start: attention[best], common: classes.isCommon(token),
  }
}

export function mean(values, record, K) {
  let sum = 0
  for (let k = 0; k < K; k++) sum += values[record * K + k]
  return sum / K
}
