import type { Clock } from '../../clock.ts';

/** Per app and member; WeCom drops what exceeds it without an error (document 90454). */
const LIMITS = [
  { windowMs: 60_000, max: 30 },
  { windowMs: 3_600_000, max: 1_000 },
] as const;
const LONGEST_MS = 3_600_000;

/**
 * Keeps each person below the limits that WeCom enforces silently. In memory: after a restart up to one window's worth too many
 * could be sent, which takes thirty messages to one person within a minute.
 */
export class MemberPace {
  readonly #clock: Clock;
  readonly #sentAt = new Map<string, number[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds until this person may get the next message; 0: now. */
  waitMs(user: string): number {
    const times = this.#recent(user);
    const waits = LIMITS.map(({ windowMs, max }) => {
      const blocking = times.at(-max);
      return times.length < max || blocking === undefined ? 0 : blocking + windowMs - this.#clock.now();
    });
    return Math.max(0, ...waits);
  }

  /** Counts a message that the platform has, or may have, got. */
  count(user: string): void {
    this.#sentAt.set(user, [...this.#recent(user), this.#clock.now()]);
  }

  #recent(user: string): number[] {
    const since = this.#clock.now() - LONGEST_MS;
    const times = (this.#sentAt.get(user) ?? []).filter((at) => at > since);
    if (times.length === 0) this.#sentAt.delete(user);
    return times;
  }
}
