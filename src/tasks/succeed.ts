import type { Tx } from '../store/tx.ts';
import { forgetCheckpoints } from './checkpoints.ts';
import type { RunNews, RunReport } from './report.ts';
import { type LiveRun, liveRuns, succeedRuns, succeedTasks } from './succeed-queries.ts';
import type { Emit, TaskEvent } from './task.ts';
import { refOf } from './transition.ts';

type Success = Extract<RunNews, { type: 'succeeded' }>;

/**
 * The common end, in the fewest statements: runs of which this batch holds a success, and nothing else but their start. Answers the
 * reports it has applied; whatever is not plain (late, repeated, not theirs) is left to the others.
 */
export async function endSucceeded(
  tx: Tx,
  reports: readonly RunReport[],
  emit: Emit<TaskEvent>,
): Promise<ReadonlySet<RunReport>> {
  const ends = plainSuccesses(reports);
  if (ends.size === 0) return NONE;
  const rows = [...ends.values()].map(({ runId, agentId, leaseToken }) => [runId, agentId, leaseToken]);
  const live = await tx.all(liveRuns, { rows });
  if (live.length === 0) return NONE;
  await finish(tx, live, ends, emit);
  return new Set(partsOf(reports, ends, live));
}

const NONE: ReadonlySet<RunReport> = new Set();

/** By run: the success of each run of which the batch tells nothing else but the start. */
function plainSuccesses(reports: readonly RunReport[]): Map<number, RunReport> {
  const ends = new Map<number, RunReport>();
  const mixed = new Set<number>();
  for (const report of reports) {
    const { type } = report.news;
    if (type === 'started') continue;
    if (type !== 'succeeded' || ends.has(report.runId)) mixed.add(report.runId);
    else ends.set(report.runId, report);
  }
  for (const runId of mixed) ends.delete(runId);
  return ends;
}

async function finish(
  tx: Tx,
  live: readonly LiveRun[],
  ends: ReadonlyMap<number, RunReport>,
  emit: Emit<TaskEvent>,
): Promise<void> {
  const news = live.map(({ run_id }) => ends.get(run_id)!.news as Success);
  const runs = live.map(({ run_id }, index) => [run_id, news[index]!.exitCode ?? null]);
  const tasks = live.map(({ id, run_id }, index) => [id, run_id, news[index]!.summary, news[index]!.outputs ?? null]);
  const ended = await tx.run(succeedRuns, { rows: runs, now: tx.now });
  const finished = await tx.run(succeedTasks, { rows: tasks, now: tx.now, cleanup: tx.now + tx.retentionMs });
  if (ended !== live.length || finished !== live.length)
    throw new Error(
      `${live.length} runs succeeded, but ${ended} of them and ${finished} of their tasks could be ended`,
    );
  const saved = live.filter((run) => run.checkpoint_version !== null).map(({ id }) => id);
  if (saved.length > 0) await forgetCheckpoints(tx, saved);
  emit(
    tx,
    live.flatMap((run, index) => successEvents(run, news[index]!.summary, tx.now)),
  );
}

/** The reports that the ends above have answered: the success itself, and the start of the same run by the same holder. */
function* partsOf(
  reports: readonly RunReport[],
  ends: ReadonlyMap<number, RunReport>,
  live: readonly LiveRun[],
): Generator<RunReport> {
  const applied = new Set(live.map(({ run_id }) => run_id));
  const starts = new Set<string>();
  for (const report of reports) {
    const end = applied.has(report.runId) ? ends.get(report.runId) : undefined;
    if (end === undefined) continue;
    if (report === end) yield report;
    else if (isStartOf(report, end)) {
      // One that is in the batch twice is applied once; the second is for the others to answer.
      const key = `${report.runId}/${report.seq}`;
      if (!starts.has(key)) yield report;
      starts.add(key);
    }
  }
}

function isStartOf(report: RunReport, end: RunReport): boolean {
  return (
    report.news.type === 'started' &&
    report.agentId === end.agentId &&
    report.leaseToken === end.leaseToken &&
    report.seq !== end.seq
  );
}

function successEvents(run: LiveRun, summary: string, now: number): TaskEvent[] {
  const ref = refOf({ ...run, task_id: run.id });
  const reason = run.cancel_requested_at === null ? null : 'finished_before_cancel';
  const end = {
    summary,
    error: null,
    errorClass: null,
    reason,
    attempt: run.status === 'leased' ? run.attempt + 1 : run.attempt,
    tookMs: Math.max(0, now - run.created_at),
    finishedBeforeCancel: reason !== null,
  };
  return [
    { type: 'task.state', from: 'running', to: 'succeeded', reason, ...ref },
    { type: 'task.ended', state: 'succeeded', end, ...ref },
  ];
}
