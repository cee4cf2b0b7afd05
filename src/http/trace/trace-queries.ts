import { sql } from 'kysely';
import { isOfTask } from '../../outbox/queries.ts';
import { hot } from '../../store/dialect.ts';
import type { OutboxTable } from '../../store/outbox-tables.ts';
import type { EffectTable, FlowTable, FollowupTable, InboxTable } from '../../store/tables.ts';

/** How a trace finds its way from a key to everything that it touched. */

/** Tasks whose own idempotency key is this, of any template and conversation. */
export const tasksOfBusinessKey = hot<{ key: string; limit: number }, { id: number }>(
  'trace.business_key',
  (_d, p) => sql`
  select id from task where idempotency is not null and idempotency ->> '$[2]' = ${p.key} order by id limit ${p.limit}`,
);

export const effectsOfKey = hot<{ key: string; limit: number }, { id: number }>(
  'trace.effect_key',
  (_d, p) => sql`select id from effect where key = ${p.key} limit ${p.limit}`,
);

/** What an id names. */
export const thingsOfId = hot<{ id: number }, { kind: string; task_id: number | null; flow_id: number | null }>(
  'trace.id',
  (_d, p) => sql`
  select 'task' as kind, id as task_id, null as flow_id from task where id = ${p.id}
  union all select 'run', task_id, null from run where id = ${p.id}
  union all select 'flow', null, id from flow where id = ${p.id}
  union all select 'effect', null, null from effect where id = ${p.id}
  union all select 'message', null, null from inbox where id = ${p.id}
  union all select 'delivery', task_id, flow_id from outbox where id = ${p.id}`,
);

export const tasksOfFlows = hot<{ rows: unknown[][]; limit: number }, { id: number }>(
  'trace.flow_tasks',
  (d, p) => sql`
  select task.id from ${d.rows(p.rows.param, { id: 'int' })} as r cross join task on task.flow_id = r.id limit ${p.limit}`,
);

export const tracedEffects = hot<{ rows: unknown[][] }, EffectTable>(
  'trace.effects',
  (d, p) => sql`
  select effect.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join effect on effect.id = r.id`,
);

export const effectsOfTasks = hot<{ rows: unknown[][] }, { id: number }>(
  'trace.task_effects',
  (d, p) => sql`
  select effect.id from ${d.rows(p.rows.param, { id: 'int' })} as r cross join effect on effect.task_id = r.id
  union all
  select effect.id from ${d.rows(p.rows.param, { id: 'int' })} as r cross join effect on effect.first_task_id = r.id`,
);

export const tracedFlows = hot<{ rows: unknown[][] }, FlowTable>(
  'trace.flows',
  (d, p) => sql`
  select flow.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join flow on flow.id = r.id`,
);

export const followupsOfFlows = hot<{ rows: unknown[][] }, FollowupTable>(
  'trace.flow_followups',
  (d, p) => sql`
  select followup.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join followup on followup.flow_id = r.id`,
);

export const followupsOfMessages = hot<{ rows: unknown[][] }, FollowupTable>(
  'trace.message_followups',
  (d, p) => sql`
  select followup.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join followup on followup.inbox_id = r.id`,
);

export const tracedMessages = hot<{ rows: unknown[][] }, InboxTable>(
  'trace.messages',
  (d, p) => sql`
  select inbox.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join inbox on inbox.id = r.id`,
);

export const deliveriesOfTasks = hot<{ rows: unknown[][] }, OutboxTable>(
  'trace.task_deliveries',
  (d, p) => sql`
  select outbox.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join outbox on ${isOfTask('outbox', 'r.id')}`,
);

/** Direct answers to messages; see the keys in intake and followup. */
export const deliveriesOfKeys = hot<{ rows: unknown[][] }, OutboxTable>(
  'trace.key_deliveries',
  (d, p) => sql`
  select outbox.* from ${d.rows(p.rows.param, { key: 'text' })} as r cross join outbox on outbox.dedupe_key = r.key`,
);
