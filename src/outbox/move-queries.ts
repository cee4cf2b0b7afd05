import { type RawBuilder, sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/**
 * All ids as text; `old_key`/`new_key`: the conversation; `old_place`/`new_place`: the chat as it stands in the JSON of a route. `chat` is the
 * old id, `to_chat` the new one.
 */
export interface MoveParams extends Record<string, unknown> {
  channel: string;
  account: string;
  chat: string;
  to_chat: string;
  old_key: string;
  new_key: string;
  old_place: string;
  new_place: string;
}

type P = { readonly [K in keyof MoveParams]: RawBuilder<unknown> };

const routed = (p: P) => sql`replace(route, ${p.old_place}, ${p.new_place})`;

/** Tables whose rows belong to the conversation by a column that an index leads to. */
const keyed = (table: string, column = 'session_key', withRoute = false) =>
  hot<MoveParams>(
    `outbox.move_${table}`,
    (_d, p) => sql`
    update ${sql.table(table)} set ${sql.ref(column)} = ${p.new_key} ${withRoute ? sql`, route = ${routed(p)}` : sql``}
    where ${sql.ref(column)} = ${p.old_key}`,
  );

/** What waits to be sent, whoever asked for it. What is being sent finds its way by itself. */
const waiting = hot<MoveParams>(
  'outbox.move_waiting',
  (_d, p) => sql`
  update outbox set chat = ${p.to_chat}, route = ${routed(p)}
  where (status = 'pending' or status = 'sending') and channel = ${p.channel} and account = ${p.account} and chat = ${p.chat}
    and status = 'pending'`,
);

/** What a person may still ask to be sent. */
const undelivered = hot<MoveParams>(
  'outbox.move_undelivered',
  (_d, p) => sql`
  update outbox set chat = ${p.to_chat}, route = ${routed(p)}
  where (status = 'unknown' or status = 'dead' or status = 'expired') and channel = ${p.channel} and account = ${p.account}
    and chat = ${p.chat}`,
);

/** Messages not worked off yet: their answers go to the new chat. */
const unread = hot<MoveParams>(
  'outbox.move_unread',
  (_d, p) => sql`
  update inbox set route = ${routed(p)}
  where status = 'new' and channel = ${p.channel} and account = ${p.account}`,
);

const queued = hot<MoveParams>(
  'outbox.move_queued',
  (_d, p) => sql`
  update followup set session_key = ${p.new_key}, route = ${routed(p)} where status = 'queued' and session_key = ${p.old_key}`,
);

/** Where the new conversation exists already, it stays and the old one goes. */
const oldSession = hot<MoveParams>(
  'outbox.move_session_old',
  (_d, p) => sql`
  delete from session where session_key = ${p.old_key}
    and exists (select 1 from session as other where other.session_key = ${p.new_key})`,
);

const access = hot<MoveParams>(
  'outbox.move_access',
  (_d, p) => sql`
  insert into group_access (channel, account, chat, allowed_at, allowed_by, policy)
  select channel, account, ${p.to_chat}, allowed_at, allowed_by, policy from group_access
  where channel = ${p.channel} and account = ${p.account} and chat = ${p.chat}
  on conflict (channel, account, chat) do nothing`,
);

const place = (table: string) =>
  hot<MoveParams>(
    `outbox.move_forget_${table}`,
    (_d, p) => sql`
    delete from ${sql.table(table)} where channel = ${p.channel} and account = ${p.account} and chat = ${p.chat}`,
  );

/** In this order, within one transaction; each changes nothing when it is run again. */
export const MOVES = [
  waiting,
  undelivered,
  unread,
  queued,
  keyed('outbox'),
  keyed('inbox'),
  keyed('task'),
  keyed('dead_letter'),
  keyed('flow', 'owner_session_key', true),
  keyed('log_follow', 'session_key', true),
  oldSession,
  keyed('session', 'session_key', true),
  access,
  place('group_access'),
  place('chat_hold'),
  place('send_rate'),
];
