import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { FlowTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';

/** The route is the message's own; without one (made by the API) the stored destination of the conversation is copied, once. */
export const insertFlows = hot<{ rows: unknown[][]; now: number }>(
  'flow.insert',
  (d, p) => sql`
  insert into flow (id, owner_session_key, status, route, goal, notify_policy, created_at, updated_at)
  select r.id, r.session_key, 'active', coalesce(r.route, session.route), r.goal, r.notify_policy, ${p.now}, ${p.now}
  from ${d.rows(p.rows.param, { id: 'int', session_key: 'text', route: 'json', goal: 'text', notify_policy: 'text' })} as r
  left join session on session.session_key = r.session_key
  where true`,
);

/** Ends flows whose last task has ended; `status` is that of the task that ended last. */
export const endFlows = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'flow.end',
  (d, p) => sql`
  update flow set status = r.status, revision = revision + 1, updated_at = ${p.now}, ended_at = ${p.now}, blocked_summary = null,
    blocked_task_id = null
  from ${d.rows(p.rows.param, { id: 'int', status: 'text' })} as r
  where flow.id = r.id and ${d.guard('flow.ended_at')} is null and not exists (
    select 1 from task where task.flow_id = r.id and (task.status = 'queued' or task.status = 'leased' or task.status = 'running'
      or task.status = 'waiting' or task.status = 'paused'))`,
);

export const blockFlows = hot<{ rows: unknown[][]; now: number }>(
  'flow.block',
  (d, p) => sql`
  update flow set status = 'blocked', revision = revision + 1, updated_at = ${p.now}, blocked_task_id = r.task_id,
    blocked_summary = r.summary
  from ${d.rows(p.rows.param, { id: 'int', task_id: 'int', summary: 'text' })} as r
  where flow.id = r.id and ${d.guard('flow.ended_at')} is null`,
);

/** A person's retry reopens the flow, clears its cancel intent, and lifts a deadline that is over. */
export const reopenFlows = hot<{ rows: unknown[][]; now: number }>(
  'flow.reopen',
  (d, p) => sql`
  update flow set status = 'active', revision = revision + 1, updated_at = ${p.now}, ended_at = null, cancel_requested_at = null,
    blocked_task_id = null, blocked_summary = null, deadline_at = case when deadline_at > ${p.now} then deadline_at end
  from ${d.rows(p.rows.param, { id: 'int' })} as r where flow.id = r.id`,
);

export const knownSessions = hot<{ rows: unknown[][] }, { session_key: string }>(
  'session.known',
  (d, p) => sql`
  select session.session_key from ${d.rows(p.rows.param, { key: 'text' })} as r cross join session on session.session_key = r.key`,
);

export const flowById = hot<{ id: number }, FlowTable>(
  'flow.by_id',
  (_d, p) => sql`select * from flow where id = ${p.id}`,
);

export const flowTasks = hot<{ id: number }, { id: number; status: string }>(
  'flow.tasks',
  (_d, p) => sql`
  select id, status from task where flow_id = ${p.id} order by id`,
);

export async function flowsOf(
  reader: Reader,
  filter: { sessionKey?: string; status?: string; before?: number; limit: number },
): Promise<FlowTable[]> {
  let query = reader.dialect.build.selectFrom('flow').selectAll().orderBy('id', 'desc').limit(filter.limit);
  if (filter.sessionKey !== undefined) query = query.where('owner_session_key', '=', filter.sessionKey);
  if (filter.status !== undefined) query = query.where('status', '=', sql.lit(filter.status));
  if (filter.before !== undefined) query = query.where('id', '<', filter.before);
  return reader.fetch(query);
}
