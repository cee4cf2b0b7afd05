import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { AgentAlertTable, AgentDiagnosticTable } from '../store/health-tables.ts';

/** Diagnostics of agents, alerts about them, and runs that say nothing. */

export const insertDiagnostic = hot<{ id: number; agent: string; now: number; failed: string; bundle: string }>(
  'health.insert_diagnostic',
  (_d, p) => sql`
  insert into agent_diagnostic (id, agent_id, at, failed, bundle) values (${p.id}, ${p.agent}, ${p.now}, ${p.failed}, ${p.bundle})`,
);

/** All of an agent but the newest `keep`. */
export const pruneDiagnostics = hot<{ agent: string; keep: number }>(
  'health.prune_diagnostics',
  (_d, p) => sql`
  delete from agent_diagnostic where agent_id = ${p.agent} and id <= coalesce(
    (select id from agent_diagnostic where agent_id = ${p.agent} order by id desc limit 1 offset ${p.keep}), 0)`,
);

/** The newest first. */
export const diagnosticsOfAgent = hot<{ agent: string; limit: number }, AgentDiagnosticTable>(
  'health.diagnostics',
  (_d, p) => sql`select * from agent_diagnostic where agent_id = ${p.agent} order by id desc limit ${p.limit}`,
);

export interface AlertRow {
  agent_id: string;
  /** Null: it is not marked as offline, or there is no such agent any more. */
  offline_at: number | null;
  last_seen_at: number | null;
  /** When people were told that it is away; null: they were not. */
  told_at: number | null;
  back_at: number | null;
}

/** Agents that are away, and those of which people believe it. As many agents as there are, and no other table. */
export const alertStates = hot<Record<string, never>, AlertRow>(
  'health.alert_states',
  () => sql`
  select agent.agent_id, agent.offline_at, agent.last_seen_at, agent_alert.told_at, agent_alert.back_at
  from agent left join agent_alert on agent_alert.agent_id = agent.agent_id
  where agent.offline_at is not null or agent_alert.told_at is not null`,
);

export const insertAlerts = hot<{ rows: unknown[][]; now: number }, Pick<AgentAlertTable, 'agent_id'>>(
  'health.insert_alerts',
  (d, p) => sql`
  insert into agent_alert (agent_id, offline_at, told_at, back_at)
  select agent_id, offline_at, ${p.now}, null from ${d.rows(p.rows.param, { agent_id: 'text', offline_at: 'int' })} as r
  where true on conflict do nothing returning agent_id`,
);

export const markBack = hot<{ rows: unknown[][] }>(
  'health.mark_back',
  (d, p) => sql`
  update agent_alert set back_at = r.back_at from ${d.rows(p.rows.param, { agent_id: 'text', back_at: 'int' })} as r
  where agent_alert.agent_id = r.agent_id`,
);

export const deleteAlerts = hot<{ rows: unknown[][] }, Pick<AgentAlertTable, 'agent_id' | 'offline_at'>>(
  'health.delete_alerts',
  (d, p) => sql`
  delete from agent_alert where agent_id in (select agent_id from ${d.rows(p.rows.param, { agent_id: 'text' })} as r)
  returning agent_id, offline_at`,
);

export interface RunActivity {
  run_id: number;
  template: string;
  agent_id: string;
  started_at: number;
  /** When it was heard of last; null: never. */
  said_at: number | null;
}

/** Runs whose program is under way, with the time of the newest word about each. Only what is held now is looked at. */
export const runActivity = hot<Record<string, never>, RunActivity>(
  'health.run_activity',
  () => sql`
  select run.id as run_id, task.template, run.agent_id, run.started_at,
    (select event.at from event where event.task_id = run.task_id and event.run_id = run.id order by event.seq desc limit 1) as said_at
  from run cross join task on task.id = run.task_id
  where run.lease_until is not null and run.started_at is not null`,
);
