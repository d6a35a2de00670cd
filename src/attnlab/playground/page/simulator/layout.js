/**
 * Layout: which entries of Y and Z have to exist.
 *
 * Row l of Y moves only if some class draws token l, z_ml only if a class of query m does. Outputs
 * that are never a target stay identical from Y(0) = 0: one column with a multiplicity. Tokens with
 * the same probabilities in every class (and the same start) are exchangeable for T to infinity:
 * one group with a multiplicity. All of it is exact.
 */
export class Layout {
  /** start: z(0) of a query at a token; lump: rows are whole classes; symmetric: Y(0) = 0. */
  constructor(classes, { lump, symmetric, start }) {
    const { K, offsets, tokens, values, queryIndex } = classes
    const group = groupsOf(classes, lump, start)
    this.classes = classes
    this.A = group.size
    // slots: for each class its groups, once each
    this.offsets = new Int32Array(K + 1)
    const place = [], mass = [], z = []
    const zPlaces = new Map()
    this.slotOfEntry = new Int32Array(tokens.length) // of each non-zero of P
    for (let k = 0; k < K; k++) {
      const seen = new Map()
      for (let i = offsets[k]; i < offsets[k + 1]; i++) {
        const g = group.of[tokens[i]]
        if (!seen.has(g)) {
          seen.set(g, place.length)
          place.push(g)
          mass.push(values[i])
          const key = queryIndex[k] * this.A + g
          if (!zPlaces.has(key)) zPlaces.set(key, zPlaces.size)
          z.push(zPlaces.get(key))
        }
        this.slotOfEntry[i] = seen.get(g)
      }
      this.offsets[k + 1] = place.length
    }
    this.place = Int32Array.from(place)
    this.mass = Float64Array.from(mass)
    this.zPlace = Int32Array.from(z)
    this.zSize = zPlaces.size
    this.zStart = new Float64Array(this.zSize)
    for (const [key, at] of zPlaces) {
      this.zStart[at] = start(Math.floor(key / this.A), group.tokensOf[key % this.A])
    }
    if (symmetric) {
      const rest = classes.M - classes.targets.length
      this.J = classes.targets.length + (rest > 0 ? 1 : 0)
      this.count = new Float64Array(this.J).fill(1)
      if (rest > 0) this.count[this.J - 1] = rest
      this.target = classes.targetIndex
    } else {
      this.J = classes.M
      this.count = new Float64Array(this.J).fill(1)
      this.target = classes.next
    }
    /** of each slot: where its row of Y begins, and how many tokens it stands for */
    this.row = this.place.map((g) => g * this.J)
    this.times = Float64Array.from(this.place, (g) => group.multiplicity[g])
  }
}

/** The group of each token: itself, or all tokens that are exchangeable. */
function groupsOf({ K, M, offsets, tokens, values, queryIndex }, lump, start) {
  const profile = new Map()
  for (let k = 0; k < K; k++) {
    for (let i = offsets[k]; i < offsets[k + 1]; i++) {
      const token = tokens[i]
      profile.set(token, lump ? `${profile.get(token) ?? ""}${k}:${values[i]}:${start(queryIndex[k], token)};` : token)
    }
  }
  const of = new Int32Array(M).fill(-1), tokensOf = [], multiplicity = [], groups = new Map()
  for (const [token, text] of profile) {
    if (!groups.has(text)) {
      groups.set(text, tokensOf.length)
      tokensOf.push(token)
      multiplicity.push(0)
    }
    of[token] = groups.get(text)
    multiplicity[of[token]] += 1
  }
  return { of, tokensOf, multiplicity, size: tokensOf.length }
}
