/** Measures of attention: one row per record, one column per class. */

/** entropy (nats) and attention on common tokens of each class. */
export function measures(classes, attention) {
  const records = attention.length / classes.size, { K } = classes
  const entropy = new Float64Array(records * K), commonMass = new Float64Array(records * K)
  for (let r = 0; r < records; r++) {
    for (let k = 0; k < K; k++) {
      let h = 0, common = 0
      for (let i = classes.offsets[k]; i < classes.offsets[k + 1]; i++) {
        const c = attention[r * classes.size + i]
        if (c > 0) h -= c * Math.log(c)
        if (classes.omega[classes.tokens[i]] > 1) common += c
      }
      entropy[r * K + k] = h
      commonMass[r * K + k] = common
    }
  }
  return { entropy, commonMass }
}
