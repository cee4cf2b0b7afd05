import { type BackoffPolicy, backoffMs } from '../backoff.ts';
import type { HeldRun } from './run-queries.ts';
import type { ErrorClass, OnLost, RunOutcome } from './run-words.ts';
import type { TaskState } from './states.ts';
import { DEFAULT_RETRY, type RetryPolicy } from './task.ts';

/** How a run ended, as its agent or the server says. */
export type RunEnd =
  | { outcome: 'succeeded' }
  | { outcome: 'failed'; errorClass: ErrorClass; retryAfterMs: number | null }
  | { outcome: 'timed_out' }
  | { outcome: 'cancelled' }
  | { outcome: 'released' }
  | { outcome: 'lost' }
  | { outcome: 'blocked' | 'needs_input' };

/** What the row of the task says; all counts are of its generation. */
export interface TaskFacts {
  /** Executions so far, this one included if it had started. */
  attempt: number;
  maxAttempts: number;
  retry: RetryPolicy | null;
  cancelRequested: boolean;
  onLost: OnLost;
  /** Has the agent said that the program of this run runs? */
  started: boolean;
  /** Leases that were lost before their program was said to run. */
  unstartedLosses: number;
  /** How often it was put back for a rate limit, and for how many milliseconds in sum. */
  postponed: number;
  postponedMs: number;
  /** How often an agent gave it back. */
  handBacks: number;
  /** What is left of its time to live, milliseconds; null: no limit. */
  ttlLeftMs: number | null;
}

export interface Decision {
  to: TaskState;
  outcome: RunOutcome;
  /** For `queued`: milliseconds until it may run again. */
  delayMs: number;
  /** The execution does not count: it was stopped by us, or the other side asked to come back later. */
  refund: boolean;
  /** Why, as a stable word for `reason`; null where the state says it all. */
  reason: string | null;
  /** What is counted on the row instead of an execution, so that it cannot go on for ever. */
  setback: 'postponed' | 'unstarted_loss' | 'hand_back' | null;
}

/** Bounds of waiting for rate limits, for one generation of a task: so often, and for so long in sum (its time to live, if sooner). */
export const POSTPONE_LIMITS = { count: 1_000, totalMs: 86_400_000 } as const;

/** So many leases of a task may be lost before its program is said to run; then the task is taken for the cause. */
export const MAX_UNSTARTED_LOSSES = 10;

/** So often a task is given back before it has to wait longer every time, and before it is taken for the cause. */
export const HAND_BACK_LIMITS = { free: 10, count: 100 } as const;
const HAND_BACK_PAUSE: BackoffPolicy = { baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0 };

/** Lower bound of a wait that a rate limit without a time gets. */
const RATE_LIMIT_PAUSE_MS = 30_000;

/** @param attempt executions, the one that ends here included if it had started; @param now of the transaction */
export function factsOf(run: HeldRun, attempt: number, started: boolean, now: number): TaskFacts {
  return {
    attempt,
    maxAttempts: run.max_attempts,
    retry: policyOf(run),
    cancelRequested: run.cancel_requested_at !== null,
    onLost: run.on_lost as OnLost,
    started: started || run.status === 'running',
    unstartedLosses: run.unstarted_losses,
    handBacks: run.hand_backs,
    postponed: run.postponed,
    postponedMs: run.postponed_ms,
    // The sweep gives up on first generations only: a person who asks again wants it done.
    ttlLeftMs: run.expires_at === null || run.generation > 1 ? null : run.expires_at - now,
  };
}

/** The template's policy as it was when the task was made; null: the default. */
export function policyOf({ retry }: Pick<HeldRun, 'retry'>): RetryPolicy | null {
  return retry === null ? null : (JSON.parse(retry) as RetryPolicy);
}

/**
 * What follows when a run ends (architecture, section 5). Once cancel is requested everything but a success ends as cancelled.
 * @param random in [0, 1)
 */
export function decide(end: RunEnd, task: TaskFacts, random: () => number = Math.random): Decision {
  if (end.outcome === 'succeeded')
    return settled('succeeded', 'succeeded', task.cancelRequested ? 'finished_before_cancel' : null);
  if (end.outcome === 'cancelled' || task.cancelRequested)
    return settled('cancelled', end.outcome, task.cancelRequested ? 'cancel_requested' : 'cancelled_by_agent');
  switch (end.outcome) {
    case 'blocked':
    case 'needs_input':
      return settled('waiting', end.outcome, end.outcome);
    case 'released':
      return handedBack(task);
    case 'lost':
      return lost(task, random);
    case 'timed_out':
      return again(task, 'timed_out', 'timed_out', 'timed_out', random);
    case 'failed':
      return failed(end, task, random);
  }
}

function settled(to: TaskState, outcome: RunOutcome, reason: string | null): Decision {
  return { to, outcome, delayMs: 0, refund: false, reason, setback: null };
}

function lost(task: TaskFacts, random: () => number): Decision {
  const setback = task.started ? null : 'unstarted_loss';
  // Also before its start was reported: that report may have been on its way when the agent died.
  if (task.onLost === 'fail') return { ...settled('lost', 'lost', 'lost_not_retried'), setback };
  if (task.onLost === 'ask') return { ...settled('waiting', 'lost', 'lost_ask'), setback };
  if (!task.started && task.unstartedLosses + 1 >= MAX_UNSTARTED_LOSSES)
    return { ...settled('lost', 'lost', 'never_started'), setback };
  return { ...again(task, 'lost', 'lost', 'lease_expired', random), setback };
}

function failed(end: RunEnd & { outcome: 'failed' }, task: TaskFacts, random: () => number): Decision {
  if (end.errorClass === 'permanent') return settled('failed', 'failed', 'permanent_error');
  if (end.errorClass === 'rate_limited') return postponed(end.retryAfterMs, task);
  const decision = again(task, 'failed', 'failed', 'transient_error', random);
  if (decision.to !== 'queued' || end.retryAfterMs === null) return decision;
  return { ...decision, delayMs: Math.max(decision.delayMs, end.retryAfterMs) };
}

/** Spends no execution; an agent that gives it back again and again keeps nobody busy with it. */
function handedBack({ handBacks }: TaskFacts): Decision {
  const setback = 'hand_back';
  if (handBacks + 1 >= HAND_BACK_LIMITS.count)
    return { ...settled('failed', 'released', 'handed_back_too_often'), setback };
  const repeats = handBacks + 1 - HAND_BACK_LIMITS.free;
  const delayMs = repeats <= 0 ? 0 : backoffMs(HAND_BACK_PAUSE, repeats);
  return { ...settled('queued', 'released', 'agent_stopped'), delayMs, refund: true, setback };
}

/** Waits for its time and spends no execution, within the bounds; a wait that would pass them is not begun. */
function postponed(retryAfterMs: number | null, task: TaskFacts): Decision {
  const delayMs = Math.max(retryAfterMs ?? RATE_LIMIT_PAUSE_MS, 1_000);
  const isTooMuch =
    task.postponed >= POSTPONE_LIMITS.count ||
    task.postponedMs + delayMs > POSTPONE_LIMITS.totalMs ||
    (task.ttlLeftMs !== null && delayMs >= task.ttlLeftMs);
  if (isTooMuch) return settled('failed', 'failed', 'rate_limited_too_long');
  return { ...settled('queued', 'failed', 'rate_limited'), delayMs, refund: true, setback: 'postponed' };
}

/** Another try, or the final state `to` when all executions are used up. */
function again(task: TaskFacts, to: TaskState, outcome: RunOutcome, reason: string, random: () => number): Decision {
  const policy = task.retry ?? DEFAULT_RETRY;
  if (task.attempt >= task.maxAttempts) return settled(to, outcome, 'attempts_used_up');
  // A lost agent says nothing against the work: it goes to the next agent at once.
  const delayMs = outcome === 'lost' ? 0 : backoffMs(policy, Math.max(1, task.attempt), random);
  return { ...settled('queued', outcome, reason), delayMs };
}
