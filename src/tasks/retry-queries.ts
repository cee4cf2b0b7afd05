import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** Statements of retries; all set-based, as in queries.ts. Only what goes wrong runs them. */

export const addSetbacks = hot<{ rows: unknown[][] }>(
  'retry.setbacks',
  (d, p) => sql`
  update task set postponed = task.postponed + r.postponed, postponed_ms = task.postponed_ms + r.postponed_ms,
    unstarted_losses = task.unstarted_losses + r.unstarted_losses, hand_backs = task.hand_backs + r.hand_backs
  from ${d.rows(p.rows.param, {
    id: 'int',
    postponed: 'int',
    postponed_ms: 'int',
    unstarted_losses: 'int',
    hand_backs: 'int',
  })} as r
  where task.id = r.id`,
);

/** A new generation counts from zero. */
export const clearSetbacks = hot<{ rows: unknown[][] }>(
  'retry.clear',
  (d, p) => sql`
  update task set postponed = 0, postponed_ms = 0, unstarted_losses = 0, hand_backs = 0, error_zh = null
  from ${d.rows(p.rows.param, { id: 'int' })} as r where task.id = r.id`,
);

/** The idempotency key stays: it names the request, not its repair. */
export const replaceArgs = hot<{ rows: unknown[][] }>(
  'retry.args',
  (d, p) => sql`
  update task set args = r.args, progress = null
  from ${d.rows(p.rows.param, { id: 'int', args: 'json' })} as r where task.id = r.id`,
);
