import type { Clock } from '../../clock.ts';

/** A chat's own limits look back this far (20 a minute and group). */
const WINDOW_MS = 60_000;
/** A longer pause is asked for by one chat's history; the others are asked one by one. */
const LONGEST_MS = 60_000;
const MOST_CHATS = 10_000;

/**
 * Tells whose a 429 is: Telegram says "retry after", not of what. A chat that has got nothing for a minute cannot have been written to too
 * often, so then it is the whole bot. In memory: a wrong guess costs a pause, never a message.
 */
export class Floods {
  readonly #clock: Clock;
  /** By chat; the latest last. */
  readonly #writtenAt = new Map<string, number>();
  readonly #startedAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startedAt = clock.now();
  }

  /** A call to this chat has been accepted. */
  written(chat: string): void {
    this.#writtenAt.delete(chat);
    this.#writtenAt.set(chat, this.#clock.now());
    const [oldest] = this.#writtenAt.keys();
    if (this.#writtenAt.size > MOST_CHATS && oldest !== undefined) this.#writtenAt.delete(oldest);
  }

  /** Whether a 429 for a call to this chat holds for all chats. */
  isOfWholeBot(chat: string, retryAfterMs: number | undefined): boolean {
    if (retryAfterMs === undefined || retryAfterMs > LONGEST_MS) return false;
    const now = this.#clock.now();
    // What was written before the start is not known.
    const since = now - WINDOW_MS;
    return this.#startedAt <= since && (this.#writtenAt.get(chat) ?? 0) <= since;
  }
}
