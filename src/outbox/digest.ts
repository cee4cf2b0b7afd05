import type { ChannelName } from '../channels/channel.ts';
import type { Tx } from '../store/tx.ts';
import {
  DIGEST_KEY,
  digestMembers,
  giveUpLate,
  type LateRow,
  lateMessages,
  type MemberRow,
  putDigest,
} from './digest-queries.ts';
import { digestText } from './digest-text.ts';
import { chatText, type EmitOutbox, GIVE_UP_AFTER_MS, type OutboxEvent } from './message.ts';

/** What could not be sent in time does not vanish: several late messages of a chat become one that lists them. */
export interface Digests {
  /**
   * In the chats of these messages: late updates are given up, other late messages listed in one message that goes first, when there
   * are at least two; a single one goes as it is. A list that has not gone yet gets the new lines.
   * @param encode the public id of a task
   */
  collect(tx: Tx, headIds: readonly number[], encode: (id: number) => string): Promise<void>;
}

type Encode = (id: number) => string;

export function createDigests(emit: EmitOutbox): Digests {
  return {
    async collect(tx, headIds, encode) {
      const rows = await tx.all(lateMessages, { rows: headIds.map((id) => [id]), now: tx.now });
      const byChat = new Map<string, LateRow[]>();
      for (const row of rows) {
        const chat = chatText({ ...row, channel: row.channel as ChannelName });
        byChat.set(chat, [...(byChat.get(chat) ?? []), row]);
      }
      for (const late of byChat.values()) await collectChat(tx, late, encode, emit);
    },
  };
}

/** What has become of a list has become of what it lists. */
export async function membersOfDigests(tx: Tx, events: readonly OutboxEvent[]): Promise<OutboxEvent[]> {
  const ended = new Map<number, OutboxEvent & { readonly id: number }>();
  for (const event of events) {
    if ('dedupeKey' in event && event.dedupeKey?.startsWith(DIGEST_KEY)) ended.set(event.id, event);
  }
  if (ended.size === 0) return [];
  const members = await tx.all(digestMembers, { rows: [...ended.keys()].map((id) => [id]) });
  return members.map((member) => ({ ...ended.get(member.digest_id)!, ...aboutMember(member) }));
}

async function collectChat(tx: Tx, rows: readonly LateRow[], encode: Encode, emit: EmitOutbox): Promise<void> {
  const updates = rows.filter(({ kind }) => kind === 'update');
  if (updates.length > 0) {
    await giveUp(tx, updates, 'out of date before it could be sent', null);
    emit(tx, updates.map(expired));
  }
  const digest = rows.find((row) => row.is_digest === 1);
  const late = rows.filter((row) => row.kind !== 'update' && row.is_digest === 0);
  if (late.length === 0 || (late.length === 1 && !digest)) return;
  const known = digest ? await tx.all(digestMembers, { rows: [[digest.id]] }) : [];
  const id = digest?.id ?? (await tx.ids(1));
  const last = late.at(-1)!;
  const text = digestText([...known, ...late].map((row) => entryOf(row, encode)));
  await putDigest(tx, {
    ...last,
    id,
    route: withoutReply(last.route),
    text,
    giveUpAt: tx.now + GIVE_UP_AFTER_MS.final,
  });
  await giveUp(tx, late, 'waited too long and is listed in a message with others', id);
  const { account, chat } = last;
  emit(tx, [{ type: 'outbox.enqueued', chats: [{ channel: last.channel as ChannelName, account, chat }] }]);
}

async function giveUp(tx: Tx, rows: readonly LateRow[], reason: string, digestId: number | null): Promise<void> {
  await tx.run(giveUpLate, { rows: rows.map(({ id }) => [id, reason, digestId]) });
}

function expired(row: LateRow): OutboxEvent {
  const place = { channel: row.channel as ChannelName, account: row.account, chat: row.chat };
  return { type: 'outbox.dead', status: 'expired', ...place, ...aboutMember(row) };
}

function entryOf({ kind, text, task_id }: LateRow | MemberRow, encode: Encode) {
  return { kind, text, ...(task_id === null ? {} : { taskId: encode(task_id) }) };
}

/** A list answers no single message. */
function withoutReply(route: string): string {
  const { messageId: _one, ...rest } = JSON.parse(route) as { messageId?: string };
  return JSON.stringify(rest);
}

function aboutMember(member: MemberRow | LateRow) {
  return {
    id: member.id,
    kind: member.kind,
    sessionKey: member.session_key,
    taskId: member.task_id,
    flowId: member.flow_id,
    dedupeKey: member.dedupe_key,
  };
}
