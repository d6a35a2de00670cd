/** InputError: something is wrong with what was given; the message names the field and the remedy. */
export class InputError extends Error {
  constructor(message) {
    super(message)
    this.name = "InputError"
  }
}
