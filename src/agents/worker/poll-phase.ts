/** The shortest of the random polls. */
const LEAST_SHARE = 0.1;

/**
 * How long a long poll is to be held. Agents whose polls began at the same moment (the gateway is back, a hall is switched on) would
 * stay in step for ever; the first poll after a start or a failure is of random length, so that all later ones lie somewhere in
 * the interval. No poll begins later for it.
 */
export class PollPhase {
  readonly #random: () => number;
  #isInStep = true;

  /** @param random a number in [0, 1); injectable for tests */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** Milliseconds, at most `ms`. */
  holdMs(ms: number): number {
    return this.#isInStep ? Math.ceil(ms * (LEAST_SHARE + (1 - LEAST_SHARE) * this.#random())) : ms;
  }

  /** A poll was answered. */
  answered(): void {
    this.#isInStep = false;
  }

  /** A poll failed, perhaps those of all agents at once. */
  failed(): void {
    this.#isInStep = true;
  }
}
