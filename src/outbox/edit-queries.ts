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
