/** Optimisers: SGD (m <- momentum m + gradient, w -= rate m) and Adam, one memory for each array. */

class Sgd {
  constructor(size, { momentum = 0.9 } = {}) {
    this.momentum = momentum
    this.memory = new Float64Array(size)
  }

  step(weights, gradient, rate) {
    const { memory, momentum } = this
    for (let i = 0; i < weights.length; i++) {
      memory[i] = momentum * memory[i] + gradient[i]
      weights[i] -= rate * memory[i]
    }
  }
}

class Adam {
  constructor(size, { beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8 } = {}) {
    Object.assign(this, { beta_1, beta_2, epsilon, steps: 0 })
    this.first = new Float64Array(size)
    this.second = new Float64Array(size)
  }

  step(weights, gradient, rate) {
    const { first, second, beta_1, beta_2, epsilon } = this
    this.steps += 1
    const of1 = 1 - beta_1 ** this.steps, of2 = 1 - beta_2 ** this.steps
    for (let i = 0; i < weights.length; i++) {
      const g = gradient[i]
      first[i] = beta_1 * first[i] + (1 - beta_1) * g
      second[i] = beta_2 * second[i] + (1 - beta_2) * g * g
      weights[i] -= (rate * (first[i] / of1)) / (Math.sqrt(second[i] / of2) + epsilon)
    }
  }
}

const KINDS = { sgd: Sgd, adam: Adam }

export const isKnown = (document) =>
  Object.hasOwn(KINDS, document.name) && !document.weight_decay

export function optimiser(document, size) {
  return new KINDS[document.name](size, document)
}
