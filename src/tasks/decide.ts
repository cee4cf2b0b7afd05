import { backoffMs } from '../backoff.ts';
import type { ErrorClass, RunOutcome } from './run-words.ts';
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

export interface TaskFacts {
  /** Executions so far, this one included if it had started. */
  attempt: number;
  maxAttempts: number;
  retry: RetryPolicy | null;
  cancelRequested: boolean;
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
}

/** Lower bound of a wait that a rate limit without a time gets. */
const RATE_LIMIT_PAUSE_MS = 30_000;

/**
 * What follows when a run ends (architecture, section 5). Once cancel is requested everything but a success ends as cancelled.
 * @param random in [0, 1)
 */
export function decide(end: RunEnd, task: TaskFacts, random: () => number = Math.random): Decision {
  if (end.outcome === 'succeeded') {
    return {
      to: 'succeeded',
      outcome: 'succeeded',
      delayMs: 0,
      refund: false,
      reason: task.cancelRequested ? 'finished_before_cancel' : null,
    };
  }
  if (end.outcome === 'cancelled' || task.cancelRequested) {
    return {
      to: 'cancelled',
      outcome: end.outcome,
      delayMs: 0,
      refund: false,
      reason: task.cancelRequested ? 'cancel_requested' : 'cancelled_by_agent',
    };
  }
  switch (end.outcome) {
    case 'blocked':
    case 'needs_input':
      return { to: 'waiting', outcome: end.outcome, delayMs: 0, refund: false, reason: end.outcome };
    case 'released':
      return { to: 'queued', outcome: 'released', delayMs: 0, refund: true, reason: 'agent_stopped' };
    case 'lost':
      return again(task, 'lost', 'lost', 'lease_expired', random);
    case 'timed_out':
      return again(task, 'timed_out', 'timed_out', 'timed_out', random);
    case 'failed':
      return failed(end, task, random);
  }
}

function failed(end: RunEnd & { outcome: 'failed' }, task: TaskFacts, random: () => number): Decision {
  if (end.errorClass === 'permanent')
    return { to: 'failed', outcome: 'failed', delayMs: 0, refund: false, reason: 'permanent_error' };
  if (end.errorClass === 'rate_limited') {
    const delayMs = Math.max(end.retryAfterMs ?? RATE_LIMIT_PAUSE_MS, 1_000);
    return { to: 'queued', outcome: 'failed', delayMs, refund: true, reason: 'rate_limited' };
  }
  const decision = again(task, 'failed', 'failed', 'transient_error', random);
  if (decision.to !== 'queued' || end.retryAfterMs === null) return decision;
  return { ...decision, delayMs: Math.max(decision.delayMs, end.retryAfterMs) };
}

/** Another try, or the final state `to` when all executions are used up. */
function again(task: TaskFacts, to: TaskState, outcome: RunOutcome, reason: string, random: () => number): Decision {
  const policy = task.retry ?? DEFAULT_RETRY;
  if (task.attempt >= task.maxAttempts) return { to, outcome, delayMs: 0, refund: false, reason: 'attempts_used_up' };
  // A lost agent says nothing against the work: it goes to the next agent at once.
  const delayMs = outcome === 'lost' ? 0 : backoffMs(policy, Math.max(1, task.attempt), random);
  return { to: 'queued', outcome, delayMs, refund: false, reason };
}
