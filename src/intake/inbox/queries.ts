import { sql } from 'kysely';
import { hot } from '../../store/dialect.ts';

const MESSAGE_COLUMNS = {
  id: 'int',
  channel: 'text',
  account: 'text',
  identity: 'text',
  kind: 'text',
  route: 'text',
  sender_id: 'text',
  sender_name: 'text',
  text: 'text',
  addressed: 'int',
  sent_at: 'int',
  extra: 'text',
} as const;

/** Answers which are new; an identity that is there already is left alone. */
export const insertIncoming = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'inbox.insert',
  (d, p) => sql`
  insert into inbox (id, channel, account, identity, kind, route, sender_id, sender_name, text, addressed, sent_at, extra, received_at, status)
  select id, channel, account, identity, kind, route, sender_id, sender_name, text, addressed, sent_at, extra, ${p.now}, 'new'
  from ${d.rows(p.rows.param, MESSAGE_COLUMNS)} as r
  where true
  on conflict (channel, account, identity) do nothing returning id`,
);

const STATE_COLUMNS = { channel: 'text', account: 'text', key: 'text', value: 'text' } as const;

/** Each key at most once per call. */
export const putStates = hot<{ rows: unknown[][] }>(
  'channel_state.put',
  (d, p) => sql`
  insert into channel_state (channel, account, key, value)
  select channel, account, key, value from ${d.rows(p.rows.param, STATE_COLUMNS)} as r
  where true
  on conflict (channel, account, key) do update set value = excluded.value`,
);

export const getState = hot<{ channel: string; account: string; key: string }, { value: string }>(
  'channel_state.get',
  (_d, p) =>
    sql`select value from channel_state where channel = ${p.channel} and account = ${p.account} and key = ${p.key}`,
);

/** Takes a free lease, renews an own one; no row while another holder has it. Every change of holder counts the epoch up. */
export const takeLease = hot<
  { name: string; holder: string; now: number; until: number },
  { holder: string; epoch: number }
>(
  'named_lease.take',
  (_d, p) => sql`
  insert into named_lease (name, holder, until, epoch) values (${p.name}, ${p.holder}, ${p.until}, 1)
  on conflict (name) do update set
    holder = excluded.holder,
    until = excluded.until,
    epoch = case when named_lease.holder = excluded.holder then named_lease.epoch else named_lease.epoch + 1 end
  where named_lease.holder = excluded.holder or named_lease.until <= ${p.now}
  returning holder, epoch`,
);
