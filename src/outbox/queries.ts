import { type RawBuilder, sql } from 'kysely';
import { type Dialect, hot } from '../store/dialect.ts';
import type { OutboxTable } from '../store/outbox-tables.ts';
import type { Reader, Tx } from '../store/tx.ts';
import type { MessageKind, MessageStatus } from './message.ts';

const NEW_COLUMNS = {
  id: 'int',
  channel: 'text',
  account: 'text',
  chat: 'text',
  route: 'text',
  session_key: 'text',
  kind: 'text',
  text: 'text',
  status: 'text',
  task_id: 'int',
  flow_id: 'int',
  dedupe_key: 'text',
  give_up_at: 'int',
  sent_at: 'int',
  marks: 'text',
} as const;

/**
 * That a message is one of a task's: found by its dedupe key, which begins with the task (notifications/notifier.ts), since an index
 * over the tasks of all messages would cost every message an entry. `message` is the table's name there, `task` the id's column.
 */
export function isOfTask(message: string, task: string) {
  const key = sql.ref(`${message}.dedupe_key`);
  const id = sql.ref(task);
  return sql`${key} > 'task:' || ${id} || ':' and ${key} < 'task:' || ${id} || ';'`;
}

type NewRows = { rows: unknown[][]; now: number };

/** New messages without a dedupe key among them; columns as in `NEW_COLUMNS`. */
export const insertMessages = hot<NewRows>('outbox.insert', (d, p) => sql`${insertInto(d, p)}`);

/** The same where some have a dedupe key; answers which are new. */
/** Its count tells whether all were new; answering the rows would cost more than asking for them in the rare other case. */
export const insertNewMessages = hot<NewRows>(
  'outbox.insert_new',
  (d, p) => sql`
  ${insertInto(d, p)} where true on conflict (dedupe_key) do nothing`,
);

export const storedMessages = hot<{ rows: unknown[][] }, { id: number }>(
  'outbox.stored',
  (d, p) => sql`
  select outbox.id from ${d.rows(p.rows.param, { id: 'int' })} as r cross join outbox on outbox.id = r.id`,
);

function insertInto(d: Dialect, p: Parameters<Parameters<typeof hot<NewRows>>[1]>[1]) {
  return sql`
    insert into outbox (id, channel, account, chat, route, session_key, kind, text, status, task_id, flow_id, dedupe_key, give_up_at,
      sent_at, marks, next_at, created_at, rank)
    select id, channel, account, chat, route, session_key, kind, text, status, task_id, flow_id, dedupe_key, give_up_at,
      sent_at, marks, ${p.now}, ${p.now}, case when kind = 'update' then 1 else 0 end
    from ${d.rows(p.rows.param, NEW_COLUMNS)} as r`;
}

/** The update's chat is that of the message; guarded, so that the task's few messages are looked at and not the chat's many. */
function inChatOf(d: Dialect, message: 'm' | 'head') {
  const same = ['channel', 'account', 'chat'].map(
    (column) => sql`${d.guard(`past.${column}`)} = ${sql.ref(`${message}.${column}`)}`,
  );
  return sql.join(same, sql` and `);
}

/** A time that is written down as of later than now comes from a clock that has been set back since: what it put off is due. */
function isAhead(row: 'm' | 'outbox', now: RawBuilder<unknown>) {
  return sql`coalesce(${sql.ref(`${row}.put_off_at`)}, ${sql.ref(`${row}.created_at`)}) > ${now}`;
}

/** When the message `m` is due, its chat aside. */
const dueAt = (now: RawBuilder<unknown>) => sql`case when ${isAhead('m', now)} then ${now} else m.next_at end`;

/** Of the chat's row `hold`: it is to be left alone for now. */
export const isHeld = (now: RawBuilder<unknown>) =>
  sql`(hold.unreachable_since is not null or (hold.until > ${now} and coalesce(hold.held_at, 0) <= ${now}))`;

export interface ChatHead {
  id: number;
  chat: string;
  /** When it may be sent at the earliest. */
  ready_at: number;
  /** 1: it says more than updates of its task that still wait in the same chat. */
  outdates: number;
  /** 1: it has waited longer than it was meant to. */
  late: number;
}

/** Of the rates' row `row`: the time before which nothing goes; 0 when it is of a clock that has been set back since. */
const freeOf = (row: 'own' | 'whole', now: RawBuilder<unknown>) =>
  sql`case when ${sql.ref(`${row}.taken_at`)} <= ${now} then ${sql.ref(`${row}.free_at`)} else 0 end`;

/**
 * The first waiting message of each chat of one channel account (by rank, then by age), soonest first; unreachable chats left out. Goes
 * from chat to chat along the index, so that a chat with many waiting messages costs as much as one with a single message. (`cross
 * join`: else SQLite walks through all that wait and looks for each among the heads.)
 */
export const chatHeads = hot<{ channel: string; account: string; now: number; limit: number }, ChatHead>(
  'outbox.heads',
  (d, p) => sql`
  with recursive head (id, chat) as (
    select id, chat from (
      select id, chat from outbox
      where (status = 'pending' or status = 'sending') and channel = ${p.channel} and account = ${p.account}
      order by chat, rank, id limit 1
    ) as oldest
    union all
    select following.id, following.chat from head join outbox as following on following.id = (
      select o.id from outbox as o
      where (o.status = 'pending' or o.status = 'sending') and o.channel = ${p.channel} and o.account = ${p.account} and o.chat > head.chat
      order by o.chat, o.rank, o.id limit 1
    )
  ), due as (
    select m.id, m.chat,
      case when ${isHeld(p.now)} and hold.until > ${dueAt(p.now)} then hold.until else ${dueAt(p.now)} end as at,
      coalesce(${freeOf('own', p.now)}, 0) as own_at, coalesce(${freeOf('whole', p.now)}, 0) as whole_at,
      case when (m.kind = 'final' or m.kind = 'notice') and m.task_id is not null and exists (
        select 1 from outbox as past
        where past.task_id = m.task_id and past.kind = 'update' and past.status = 'pending' and past.id < m.id
          and past.parts_sent = 0 and ${inChatOf(d, 'm')}
      ) then 1 else 0 end as outdates,
      case when m.parts_sent = 0 and m.maybe_repeat = 0 and (m.give_up_at <= ${p.now} or (m.rank < 0 and exists (
        select 1 from outbox as behind
        where (behind.status = 'pending' or behind.status = 'sending') and behind.channel = m.channel
          and behind.account = m.account and behind.chat = m.chat and behind.rank = 0 and behind.give_up_at <= ${p.now}
      ))) then 1 else 0 end as late
    from head cross join outbox as m
    left join chat_hold as hold on hold.channel = m.channel and hold.account = m.account and hold.chat = m.chat
    left join send_rate as own on own.channel = m.channel and own.account = m.account and own.chat = m.chat
    left join send_rate as whole on whole.channel = m.channel and whole.account = m.account and whole.chat = ''
    where m.id = head.id and m.status = 'pending' and hold.unreachable_since is null
  )
  select id, chat, outdates, late,
    case when at >= own_at and at >= whole_at then at when own_at >= whole_at then own_at else whole_at end as ready_at
  from due order by ready_at, id limit ${p.limit}`,
);

export interface MessageRow {
  id: number;
  channel: string;
  account: string;
  chat: string;
  route: string;
  session_key: string | null;
  kind: MessageKind;
  text: string;
  task_id: number | null;
  flow_id: number | null;
  maybe_repeat: number;
  safe_repeats: number;
  attempts: number;
  give_up_at: number;
  lease_until: number;
  parts_sent: number;
  platform_ids: string | null;
  dedupe_key: string | null;
  marks: string | null;
  edits: string | null;
}

const MESSAGE =
  sql.raw(`id, channel, account, chat, route, session_key, kind, text, task_id, flow_id, maybe_repeat, safe_repeats,
  attempts, give_up_at, lease_until, parts_sent, platform_ids, dedupe_key, marks, edits`);

/** Leases those that are due, the first of their chat, in a chat that is not held and has no sender. */
export const leaseMessages = hot<{ rows: unknown[][]; now: number; until: number }, MessageRow>(
  'outbox.lease',
  (d, p) => sql`
  update outbox set status = 'sending', attempts = attempts + 1, lease_until = ${p.until}
  from ${d.rows(p.rows.param, { message_id: 'int' })} as r
  where outbox.id = r.message_id and ${d.guard('outbox.status')} = 'pending' and (outbox.next_at <= ${p.now} or ${isAhead('outbox', p.now)})
    and not exists (
      select 1 from outbox as busy
      where busy.status = 'sending' and busy.channel = outbox.channel and busy.account = outbox.account and busy.chat = outbox.chat
    )
    and not exists (
      select 1 from outbox as older
      where (older.status = 'pending' or older.status = 'sending') and older.channel = outbox.channel
        and older.account = outbox.account and older.chat = outbox.chat and (older.rank, older.id) < (outbox.rank, outbox.id)
    )
    and not exists (
      select 1 from chat_hold as hold
      where hold.channel = outbox.channel and hold.account = outbox.account and hold.chat = outbox.chat
        and ${isHeld(p.now)}
    )
  returning ${MESSAGE}`,
);

/** A part has been accepted: whatever was uncertain about it is settled, the lease is extended, and nothing gets between the parts. */
export const recordParts = hot<{ rows: unknown[][]; until: number }, { id: number }>(
  'outbox.parts',
  (d, p) => sql`
  update outbox set parts_sent = r.parts, platform_ids = r.ids, maybe_repeat = 0, safe_repeats = 0, rank = -1,
    lease_until = ${p.until}
  from ${d.rows(p.rows.param, { message_id: 'int', fence: 'int', parts: 'int', ids: 'text' })} as r
  where outbox.id = r.message_id and ${d.guard('outbox.status')} = 'sending' and outbox.attempts = r.fence
  returning id`,
);

/** Ends leases; a row whose fence has moved on is left alone. `sent_at` and `parts` are null where they do not change. */
export const settleMessages = hot<{ rows: unknown[][]; now: number }, MessageRow>(
  'outbox.settle',
  (d, p) => sql`
  update outbox set status = r.new_status, next_at = r.new_next_at, error = r.new_error, maybe_repeat = r.new_maybe_repeat,
    safe_repeats = r.new_safe_repeats, parts_sent = r.parts, platform_ids = r.ids, sent_at = r.new_sent_at, lease_until = null,
    put_off_at = case when r.new_status = 'pending' then ${p.now} else outbox.put_off_at end
  from ${d.rows(p.rows.param, {
    message_id: 'int',
    fence: 'int',
    new_status: 'text',
    new_next_at: 'int',
    new_error: 'text',
    new_maybe_repeat: 'int',
    new_safe_repeats: 'int',
    parts: 'int',
    ids: 'text',
    new_sent_at: 'int',
  })} as r
  where outbox.id = r.message_id and ${d.guard('outbox.status')} = 'sending' and outbox.attempts = r.fence
  returning ${MESSAGE}`,
);

/** Of the tasks of these messages: their updates of before in the same chat that nobody has begun to send. */
export const supersedeUpdates = hot<{ rows: unknown[][]; reason: string }, { id: number }>(
  'outbox.supersede',
  (d, p) => sql`
  update outbox set status = 'superseded', error = ${p.reason}
  where outbox.status = 'pending' and outbox.id in (
    select past.id from ${d.rows(p.rows.param, { message_id: 'int' })} as r
    cross join outbox as head on head.id = r.message_id
    cross join outbox as past on past.task_id = head.task_id and past.status = 'pending' and past.id < head.id
    where past.kind = 'update' and past.parts_sent = 0 and past.maybe_repeat = 0 and ${inChatOf(d, 'head')}
  )
  returning id`,
);

/** What waits in `pending`, untouched, of these tasks; where `whole` is 0, only how they go. */
export const withdrawMessages = hot<
  { rows: unknown[][]; reason: string },
  { task_id: number; kind: string; dedupe_key: string | null }
>(
  'outbox.withdraw',
  (d, p) => sql`
  update outbox set status = 'superseded', error = ${p.reason}
  where outbox.status = 'pending' and parts_sent = 0 and maybe_repeat = 0 and outbox.id in (
    select said.id from ${d.rows(p.rows.param, { task: 'int', whole: 'int' })} as r cross join outbox as said
      on ${isOfTask('said', 'r.task')} and (r.whole = 1 or said.kind = 'update'))
  returning task_id, kind, dedupe_key`,
);

/** Messages in the hands of a sender whose lease ends at `before` or earlier. */
export const sendingMessages = hot<{ before: number }, MessageRow>(
  'outbox.sending',
  (_d, p) => sql`
  select ${MESSAGE} from outbox where status = 'sending' and lease_until <= ${p.before}
  order by lease_until`,
);

const CHAT_COLUMNS = { channel: 'text', account: 'text', chat: 'text' } as const;
const HOLD_COLUMNS = {
  ...CHAT_COLUMNS,
  until: 'int',
  unreachable_since: 'int',
  reason: 'text',
  held_at: 'int',
} as const;

export const holdChats = hot<{ rows: unknown[][] }>(
  'outbox.hold',
  (d, p) => sql`
  insert into chat_hold (channel, account, chat, until, unreachable_since, reason, held_at)
  select channel, account, chat, until, unreachable_since, reason, held_at from ${d.rows(p.rows.param, HOLD_COLUMNS)} as r
  where true
  on conflict (channel, account, chat) do update
  set until = excluded.until, unreachable_since = excluded.unreachable_since, reason = excluded.reason,
    held_at = excluded.held_at`,
);

type FreedChat = { channel: string; account: string; chat: string; unreachable_since: number; reason: string | null };

/** Frees chats that were unreachable; pauses the platform asked for stay. */
export const freeChats = hot<{ rows: unknown[][] }, FreedChat>(
  'outbox.free',
  (d, p) => sql`
  delete from chat_hold
  where unreachable_since is not null
    and (channel, account, chat) in (select r.channel, r.account, r.chat from ${d.rows(p.rows.param, CHAT_COLUMNS)} as r)
  returning channel, account, chat, unreachable_since, reason`,
);

/** Of chats that were unreachable since then: the results and questions that found it out may go after all. */
export const reviveUnreached = hot<{ rows: unknown[][]; now: number }>(
  'outbox.revive_unreached',
  (d, p) => sql`
  update outbox set status = 'pending', next_at = ${p.now}, put_off_at = ${p.now}, safe_repeats = 0
  where outbox.status = 'dead' and (outbox.kind = 'final' or outbox.kind = 'notice')
    and (outbox.channel, outbox.account, outbox.chat, outbox.next_at, outbox.error) in (
      select r.channel, r.account, r.chat, r.since, r.error from ${d.rows(p.rows.param, { ...CHAT_COLUMNS, since: 'int', error: 'text' })} as r)`,
);

export type RevivedRow = Pick<MessageRow, 'id' | 'channel' | 'account' | 'chat'>;

/** Pending again, as of now; a message of unknown fate may be a repeat. Other states are left alone. */
export function reviveMessages(tx: Tx, ids: readonly number[], giveUpAt: number): Promise<RevivedRow[]> {
  return tx.fetch<RevivedRow>(
    tx.dialect.build
      .updateTable('outbox')
      .set((eb) => ({
        status: 'pending',
        next_at: tx.now,
        put_off_at: tx.now,
        give_up_at: giveUpAt,
        safe_repeats: 0,
        maybe_repeat: eb.case().when('status', '=', 'unknown').then(1).else(eb.ref('maybe_repeat')).end(),
      }))
      .where('id', 'in', ids)
      .where((eb) => eb.or([eb('status', '=', 'unknown'), eb('status', '=', 'dead'), eb('status', '=', 'expired')]))
      .returning(['id', 'channel', 'account', 'chat']),
  );
}

export interface OutboxFilter {
  readonly status?: MessageStatus;
  readonly sessionKey?: string;
  /** Only messages older (smaller) than this id. */
  readonly before?: number;
  readonly limit: number;
}

export type ListedRow = Pick<
  OutboxTable,
  | 'id'
  | 'channel'
  | 'account'
  | 'chat'
  | 'session_key'
  | 'kind'
  | 'text'
  | 'status'
  | 'task_id'
  | 'flow_id'
  | 'maybe_repeat'
  | 'attempts'
  | 'next_at'
  | 'error'
  | 'created_at'
  | 'sent_at'
>;

/** The newest first. */
export function listMessages(reader: Reader, filter: OutboxFilter): Promise<ListedRow[]> {
  let query = reader.dialect.build
    .selectFrom('outbox')
    .select([
      'id',
      'channel',
      'account',
      'chat',
      'session_key',
      'kind',
      'text',
      'status',
      'task_id',
      'flow_id',
      'maybe_repeat',
    ])
    .select(['attempts', 'next_at', 'error', 'created_at', 'sent_at'])
    .orderBy('id', 'desc')
    .limit(filter.limit);
  if (filter.status !== undefined) query = query.where('status', '=', sql.lit(filter.status));
  if (filter.status === 'pending' || filter.status === 'sending') query = query.where(amongUnderWay);
  if (filter.sessionKey !== undefined) query = query.where('session_key', '=', filter.sessionKey);
  if (filter.before !== undefined) query = query.where('id', '<', filter.before);
  return reader.fetch<ListedRow>(query);
}

/** Leads to the index of the few that are under way; along the key they would be looked for among all that were ever sent. */
const amongUnderWay = sql<boolean>`outbox.id in (select o.id from outbox as o where o.status = 'pending' or o.status = 'sending')`;
