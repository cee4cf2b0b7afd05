/**
 * The life of a task: one table that the verbs execute. `docs/states.md` holds its picture, generated from here.
 * Final states are written once per generation; a person's retry starts the next generation.
 */
export const TASK_STATES = [
  'waiting',
  'queued',
  'leased',
  'running',
  'paused',
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
  'lost',
] as const;
export type TaskState = (typeof TASK_STATES)[number];

export const FINAL_STATES = [
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
  'lost',
] as const satisfies readonly TaskState[];
export type FinalState = (typeof FINAL_STATES)[number];

export const isFinal = (state: TaskState): state is FinalState => (FINAL_STATES as readonly string[]).includes(state);
/** On an agent, under a lease. */
export const isHeld = (state: TaskState): boolean => state === 'leased' || state === 'running';

export const TASK_VERBS = {
  release: { from: ['waiting'], to: ['queued', 'cancelled'] },
  claim: { from: ['queued'], to: ['leased'] },
  start: { from: ['leased'], to: ['running'] },
  heartbeat: { from: ['leased', 'running'], to: ['leased', 'running'] },
  // The report of an end implies the start: both are one write where the `started` report is late or lost.
  ask: { from: ['leased', 'running'], to: ['waiting', 'cancelled'] },
  succeed: { from: ['leased', 'running'], to: ['succeeded'] },
  fail: { from: ['leased', 'running'], to: ['queued', 'failed', 'cancelled'] },
  time_out: { from: ['leased', 'running'], to: ['queued', 'timed_out', 'cancelled'] },
  release_lease: { from: ['leased', 'running'], to: ['queued', 'failed', 'cancelled'] },
  expire: { from: ['leased', 'running'], to: ['queued', 'waiting', 'lost', 'cancelled'] },
  confirm_cancel: { from: ['leased', 'running'], to: ['cancelled'] },
  give_up: { from: ['queued', 'waiting'], to: ['failed'] },
  cancel: { from: ['waiting', 'queued', 'paused'], to: ['cancelled'] },
  pause: { from: ['queued'], to: ['paused'] },
  resume: { from: ['paused'], to: ['queued'] },
  retry: { from: ['failed', 'timed_out', 'cancelled', 'lost'], to: ['queued', 'waiting'] },
} as const satisfies Record<string, { from: readonly TaskState[]; to: readonly TaskState[] }>;
export type TaskVerb = keyof typeof TASK_VERBS;

/** May `verb` be applied to a task in this state? */
export function allows(verb: TaskVerb, state: TaskState): boolean {
  return (TASK_VERBS[verb].from as readonly TaskState[]).includes(state);
}

export const TASK_SOURCES = ['chat', 'cron', 'hook', 'api', 'workflow', 'subagent'] as const;
export type TaskSource = (typeof TASK_SOURCES)[number];

export const NOTIFY_POLICIES = ['done_only', 'state_changes', 'silent'] as const;
export type NotifyPolicy = (typeof NOTIFY_POLICIES)[number];

/** Cron is silent unless told otherwise, everything else reports its end. */
export function defaultNotifyPolicy(source: TaskSource): NotifyPolicy {
  return source === 'cron' ? 'silent' : 'done_only';
}

/**
 * What became of the task's result on its way home; `docs/states.md` defines each.
 * `session_queued`: the final message is a row of the conversation's outgoing queue.
 */
export const DELIVERY_STATES = [
  'pending',
  'delivered',
  'session_queued',
  'failed',
  'parent_missing',
  'not_applicable',
] as const;
export type DeliveryStatus = (typeof DELIVERY_STATES)[number];

/**
 * Dead letters: `dead` waits for a decision, `replayed` was started again by a person, `recovered` is that and has succeeded since,
 * `discarded` was put away.
 */
export const LETTER_STATES = ['dead', 'replayed', 'recovered', 'discarded'] as const;
export type LetterState = (typeof LETTER_STATES)[number];

export const PRIORITIES = ['high', 'normal', 'low'] as const;
export type Priority = (typeof PRIORITIES)[number];
export const priorityNumber = (priority: Priority): number => PRIORITIES.indexOf(priority);
