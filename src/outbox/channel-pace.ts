import type { SendOutcome } from '../channels/channel.ts';
import { pauseMs } from './outcome.ts';

/**
 * How hard one channel account may be used right now. In memory: it is a hint, the rows have their own times. While the platform is
 * in trouble one message at a time tries whether it is back, so that an outage costs few tries and lets few answers get lost.
 */
export class ChannelPace {
  /** Senders at work; kept by the delivery. */
  running = 0;
  #heldUntil = 0;
  /** When it was held last. */
  #heldAt = 0;
  #failures = 0;
  readonly #random: (() => number) | undefined;

  constructor(random?: () => number) {
    this.#random = random;
  }

  /** Nothing is sent before this, epoch milliseconds. */
  get heldUntil(): number {
    return this.#heldUntil;
  }

  /** Not by a time of a clock that has been set back since. */
  isHeld(now: number): boolean {
    return this.#heldUntil > now && this.#heldAt <= now;
  }

  mayStart(now: number): boolean {
    return !this.isHeld(now) && (this.#failures === 0 || this.running === 0);
  }

  /** Learns from how a call ended: only an answer of the platform proves that it is there. A success ends no pause it was asked for. */
  note(outcome: SendOutcome, now: number): void {
    if (outcome.outcome === 'unknown' || (outcome.outcome === 'retry' && outcome.scope === 'channel')) {
      // Calls that were on their way together fail together: one failure, not sixteen.
      const isHeld = this.isHeld(now);
      if (!isHeld) this.#failures += 1;
      const asked = outcome.outcome === 'retry' ? outcome.afterMs : undefined;
      this.#heldUntil = Math.max(isHeld ? this.#heldUntil : 0, now + pauseMs(asked, this.#failures, this.#random));
      this.#heldAt = now;
    } else {
      this.#failures = 0;
    }
  }
}
