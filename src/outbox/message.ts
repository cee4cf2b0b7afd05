import type { ChannelName, Mark, RichText, Route } from '../channels/channel.ts';
import { soundMarks, withoutUnits } from '../rich-text.ts';
import type { Tx } from '../store/tx.ts';

/** `final`: the result of a task; `update`: how it goes; `reply`: the answer to a command; `notice`: anything else. */
export type MessageKind = 'final' | 'update' | 'reply' | 'notice';

export type MessageStatus = 'pending' | 'sending' | 'sent' | 'unknown' | 'dead' | 'superseded' | 'expired';

/** One outgoing message. Its text is cut into parts only when it is sent. */
export interface NewMessage {
  readonly route: Route;
  readonly sessionKey?: string;
  readonly kind: MessageKind;
  readonly text: string;
  /** How parts of the text look where the platform can show it. */
  readonly marks?: readonly Mark[];
  readonly taskId?: number;
  readonly flowId?: number;
  /** At most one row ever has this key: a second message with it is dropped. */
  readonly dedupeKey?: string;
  /**
   * Replaces the text of the message with this dedupe key, in place. Where there is none yet this is that message; where it has not gone
   * yet it goes with this text; where the platform cannot edit it (any more) this comes as a new message, but an `update` only when
   * its message never arrived. Instead of a dedupe key of its own; only the last edit of a message is kept.
   */
  readonly edits?: {
    readonly key: string;
    /** Waits so long for a later word on the same message, milliseconds: no edit goes out more often. Default: not at all. */
    readonly paceMs?: number;
    /** The last word on it, behind everything that was said until now; none where people do not see the message. */
    readonly closes?: boolean;
  };
}

/** Order is kept, pauses are made and senders are excluded per chat. */
export interface ChatKey {
  readonly channel: ChannelName;
  readonly account: string;
  readonly chat: string;
}

/** A message that has found its end, for those who wait for it. */
interface SettledMessage extends ChatKey {
  readonly id: number;
  readonly kind: MessageKind;
  readonly sessionKey: string | null;
  readonly taskId: number | null;
  readonly flowId: number | null;
  /** As it was given with the message. */
  readonly dedupeKey: string | null;
}

/** What the outbox tells the rest, inside the transaction that makes it true. */
export type OutboxEvent =
  /** Messages that clients read from the rows have another text. */
  | { readonly type: 'outbox.edited'; readonly sessionKeys: readonly string[] }
  /** Messages wait in these chats: wake the delivery after the commit. */
  | { readonly type: 'outbox.enqueued'; readonly chats: readonly ChatKey[] }
  /** The platform has accepted all parts, or the row itself is the receipt. */
  | ({ readonly type: 'outbox.sent' } & SettledMessage)
  /** Nobody will send it again unless a person asks for it; `status` says why. */
  | ({ readonly type: 'outbox.dead'; readonly status: 'dead' | 'unknown' | 'expired' } & SettledMessage);

export type EmitOutbox = (tx: Tx, events: OutboxEvent[]) => void;

const HOUR_MS = 3_600_000;

/** How long after it was written (or asked for again) a message is worth another try; an update is soon out of date. */
export const GIVE_UP_AFTER_MS: Readonly<Record<MessageKind, number>> = {
  final: 24 * HOUR_MS,
  update: HOUR_MS,
  reply: 24 * HOUR_MS,
  notice: 24 * HOUR_MS,
};

/** A text that names the chat; for maps. */
export function chatText(chat: ChatKey): string {
  return JSON.stringify([chat.channel, chat.account, chat.chat]);
}

/** Each chat once. */
export function distinctChats(chats: readonly ChatKey[]): ChatKey[] {
  const found = new Map<string, ChatKey>();
  for (const { channel, account, chat } of chats) {
    found.set(chatText({ channel, account, chat }), { channel, account, chat });
  }
  return [...found.values()];
}

/** What every database can store: broken surrogates become U+FFFD, NUL goes (PostgreSQL's text refuses it). */
export function storable(text: string): string {
  return text.isWellFormed() && !text.includes('\u0000') ? text : text.toWellFormed().replaceAll('\u0000', '');
}

/** A text as it is stored, and its marks as JSON where it has any that can be shown. */
export function storableWords({ text, marks }: RichText): { text: string; marks: string | null } {
  if (marks === undefined) return { text: storable(text), marks: null };
  const wellFormed = text.toWellFormed();
  const kept = text.includes('\u0000')
    ? withoutUnits({ text: wellFormed, marks }, /\u0000/g)
    : { text: wellFormed, marks };
  const sound = soundMarks(kept.text, kept.marks);
  return { text: kept.text, marks: sound.length === 0 ? null : JSON.stringify(sound) };
}
