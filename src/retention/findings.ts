/** What `errand tasks audit` looks for. Pure: rows in, findings out. */

export const FINDING_CODES = [
  'stale_queued',
  'stale_running',
  'stuck_needs',
  'lost',
  'delivery_failed',
  'missing_cleanup',
  'inconsistent_times',
  'orphaned_flow',
  'stuck_effect',
  'stuck_outbox',
] as const;
export type FindingCode = (typeof FINDING_CODES)[number];

/** What `--fix` does about a finding; null: only a person can. */
export type Fix =
  | 'serve_agents'
  | 'sweep'
  | 'end_run'
  | 'lose_task'
  | 'settle_needs'
  | 'resend'
  | 'set_cleanup'
  | 'correct_times'
  | 'end_flow'
  | 'reopen_flow'
  | 'cancel_tasks'
  | 'take_from_sender'
  | 'wake_delivery';

export interface Finding {
  readonly code: FindingCode;
  readonly kind: 'task' | 'run' | 'flow' | 'message' | 'effect';
  readonly id: number;
  readonly taskId: number | null;
  /** Since when, epoch milliseconds; null where that means nothing. */
  readonly since: number | null;
  /** What is wrong, in one sentence. */
  readonly problem: string;
  readonly fix: Fix | null;
  /** What a person can do, where no fix helps (or did not). */
  readonly advice: string;
}

export interface QueuedRow {
  id: number;
  queue: string;
  run_at: number;
}

export interface AgentFacts {
  readonly agentId: string;
  readonly queues: ReadonlySet<string>;
  /** Places for further runs. */
  readonly free: number;
}

/** Due tasks that nobody takes although an agent that may take them is online and has room. A task nobody may take is no fault. */
export function staleQueued(rows: readonly QueuedRow[], agents: readonly AgentFacts[]): Finding[] {
  return rows.flatMap((row): Finding[] => {
    const idle = agents.find((agent) => agent.free > 0 && agent.queues.has(row.queue));
    if (!idle) return [];
    return [
      {
        code: 'stale_queued',
        kind: 'task',
        id: row.id,
        taskId: row.id,
        since: row.run_at,
        problem: `due, agent ${idle.agentId} is online with room for it, and nobody takes it`,
        fix: 'serve_agents',
        advice: `see why agent ${idle.agentId} does not ask for work: its log, its connection`,
      },
    ];
  });
}

export interface LiveRunRow {
  run_id: number;
  task_id: number;
  agent_id: string;
  lease_until: number;
  /** 1 where the task says that this run holds it. */
  held: number;
}

/** Live runs whose lease is long over, and live runs of tasks that have moved on. */
export function staleRuns(rows: readonly LiveRunRow[]): Finding[] {
  return rows.map((row) => ({
    code: 'stale_running',
    kind: 'run',
    id: row.run_id,
    taskId: row.task_id,
    since: row.lease_until,
    problem:
      row.held === 1
        ? `on agent ${row.agent_id}, its lease is over and nobody ended it`
        : `a run on agent ${row.agent_id} still counts as live, but its task has moved on`,
    fix: row.held === 1 ? 'sweep' : 'end_run',
    advice: 'see the log of the gateway for sweeps that fail',
  }));
}

export interface NeedlessRow {
  id: number;
  last_event_at: number;
}

/** Tasks that wait for needs although nothing of what they need is to come. */
export function stuckNeeds(rows: readonly NeedlessRow[]): Finding[] {
  return rows.map((row) => ({
    code: 'stuck_needs',
    kind: 'task',
    id: row.id,
    taskId: row.id,
    since: row.last_event_at,
    problem: 'waits for tasks that it needs, and they have all ended',
    fix: 'settle_needs',
    advice: 'cancel it (errand tasks cancel) and submit it again',
  }));
}

export interface LostRow {
  id: number;
  ended_at: number;
}

export function lostTasks(rows: readonly LostRow[]): Finding[] {
  return rows.map((row) => ({
    code: 'lost',
    kind: 'task',
    id: row.id,
    taskId: row.id,
    since: row.ended_at,
    problem: 'lost: its agent stopped answering, and nobody knows how far it came',
    fix: null,
    advice: 'look how far it came, then run it again (errand tasks retry) or discard it (errand dead-letters discard)',
  }));
}

export interface UndeliveredRow {
  id: number;
  task_id: number;
  status: string;
  channel: string;
  chat: string;
  error: string | null;
  next_at: number;
}

export function failedDeliveries(rows: readonly UndeliveredRow[]): Finding[] {
  return rows.map((row) => ({
    code: 'delivery_failed',
    kind: 'message',
    id: row.id,
    taskId: row.task_id,
    since: row.next_at,
    problem: `the result did not reach ${row.channel}:${row.chat} (${row.status}${row.error === null ? '' : `: ${row.error}`})`,
    // Of unknown fate: sent again it may be there twice, which a person decides.
    fix: row.status === 'unknown' ? null : 'resend',
    advice:
      row.status === 'unknown'
        ? 'it may have arrived: look into the chat, then send it again (errand outbox resend) or leave it'
        : 'see why the platform refuses it, then send it again (errand outbox resend)',
  }));
}

export interface FlowRow {
  id: number;
  status: string;
  ended_at: number | null;
  updated_at: number;
  cancel_requested_at: number | null;
  wait_target: string | null;
  /** 1 where a task of it is not over. */
  live_tasks: number;
}

/** Live flows that nothing will ever end, and ended ones whose tasks go on. A flow that waits for something else is neither. */
export function orphanedFlows(rows: readonly FlowRow[]): Finding[] {
  return rows.flatMap((row): Finding[] => {
    const ended = row.ended_at !== null;
    if (ended === (row.live_tasks === 0)) return [];
    if (!ended && row.status === 'waiting' && row.wait_target !== null) return [];
    const fix = !ended ? 'end_flow' : row.status === 'cancelled' ? 'cancel_tasks' : 'reopen_flow';
    return [
      {
        code: 'orphaned_flow',
        kind: 'flow',
        id: row.id,
        taskId: null,
        since: row.updated_at,
        problem: ended ? `${row.status}, but a task of it is not over` : `${row.status}, but all its tasks are over`,
        fix,
        advice: 'cancel or retry its tasks (errand flows show, errand tasks cancel)',
      },
    ];
  });
}

export interface EffectRow {
  id: number;
  type: string;
  key: string;
  task_id: number;
  updated_at: number;
}

export function stuckEffects(rows: readonly EffectRow[]): Finding[] {
  return rows.map((row) => ({
    code: 'stuck_effect',
    kind: 'effect',
    id: row.id,
    taskId: row.task_id,
    since: row.updated_at,
    problem: `effect ${row.type} ${row.key} was begun by a run that is over, and nobody said how it ended`,
    fix: null,
    advice: 'find out whether it took place, then say so (errand effects resolve)',
  }));
}

export interface MessageRow {
  id: number;
  task_id: number | null;
  status: string;
  channel: string;
  account: string;
  chat: string;
  next_at: number;
  lease_until: number | null;
}

/** @param channels that this gateway serves, as `channel/account` */
export function stuckMessages(rows: readonly MessageRow[], channels: ReadonlySet<string>): Finding[] {
  return rows.map((row) => {
    const message = { code: 'stuck_outbox', kind: 'message', id: row.id, taskId: row.task_id } as const;
    const chat = `${row.channel}:${row.chat}`;
    if (row.status === 'sending') {
      return {
        ...message,
        since: row.lease_until,
        problem: `being sent to ${chat}, but its sender has been silent for too long`,
        fix: 'take_from_sender',
        advice: 'see the log of the gateway for deliveries that fail',
      };
    }
    const served = channels.has(`${row.channel}/${row.account}`);
    return {
      ...message,
      since: row.next_at,
      problem: `to ${chat}, was to be sent and is not${served ? '' : '; this gateway has no such channel'}`,
      fix: served ? 'wake_delivery' : null,
      advice: served
        ? 'see the log of the gateway for deliveries that fail'
        : `set the channel ${row.channel} up again`,
    };
  });
}
