import type { Tx } from '../store/tx.ts';
import { forgetCheckpoints } from './checkpoints.ts';
import type { Decision } from './decide.ts';
import { applyTransitions } from './queries.ts';
import { addSetbacks } from './retry-queries.ts';
import { endRuns, type HeldRun } from './run-queries.ts';
import type { ErrorClass } from './run-words.ts';
import { type FinalState, isFinal, type NotifyPolicy, type TaskState } from './states.ts';
import type { Emit, TaskEnd, TaskEvent, TaskRef, TaskRefRow } from './task.ts';

/** What a run leaves behind beside its state. */
export interface RunResult {
  summary: string | null;
  outputs: Record<string, string> | null;
  error: string | null;
  errorClass: ErrorClass | null;
  exitCode: number | null;
  signal: string | null;
  question: { prompt: string; options: string[] } | null;
}

export const NO_RESULT: RunResult = {
  summary: null,
  outputs: null,
  error: null,
  errorClass: null,
  exitCode: null,
  signal: null,
  question: null,
};

/** The end of one held run and what follows for its task. */
export interface RunEnding {
  run: HeldRun;
  decision: Decision;
  result: RunResult;
  /** The agent said that the program ran, though its `started` report may come in the same batch. */
  started: boolean;
}

/**
 * Ends runs: the task's compare-and-set transition, the run row, the events. Answers per ending whether it took effect; false means
 * that somebody else moved the task on meanwhile, and nothing was changed.
 */
export async function endHeldRuns(tx: Tx, endings: readonly RunEnding[], emit: Emit<TaskEvent>): Promise<boolean[]> {
  if (endings.length === 0) return [];
  const applied = await tx.all(applyTransitions, {
    rows: endings.map((ending) => transitionRow(ending, tx)),
    now: tx.now,
  });
  const won = applied.length === endings.length ? null : new Set(applied.map((row) => row.id));
  const effective = won ? endings.filter(({ run }) => won.has(run.task_id)) : endings;
  await tx.run(endRuns, { rows: effective.map((ending) => runRow(ending, tx.now)), now: tx.now });
  const setbacks = effective.flatMap(setbackRow);
  if (setbacks.length > 0) await tx.run(addSetbacks, { rows: setbacks });
  const done = effective.filter(({ run, decision }) => decision.to === 'succeeded' && run.checkpoint_version !== null);
  if (done.length > 0)
    await forgetCheckpoints(
      tx,
      done.map(({ run }) => run.task_id),
    );
  emit(
    tx,
    effective.flatMap((ending) => eventsOf(ending, tx.now)),
  );
  return endings.map(({ run }) => won === null || won.has(run.task_id));
}

/** Executions after this run: `started` counts it, a refund takes it back. */
export function attemptsAfter(run: HeldRun, started: boolean, refund: boolean): number {
  const counted = run.status === 'leased' && started ? run.attempt + 1 : run.attempt;
  return refund && (run.status === 'running' || started) ? counted - 1 : counted;
}

function transitionRow({ run, decision, result, started }: RunEnding, { now, retentionMs }: Tx): unknown[] {
  const ended = isFinal(decision.to);
  const silent = run.session_key === null || run.notify_policy === 'silent';
  return [
    run.task_id,
    run.status,
    run.run_id,
    decision.to,
    null,
    decision.to === 'queued' ? queuedAt(run, decision, now) : null,
    attemptsAfter(run, started, decision.refund),
    run.generation,
    run.cancel_requested_at,
    run.started_at ?? (started ? now : null),
    ended ? now : null,
    result.summary,
    result.outputs,
    result.error,
    result.errorClass,
    decision.reason,
    result.question,
    ended ? now + retentionMs : null,
    ended ? (silent ? 'not_applicable' : 'session_queued') : null,
  ];
}

/** A task that goes on at once keeps its place among those that have waited as long as it has. */
function queuedAt(run: HeldRun, { delayMs }: Decision, now: number): number {
  return delayMs === 0 ? Math.min(run.run_at, now) : now + delayMs;
}

function setbackRow({ run, decision: { setback, delayMs } }: RunEnding): unknown[][] {
  switch (setback) {
    case null:
      return [];
    case 'postponed':
      return [[run.task_id, 1, delayMs, 0, 0]];
    case 'unstarted_loss':
      return [[run.task_id, 0, 0, 1, 0]];
    case 'hand_back':
      return [[run.task_id, 0, 0, 0, 1]];
  }
}

function runRow({ run, decision, result, started }: RunEnding, now: number): unknown[] {
  return [
    run.run_id,
    run.run_started_at ?? (started ? now : null),
    decision.outcome,
    result.errorClass,
    result.error,
    result.exitCode,
    result.signal,
  ];
}

function eventsOf({ run, decision, result, started }: RunEnding, now: number): TaskEvent[] {
  const ref = refOf(run);
  const events: TaskEvent[] = [
    { type: 'task.state', from: run.status as TaskState, to: decision.to, reason: decision.reason, ...ref },
  ];
  if (isFinal(decision.to))
    events.push({
      type: 'task.ended',
      state: decision.to as FinalState,
      end: endOf(run, decision, result, started, now),
      ...ref,
    });
  if (decision.to === 'queued')
    events.push({
      type: 'task.queued',
      streamId: run.stream_id,
      priority: run.priority,
      runAt: queuedAt(run, decision, now),
      ...ref,
    });
  if (decision.to === 'waiting') {
    events.push({
      type: 'task.blocked',
      summary: result.question?.prompt ?? result.summary ?? '',
      question: result.question !== null,
      reason: decision.reason,
      ...ref,
    });
  }
  return events;
}

function endOf(run: HeldRun, decision: Decision, result: RunResult, started: boolean, now: number): TaskEnd {
  return {
    summary: result.summary,
    error: result.error,
    errorClass: result.errorClass,
    reason: decision.reason,
    attempt: attemptsAfter(run, started, decision.refund),
    tookMs: Math.max(0, now - run.created_at),
    finishedBeforeCancel: decision.reason === 'finished_before_cancel',
  };
}

export function refOf(row: TaskRefRow & { task_id: number }): TaskRef {
  const ref: TaskRef = {
    id: row.task_id,
    template: row.template,
    label: row.label,
    flowId: row.flow_id,
    sessionKey: row.session_key,
    notifyPolicy: row.notify_policy as NotifyPolicy,
    generation: row.generation,
  };
  if (row.graph === 1) ref.graph = true;
  return ref;
}
