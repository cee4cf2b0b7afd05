import { sql } from 'kysely';
import type { Lang } from '../sessions/lang.ts';
import { hot } from '../store/dialect.ts';

/** Where the messages of a flow go, and what decides their language. */
export interface FlowHome {
  id: number;
  /** JSON of the route; null: nobody can be told. */
  route: string | null;
  owner_session_key: string;
  goal: string;
  lang: Lang | null;
  /** 1: told as a whole, once it has ended. */
  graph: number;
  status: string;
  notify_policy: string;
  created_at: number;
  ended_at: number | null;
}

/** The homes of all flows of a batch. */
export const flowHomes = hot<{ rows: unknown[][] }, FlowHome>(
  'notify.homes',
  (d, p) => sql`
  select flow.id, flow.route, flow.owner_session_key, flow.goal, session.lang, flow.graph, flow.status, flow.notify_policy,
    flow.created_at, flow.ended_at
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join flow on flow.id = r.id
  left join session on session.session_key = flow.owner_session_key`,
);

/** How the tasks of a flow ended. */
export const graphCounts = hot<{ flow: number }, { status: string; skipped: number; count: number }>(
  'notify.graph_counts',
  (_d, p) => sql`
  select status, case when reason = 'dependency_failed' then 1 else 0 end as skipped, count(*) as count
  from task where flow_id = ${p.flow} group by 1, 2`,
);

export interface TroubleRow {
  id: number;
  template: string;
  label: string | null;
  status: string;
  error: string | null;
  errorZh: string | null;
  reason: string | null;
  attempt: number;
}

/** The first tasks of a flow that did not succeed, without those that were skipped. */
export const graphTroubles = hot<{ flow: number; limit: number }, TroubleRow>(
  'notify.graph_troubles',
  (_d, p) => sql`
  select id, template, label, status, error, error_zh as "errorZh", reason, attempt from task
  where flow_id = ${p.flow} and status <> 'succeeded' and reason is not 'dependency_failed' order by id limit ${p.limit}`,
);

/** What the tasks that no other needs have said of their success. */
export const graphResults = hot<
  { flow: number; limit: number },
  { template: string; label: string | null; summary: string }
>(
  'notify.graph_results',
  (_d, p) => sql`
  select template, label, summary from task
  where flow_id = ${p.flow} and status = 'succeeded' and summary is not null and summary <> ''
    and not exists (select 1 from need where need.on_task_id = task.id) order by id limit ${p.limit}`,
);
