import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

export interface RateRow {
  id: number;
  channel: string;
  account: string;
  chat: string;
  route: string;
  chat_used: string | null;
  account_used: string | null;
}

/** These messages' places, and what has been used of the rates there. */
export const ratesOfMessages = hot<{ rows: unknown[][] }, RateRow>(
  'outbox.rates',
  (d, p) => sql`
  select m.id, m.channel, m.account, m.chat, m.route, own.used as chat_used, whole.used as account_used
  from ${d.rows(p.rows.param, { message_id: 'int' })} as r cross join outbox as m on m.id = r.message_id
  left join send_rate as own on own.channel = m.channel and own.account = m.account and own.chat = m.chat
  left join send_rate as whole on whole.channel = m.channel and whole.account = m.account and whole.chat = ''`,
);

export const putRates = hot<{ rows: unknown[][]; now: number }>(
  'outbox.put_rates',
  (d, p) => sql`
  insert into send_rate (channel, account, chat, used, free_at, taken_at)
  select channel, account, chat, used, free_at, ${p.now}
  from ${d.rows(p.rows.param, { channel: 'text', account: 'text', chat: 'text', used: 'text', free_at: 'int' })} as r
  where true
  on conflict (channel, account, chat) do update
  set used = excluded.used, free_at = excluded.free_at, taken_at = excluded.taken_at`,
);
