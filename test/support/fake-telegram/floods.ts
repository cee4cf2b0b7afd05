/** Calls within a time, as the Bots FAQ has them; what exceeds them is answered with 429. */
const ACCOUNT = { max: 30, windowMs: 1_000 };
const CHAT = { max: 3, windowMs: 3_000 };
const GROUP = { max: 20, windowMs: 60_000 };

/** Enforces the platform's rates for messages and edits, by a clock of its own. */
export class Floods {
  readonly #now: () => number;
  readonly #sentAt = new Map<number | 'all', number[]>();
  /** Calls that were refused for being too many. */
  refused = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Counts a call; answers the seconds to wait where it is one too many. */
  check(chat: number): number | undefined {
    const now = this.#now();
    const waits = [
      this.#waitOf('all', ACCOUNT, now),
      this.#waitOf(chat, CHAT, now),
      ...(chat < 0 ? [this.#waitOf(chat, GROUP, now)] : []),
    ];
    const waitMs = Math.max(...waits);
    if (waitMs > 0) {
      this.refused += 1;
      return Math.ceil(waitMs / 1_000);
    }
    for (const key of ['all', chat] as const) this.#of(key).push(now);
    return undefined;
  }

  #waitOf(key: number | 'all', { max, windowMs }: { max: number; windowMs: number }, now: number): number {
    const oldest = this.#of(key).at(-max);
    return oldest === undefined ? 0 : Math.max(0, oldest + windowMs - now);
  }

  #of(key: number | 'all'): number[] {
    const known = this.#sentAt.get(key) ?? [];
    this.#sentAt.set(key, known);
    return known;
  }
}
