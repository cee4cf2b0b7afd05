import { type BackoffPolicy, backoffMs } from '../backoff.ts';
import type { SendOutcome } from '../channels/channel.ts';
import { withinBounds } from './outcome.ts';

/** Between probes of a channel that is in trouble: it is back within seconds more often than not. */
const PROBE_BACKOFF: BackoffPolicy = { baseMs: 500, factor: 2, capMs: 300_000, jitter: 0.2 };

/**
 * How hard one channel account may be used right now. In memory: it is a hint, the rows have their own times. A call that found nobody
 * may be a connection that broke: the next one tells. While the platform is in trouble one message at a time tries whether it is back,
 * so that an outage costs few tries and lets few answers get lost.
 */
export class ChannelPace {
  /** Senders at work; kept by the delivery. */
  running = 0;
  #heldUntil = 0;
  /** When it was held last. */
  #heldAt = 0;
  /** In a row, each by a call that began after the one before had failed. */
  #failures = 0;
  /** Grows with each of them. */
  #wave = 0;
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

  /** A sender goes to work. Answers what `note` wants to know of it. */
  begin(): number {
    this.running += 1;
    return this.#wave;
  }

  /**
   * Learns from how a call ended that began in `wave`: only an answer of the platform proves that it is there. A success ends no pause it
   * was asked for.
   */
  note(outcome: SendOutcome, wave: number, now: number): void {
    if (outcome.outcome === 'unknown' || (outcome.outcome === 'retry' && outcome.scope === 'channel')) {
      // Calls that were on their way together fail together: one failure, not sixteen.
      if (wave === this.#wave) {
        this.#wave += 1;
        this.#failures += 1;
      }
      const asked = outcome.outcome === 'retry' ? outcome.afterMs : undefined;
      if (asked === undefined && this.#failures <= 1) return;
      const until = now + withinBounds(asked ?? backoffMs(PROBE_BACKOFF, this.#failures - 1, this.#random));
      this.#heldUntil = Math.max(this.isHeld(now) ? this.#heldUntil : 0, until);
      this.#heldAt = now;
    } else {
      this.#failures = 0;
    }
  }
}
