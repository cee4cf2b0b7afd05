import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { Tx } from '../store/tx.ts';
import type { MessageKind } from './message.ts';

export interface LateRow {
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
  dedupe_key: string | null;
  /** 1: it is such a list itself, and its lines may change. */
  is_digest: number;
}

/** What begins the dedupe key of a message that lists others. */
export const DIGEST_KEY = 'digest:';

/** In the chats of these messages, untouched: what has waited longer than it was meant to, and lists of such. */
export const lateMessages = hot<{ rows: unknown[][]; now: number }, LateRow>(
  'outbox.late',
  (d, p) => sql`
  select m.id, m.channel, m.account, m.chat, m.route, m.session_key, m.kind, m.text, m.task_id, m.flow_id,
    m.dedupe_key, case when m.rank < 0 then 1 else 0 end as is_digest
  from ${d.rows(p.rows.param, { message_id: 'int' })} as r
  cross join outbox as head on head.id = r.message_id
  cross join outbox as m on (m.status = 'pending' or m.status = 'sending') and m.channel = head.channel
    and m.account = head.account and m.chat = head.chat
  where m.status = 'pending' and m.parts_sent = 0 and m.maybe_repeat = 0 and (m.give_up_at <= ${p.now} or m.rank < 0)
  order by m.id`,
);

/** They will not come by themselves; `digest_id` is null where they are not listed either. */
export const giveUpLate = hot<{ rows: unknown[][] }>(
  'outbox.give_up_late',
  (d, p) => sql`
  update outbox set status = 'expired', error = r.reason, digest_id = r.digest_id
  from ${d.rows(p.rows.param, { message_id: 'int', reason: 'text', digest_id: 'int' })} as r
  where outbox.id = r.message_id and ${d.guard('outbox.status')} = 'pending'`,
);

export interface MemberRow {
  digest_id: number;
  id: number;
  channel: string;
  account: string;
  chat: string;
  session_key: string | null;
  kind: MessageKind;
  text: string;
  task_id: number | null;
  flow_id: number | null;
  dedupe_key: string | null;
}

/** What these lists list and nobody has asked to be sent by itself since, the oldest first. */
export const digestMembers = hot<{ rows: unknown[][] }, MemberRow>(
  'outbox.digest_members',
  (d, p) => sql`
  select m.digest_id, m.id, m.channel, m.account, m.chat, m.session_key, m.kind, m.text, m.task_id, m.flow_id, m.dedupe_key
  from ${d.rows(p.rows.param, { digest_id: 'int' })} as r cross join outbox as m on m.digest_id = r.digest_id
  where m.status = 'expired' order by m.id`,
);

/** Writes a list, or its lines anew; it goes before all that waits in its chat. */
export async function putDigest(
  tx: Tx,
  digest: Pick<LateRow, 'id' | 'channel' | 'account' | 'chat' | 'route' | 'session_key' | 'text'> & {
    readonly giveUpAt: number;
  },
): Promise<void> {
  const { id, channel, account, chat, route, session_key, text, giveUpAt } = digest;
  await tx.exec(
    tx.dialect.build
      .insertInto('outbox')
      .values({
        ...{ id, channel, account, chat, route, session_key, text, kind: 'final', status: 'pending' },
        ...{ task_id: null, flow_id: null, dedupe_key: `${DIGEST_KEY}${id}`, rank: -1, give_up_at: giveUpAt },
        ...{ next_at: tx.now, created_at: tx.now, maybe_repeat: 0, safe_repeats: 0, attempts: 0, parts_sent: 0 },
        ...{ put_off_at: null, lease_until: null, platform_ids: null, error: null, sent_at: null, edited_at: null },
        ...{ edits: null, digest_id: null },
      })
      .onConflict((conflict) => conflict.column('id').doUpdateSet({ text, give_up_at: giveUpAt })),
  );
}
