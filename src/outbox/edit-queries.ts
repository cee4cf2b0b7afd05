import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** Changes of messages that people read from the rows themselves. */
export const editSent = hot<{ rows: unknown[][]; now: number }, { dedupe_key: string; session_key: string | null }>(
  'outbox.edit',
  (d, p) => sql`
  update outbox set text = r.text, marks = r.marks, edited_at = ${p.now}
  from ${d.rows(p.rows.param, { dedupe_key: 'text', text: 'text', marks: 'text' })} as r
  where outbox.dedupe_key = r.dedupe_key and ${d.guard('outbox.channel')} = 'webchat' and ${d.guard('outbox.status')} = 'sent'
  returning outbox.dedupe_key, outbox.session_key`,
);

/** What nobody has begun to send says the new text when it goes. */
export const rewritePending = hot<{ rows: unknown[][] }, { dedupe_key: string }>(
  'outbox.rewrite',
  (d, p) => sql`
  update outbox set text = r.text, marks = r.marks
  from ${d.rows(p.rows.param, { dedupe_key: 'text', text: 'text', marks: 'text' })} as r
  where outbox.dedupe_key = r.dedupe_key and ${d.guard('outbox.status')} = 'pending' and outbox.parts_sent = 0
    and outbox.maybe_repeat = 0
  returning outbox.dedupe_key`,
);

/** Edits of these messages that nobody has begun and that a later one replaces. */
export const dropPendingEdits = hot<{ rows: unknown[][] }>(
  'outbox.drop_edits',
  (d, p) => sql`
  delete from outbox where ${d.guard('outbox.status')} = 'pending' and outbox.parts_sent = 0 and outbox.id in (
    select e.id from ${d.rows(p.rows.param, { edits: 'text' })} as r cross join outbox as e on e.edits = r.edits)`,
);

/** Edits that nobody has begun say the new text when they go. */
export const rewritePendingEdits = hot<{ rows: unknown[][] }, { edits: string }>(
  'outbox.rewrite_edits',
  (d, p) => sql`
  update outbox set text = r.text, marks = r.marks
  from ${d.rows(p.rows.param, { edits: 'text', text: 'text', marks: 'text' })} as r
  where outbox.id = (
    select max(o.id) from outbox as o
    where o.edits = r.edits and ${d.guard('o.status')} = 'pending' and o.parts_sent = 0 and o.maybe_repeat = 0 and o.safe_repeats = 0
  )
  returning outbox.edits`,
);

/** Marks new messages as edits. */
export const markEdits = hot<{ rows: unknown[][] }>(
  'outbox.mark_edits',
  (d, p) => sql`
  update outbox set edits = r.edits, rank = 1, next_at = r.due_at
  from ${d.rows(p.rows.param, { message_id: 'int', edits: 'text', due_at: 'int' })} as r
  where outbox.id = r.message_id`,
);

/** Of new messages: not before this. */
export const postponeMessages = hot<{ rows: unknown[][] }>(
  'outbox.postpone',
  (d, p) => sql`
  update outbox set next_at = r.due_at from ${d.rows(p.rows.param, { message_id: 'int', due_at: 'int' })} as r
  where outbox.id = r.message_id and ${d.guard('outbox.status')} = 'pending'`,
);

/** Messages of these keys that people see, or are about to. */
export const shownMessages = hot<{ rows: unknown[][] }, { dedupe_key: string }>(
  'outbox.shown',
  (d, p) => sql`
  select outbox.dedupe_key from ${d.rows(p.rows.param, { dedupe_key: 'text' })} as r
  cross join outbox on outbox.dedupe_key = r.dedupe_key
  where ${d.guard('outbox.status')} = 'sent' or ${d.guard('outbox.status')} = 'sending'`,
);

export interface TargetRow {
  id: number;
  target_id: number;
  platform_ids: string | null;
  text: string;
  marks: string | null;
}

/** What the platform shows for these edits: the newest message of the key that was sent as a message of its own. */
export const editTargets = hot<{ rows: unknown[][] }, TargetRow>(
  'outbox.edit_targets',
  (d, p) => sql`
  select r.message_id as id, t.id as target_id, t.platform_ids, t.text, t.marks
  from ${d.rows(p.rows.param, { message_id: 'int', edits: 'text' })} as r
  cross join outbox as t on t.id = coalesce(
    (select max(e.id) from outbox as e where e.edits = r.edits and e.status = 'sent' and e.platform_ids is not null),
    (select k.id from outbox as k where k.dedupe_key = r.edits and k.status = 'sent' and k.platform_ids is not null))`,
);

/** The row says what people see. */
export const showEdits = hot<{ rows: unknown[][]; now: number }>(
  'outbox.show_edits',
  (d, p) => sql`
  update outbox set text = r.text, marks = r.marks, edited_at = ${p.now}
  from ${d.rows(p.rows.param, { target_id: 'int', text: 'text', marks: 'text' })} as r
  where outbox.id = r.target_id`,
);

/** Earlier edits that were done in place: a card that is edited a thousand times leaves a few rows. */
export const forgetEdits = hot<{ rows: unknown[][] }>(
  'outbox.forget_edits',
  (d, p) => sql`
  delete from outbox where ${d.guard('outbox.status')} = 'sent' and outbox.id in (
    select e.id from ${d.rows(p.rows.param, { edits: 'text', before: 'int' })} as r
    cross join outbox as e on e.edits = r.edits and e.id < r.before and e.platform_ids is null)`,
);
