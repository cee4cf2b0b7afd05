import type { ChannelName } from '../channels/channel.ts';
import type { RatesOf } from '../channels/rates.ts';
import type { Tx } from '../store/tx.ts';
import { createDigests, type Digests } from './digest.ts';
import {
  editMessages,
  lastWords,
  markAsEdits,
  postpone,
  type Replacement,
  rewrite,
  rewriteEdits,
  withoutUnseen,
} from './edit.ts';
import { createLeases, type Leases } from './leases.ts';
import {
  type ChatKey,
  chatText,
  distinctChats,
  type EmitOutbox,
  GIVE_UP_AFTER_MS,
  type NewMessage,
  type OutboxEvent,
  storableWords,
} from './message.ts';
import { type ChatMove, moveChat } from './move-chat.ts';
import {
  freeChats,
  insertMessages,
  insertNewMessages,
  reviveMessages,
  reviveUnreached,
  storedMessages,
  withdrawMessages,
} from './queries.ts';

/** Outgoing messages as rows. All but `leases` are called within the caller's transaction. */
export interface Outbox {
  /**
   * Stores messages in this order; what commits is delivered, whatever crashes. A dedupe key that was used before drops its message.
   * Where the row itself is the receipt (`instant`) it is stored as sent. Edits come after the others.
   */
  enqueue(tx: Tx, messages: readonly NewMessage[]): Promise<void>;
  /**
   * Tries messages again that are `unknown`, `dead` or `expired`, in their old place of the order; a hold on their chat for being
   * unreachable ends. Answers for each id whether it will be sent; false for any other state and for ids that do not exist.
   */
  resend(tx: Tx, ids: readonly number[]): Promise<boolean[]>;
  /**
   * Takes back what nobody has begun to send of these tasks: their updates, and where `all` is said their results and questions, too.
   * Answers the tasks and generations' keys of the results among them.
   */
  withdraw(tx: Tx, tasks: readonly { taskId: number; all: boolean }[]): Promise<Withdrawn[]>;
  /** These chats have spoken: what waits for unreachable ones among them may go, and the result that found it out as well. */
  clearHold(tx: Tx, chats: readonly ChatKey[]): Promise<void>;
  /** A chat has another id from now on: whatever waits for it, or will go to it, goes there. Told again, nothing changes. */
  moveChat(tx: Tx, move: ChatMove): Promise<void>;
  /** For the delivery. */
  readonly leases: Leases;
  /** For the delivery. */
  readonly digests: Digests;
}

/** A result that will not be sent. */
export interface Withdrawn {
  readonly taskId: number;
  readonly dedupeKey: string | null;
}

export interface OutboxOptions {
  /** Channels whose clients read the rows themselves (web chat): nothing is sent, so nothing can fail. */
  readonly instant: ReadonlySet<ChannelName>;
  readonly emit: EmitOutbox;
  /** How fast chats may be written to. Default: as fast as messages are accepted. */
  readonly rates?: RatesOf;
}

export function createOutbox({ instant, emit, rates }: OutboxOptions): Outbox {
  const clearHold: Outbox['clearHold'] = async (tx, chats) => {
    if (chats.length === 0) return;
    const freed = await tx.all(freeChats, {
      rows: distinctChats(chats).map((key) => [key.channel, key.account, key.chat]),
    });
    if (freed.length === 0) return;
    await tx.run(reviveUnreached, {
      rows: freed.map((held) => [held.channel, held.account, held.chat, held.unreachable_since, held.reason]),
      now: tx.now,
    });
    emit(tx, [{ type: 'outbox.enqueued', chats: distinctChats(freed as unknown as ChatKey[]) }]);
  };
  return {
    async enqueue(tx, messages) {
      const own = messages.some((message) => message.edits) ? messages.filter((message) => !message.edits) : messages;
      await add(tx, own, instant, emit);
      if (own.length < messages.length) await replace(tx, lastWords(messages), instant, emit);
    },
    async resend(tx, ids) {
      const revived = (await reviveMessages(tx, ids, tx.now + GIVE_UP_AFTER_MS.final)) as (ChatKey & { id: number })[];
      await clearHold(tx, revived);
      if (revived.length > 0) emit(tx, [{ type: 'outbox.enqueued', chats: distinctChats(revived) }]);
      const found = new Set(revived.map((row) => row.id));
      return ids.map((id) => found.has(id));
    },
    async withdraw(tx, tasks) {
      const rows = tasks.map(({ taskId, all }) => [taskId, all ? 1 : 0]);
      const gone = await tx.all(withdrawMessages, { rows, reason: 'not wanted any more' });
      return gone
        .filter(({ kind }) => kind === 'final')
        .map(({ task_id, dedupe_key }) => ({ taskId: task_id, dedupeKey: dedupe_key }));
    },
    clearHold,
    async moveChat(tx, move) {
      await moveChat(tx, move);
      const { channel, account, to: chat } = move;
      emit(tx, [{ type: 'outbox.enqueued', chats: [{ channel, account, chat }] }]);
    },
    leases: createLeases(emit, rates),
    digests: createDigests(emit),
  };
}

/** Answers the ids by the place of their message; undefined where it was dropped. */
async function add(
  tx: Tx,
  messages: readonly NewMessage[],
  instant: ReadonlySet<ChannelName>,
  emit: EmitOutbox,
): Promise<(number | undefined)[]> {
  if (messages.length === 0) return [];
  const first = await tx.ids(messages.length);
  const fresh = await insert(tx, messages, first, instant);
  const events = eventsOf(messages, first, fresh, instant);
  if (events.length > 0) emit(tx, events);
  return messages.map((_, index) => (!fresh || fresh.has(first + index) ? first + index : undefined));
}

/** The first of a key is a message; a later one changes it where it waits, else it follows as an edit. */
async function replace(
  tx: Tx,
  edits: readonly Replacement[],
  instant: ReadonlySet<ChannelName>,
  emit: EmitOutbox,
): Promise<void> {
  const wanted = await withoutUnseen(tx, edits);
  const firsts = await add(
    tx,
    wanted.map((edit) => ({ ...edit, dedupeKey: edit.edits.key })),
    instant,
    emit,
  );
  await postpone(tx, wanted, firsts);
  const later = wanted.filter((_, index) => firsts[index] === undefined);
  const isShown = (edit: Replacement) => instant.has(edit.route.channel);
  await editMessages(
    tx,
    later.filter(isShown).map(({ edits: { key }, text, marks }) => ({ dedupeKey: key, text, ...(marks && { marks }) })),
    emit,
  );
  const waiting = later.filter((edit) => !isShown(edit));
  const following = await rewriteEdits(tx, await rewrite(tx, waiting));
  if (following.length === 0) return;
  const ids = await add(
    tx,
    following.map(({ dedupeKey: _none, ...edit }) => edit),
    instant,
    emit,
  );
  await markAsEdits(tx, following, ids as number[]);
}

/** Answers which ids are new; undefined means all of them. */
async function insert(
  tx: Tx,
  messages: readonly NewMessage[],
  first: number,
  instant: ReadonlySet<ChannelName>,
): Promise<ReadonlySet<number> | undefined> {
  const rows = messages.map((message, index) =>
    newRow(message, first + index, tx.now, instant.has(message.route.channel)),
  );
  if (messages.every((message) => message.dedupeKey === undefined)) {
    await tx.run(insertMessages, { rows, now: tx.now });
    return undefined;
  }
  if ((await tx.run(insertNewMessages, { rows, now: tx.now })) === messages.length) return undefined;
  const ids = messages.map((_, index) => [first + index]);
  return new Set((await tx.all(storedMessages, { rows: ids })).map((row) => row.id));
}

function newRow(message: NewMessage, id: number, now: number, instant: boolean): unknown[] {
  const { route, kind } = message;
  const { text, marks } = storableWords(message);
  return [
    id,
    route.channel,
    route.account,
    route.chat,
    JSON.stringify(route),
    message.sessionKey ?? null,
    kind,
    text,
    instant ? 'sent' : 'pending',
    message.taskId ?? null,
    message.flowId ?? null,
    message.dedupeKey ?? null,
    now + GIVE_UP_AFTER_MS[kind],
    instant ? now : null,
    marks,
  ];
}

function eventsOf(
  messages: readonly NewMessage[],
  first: number,
  fresh: ReadonlySet<number> | undefined,
  instant: ReadonlySet<ChannelName>,
): OutboxEvent[] {
  const events: OutboxEvent[] = [];
  const waiting = new Map<string, ChatKey>();
  for (const [index, { route, kind, sessionKey, taskId, flowId, dedupeKey }] of messages.entries()) {
    const id = first + index;
    if (fresh && !fresh.has(id)) continue;
    const key: ChatKey = { channel: route.channel, account: route.account, chat: route.chat };
    if (!instant.has(route.channel)) waiting.set(chatText(key), key);
    else {
      events.push({
        type: 'outbox.sent',
        ...key,
        id,
        kind,
        sessionKey: sessionKey ?? null,
        taskId: taskId ?? null,
        flowId: flowId ?? null,
        dedupeKey: dedupeKey ?? null,
      });
    }
  }
  if (waiting.size > 0) events.push({ type: 'outbox.enqueued', chats: [...waiting.values()] });
  return events;
}
