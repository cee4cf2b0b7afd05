import type { Words } from '../rich-text.ts';
import type { RefusalReason } from '../telemetry/refusals.ts';

/** What became of a message. */
export interface Verdict {
  readonly status: 'done' | 'refused' | 'ignored' | 'failed';
  /** Why, as a stable word; null for `done`. */
  readonly reason: string | null;
  readonly reply?: Words | undefined;
  /** It was meant for the bot, and its person may not: to be logged and counted. */
  readonly refusal?: RefusalReason;
}

export function ignored(reason: string): Verdict {
  return { status: 'ignored', reason };
}

/** @param reply undefined: silence, because they were told just now or because nobody there should hear of it */
export function refused(refusal: RefusalReason, reply: Words | undefined): Verdict {
  return { status: 'refused', reason: refusal, refusal, reply };
}

/** The key of the one direct answer to a message: however often the message is tried, it is answered once. */
export function replyKey(inboxId: number): string {
  return `inbox:${inboxId}:reply`;
}
