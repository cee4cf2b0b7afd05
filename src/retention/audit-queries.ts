import { sql } from 'kysely';
import { isHeld } from '../outbox/queries.ts';
import { hot } from '../store/dialect.ts';
import { streamWalk } from '../tasks/line-queries.ts';
import type {
  EffectRow,
  FlowRow,
  LiveRunRow,
  LostRow,
  MessageRow,
  NeedlessRow,
  QueuedRow,
  UndeliveredRow,
} from './findings.ts';
import type { TaskRow } from './task-faults.ts';

/** What the audit reads, and the writes that no verb has. All but the two walks read what is live or undecided and nothing else. */

/**
 * Queued tasks that have been due since `before`, of all streams but those in `rows`; goes from stream to stream along the claim
 * index.
 */
export const overdueQueued = hot<{ rows: unknown[][]; before: number; limit: number }, QueuedRow>(
  'audit.queued',
  (d, p) => sql`
  ${streamWalk}
  select t.id, stream.queue, t.run_at
  from waiting cross join stream on stream.id = waiting.stream_id cross join level cross join task as t
    on t.status = 'queued' and t.stream_id = waiting.stream_id and t.priority = level.priority and t.run_at <= ${p.before}
  where waiting.stream_id not in (select id from ${d.rows(p.rows.param, { id: 'int' })} as held)
  limit ${p.limit}`,
);

/** Live runs whose lease ended before `before`, and those that their task does not name any more. */
export const staleLiveRuns = hot<{ before: number; limit: number }, LiveRunRow>(
  'audit.runs',
  (_d, p) => sql`
  select run.id as run_id, run.task_id, run.agent_id, run.lease_until,
    case when task.run_id is not distinct from run.id then 1 else 0 end as held
  from run cross join task on task.id = run.task_id
  where run.lease_until is not null and (run.lease_until <= ${p.before} or task.run_id is distinct from run.id)
  limit ${p.limit}`,
);

/** Tasks that wait for needs which are all met, or one of which has ended (or is gone) without being marked. */
export const needlessWaits = hot<{ limit: number }, NeedlessRow>(
  'audit.needs',
  (d, p) => sql`
  select t.id, t.last_event_at from task as t
  where t.status = 'waiting' and t.status <> 'leased' and t.status <> 'running' and t.status <> 'succeeded' and t.reason = 'needs'
    and (not exists (select 1 from need where need.task_id = t.id and need.met = 0)
      or exists (select 1 from need left join task as other on other.id = need.on_task_id
        where need.task_id = t.id and ${d.guard('need.met')} = 0 and (other.id is null or other.ended_at is not null)))
  order by t.id limit ${p.limit}`,
);

export const undecidedLost = hot<{ limit: number }, LostRow>(
  'audit.lost',
  (_d, p) => sql`
  select t.id, t.ended_at from task as t
  where t.status = 'lost' and t.status <> 'leased' and t.status <> 'running' and t.status <> 'succeeded'
    and not exists (select 1 from dead_letter where dead_letter.task_id = t.id and dead_letter.state <> 'dead')
  order by t.id limit ${p.limit}`,
);

/** Final messages that did not arrive. */
export const undeliveredResults = hot<{ limit: number }, UndeliveredRow>(
  'audit.undelivered',
  (_d, p) => sql`
  select id, task_id, status, channel, chat, error, next_at from outbox
  where (status = 'unknown' or status = 'dead' or status = 'expired') and kind = 'final' and task_id is not null
  limit ${p.limit}`,
);

/** Effects that were begun by a run that is over (or gone), and not touched since `before`. */
export const openEffects = hot<{ before: number; limit: number }, EffectRow>(
  'audit.effects',
  (_d, p) => sql`
  select e.id, e.type, e.key, e.task_id, e.updated_at from effect as e
  where e.state = 'init' and e.run_id is not null and e.updated_at <= ${p.before}
    and not exists (select 1 from run where run.id = e.run_id and run.lease_until is not null)
  order by e.id limit ${p.limit}`,
);

/** Being sent by somebody who fell silent before `silent`. */
export const silentSenders = hot<{ silent: number; limit: number }, MessageRow>(
  'audit.sending',
  (_d, p) => sql`
  select id, task_id, status, channel, account, chat, next_at, lease_until from outbox
  where status = 'sending' and lease_until <= ${p.silent} limit ${p.limit}`,
);

/** Pending since `before`, the first of their chat, in a chat that is not held. */
export const overduePending = hot<{ before: number; now: number; limit: number }, MessageRow>(
  'audit.pending',
  (_d, p) => sql`
  select m.id, m.task_id, m.status, m.channel, m.account, m.chat, m.next_at, m.lease_until from outbox as m
  where (m.status = 'pending' or m.status = 'sending') and m.status = 'pending' and m.next_at <= ${p.before}
    and not exists (
      select 1 from outbox as o where (o.status = 'pending' or o.status = 'sending') and o.channel = m.channel
        and o.account = m.account and o.chat = m.chat and o.id < m.id
    )
    and not exists (
      select 1 from chat_hold as hold where hold.channel = m.channel and hold.account = m.account and hold.chat = m.chat
        and ${isHeld(p.now)}
    )
  limit ${p.limit}`,
);

export const idBounds = hot<
  Record<string, never>,
  { task: number | null; task_end: number | null; flow: number | null; flow_end: number | null }
>(
  'audit.bounds',
  () => sql`
  select (select min(id) from task) as task, (select max(id) from task) as task_end,
    (select min(id) from flow) as flow, (select max(id) from flow) as flow_end`,
);

/** Ids from `after` (not itself) to `upto`: a walk through a table in bounded steps, for faults that no index is kept for. */
interface Step extends Record<string, unknown> {
  after: number;
  upto: number;
}

export const faultyTasks = hot<Step & { ahead: number }, TaskRow>(
  'audit.tasks',
  (_d, p) => sql`
  select t.id, t.status, t.created_at, t.started_at, t.ended_at, t.cleanup_after, t.run_id,
    case when run.id is null then 0 else 1 end as run_live
  from task as t left join run on run.id = t.run_id and run.lease_until is not null
  where t.id > ${p.after} and t.id <= ${p.upto} and (
    (t.run_id is not null and run.id is null)
    or (t.ended_at is not null and (t.cleanup_after is null or t.cleanup_after < t.ended_at
      or t.ended_at > ${p.ahead} or t.created_at > ${p.ahead} or t.started_at > ${p.ahead}))
    or t.started_at < t.created_at or t.ended_at < t.created_at or t.ended_at < t.started_at
  )`,
);

export const faultyFlows = hot<Step, FlowRow>(
  'audit.flows',
  (_d, p) => sql`
  select f.id, f.status, f.ended_at, f.updated_at, f.cancel_requested_at, f.wait_target, f.live_tasks from (
    select flow.id, flow.status, flow.ended_at, flow.updated_at, flow.cancel_requested_at, flow.wait_target,
      exists (select 1 from task where task.flow_id = flow.id and task.ended_at is null) as live_tasks
    from flow where flow.id > ${p.after} and flow.id <= ${p.upto}
  ) as f
  where (f.ended_at is null) = (f.live_tasks = 0)`,
);

/** The tasks of a flow: which are not over, and which ended last. */
export const tasksOfFlow = hot<{ flow: number }, { id: number; status: string; ended_at: number | null }>(
  'audit.flow_tasks',
  (_d, p) => sql`select id, status, ended_at from task where flow_id = ${p.flow}`,
);

/** A live run that its task does not name: ended as lost, where nobody has written an end. */
export const endOrphanRun = hot<{ id: number; now: number }>(
  'audit.end_run',
  (_d, p) => sql`
  update run set lease_until = null, ended_at = coalesce(ended_at, ${p.now}), outcome = coalesce(outcome, 'lost')
  where id = ${p.id} and lease_until is not null
    and not exists (select 1 from task where task.id = run.task_id and task.run_id = run.id)`,
);

export const setCleanup = hot<{ id: number; cleanup: number }>(
  'audit.set_cleanup',
  (_d, p) => sql`
  update task set cleanup_after = ${p.cleanup} where id = ${p.id} and ended_at is not null and cleanup_after is null`,
);

export const timesOf = hot<
  { id: number },
  { created_at: number; started_at: number | null; ended_at: number | null; cleanup_after: number | null }
>('audit.times', (_d, p) => sql`select created_at, started_at, ended_at, cleanup_after from task where id = ${p.id}`);

export const setTimes = hot<{
  id: number;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  cleanup_after: number | null;
}>(
  'audit.set_times',
  (_d, p) => sql`
  update task set created_at = ${p.created_at}, started_at = ${p.started_at}, ended_at = ${p.ended_at},
    cleanup_after = ${p.cleanup_after}
  where id = ${p.id}`,
);
