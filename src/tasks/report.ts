import type { Tx, Verb } from '../store/tx.ts';
import { type CheckpointText, checkpointText } from './checkpoint-words.ts';
import { type SavedCheckpoint, saveCheckpoints } from './checkpoints.ts';
import { type Progress, type ProgressPace, progressOf } from './progress.ts';
import { appliedReports, insertEvents, markRunning, storeProgress } from './queries.ts';
import { endingOf } from './report-ends.ts';
import { type HeldRun, runsById, startRuns } from './run-queries.ts';
import { type ErrorClass, RUN_ENDS } from './run-words.ts';
import type { RunSnapshot } from './snapshot-words.ts';
import { endSucceeded } from './succeed.ts';
import type { Emit, TaskEvent } from './task.ts';
import { endHeldRuns, refOf } from './transition.ts';

/** What a run says about itself. Texts are bounded by whoever lets them in. */
export type RunNews =
  | { type: 'started' }
  | { type: 'progress'; percent?: number; message?: string }
  | { type: 'log'; stream: 'stdout' | 'stderr'; text: string; offset: number }
  | ({ type: 'snapshot' } & RunSnapshot)
  | { type: 'checkpoint'; data: unknown }
  | { type: 'output'; key: string; value: string }
  | { type: 'needs_input'; prompt: string; options?: string[] }
  | { type: 'blocked'; summary: string }
  | { type: 'succeeded'; summary: string; outputs?: Record<string, string>; exitCode?: number }
  | {
      type: 'failed';
      errorClass: ErrorClass;
      error: string;
      summary?: string;
      retryAfterMs?: number;
      exitCode?: number;
      signal?: string;
      /** What failed, where it was a call: the template's own rules for these go before the class that the agent gives. */
      httpStatus?: number;
      errorType?: string;
    }
  | { type: 'timed_out'; summary?: string }
  | { type: 'cancelled'; summary?: string }
  | { type: 'released' };

export interface RunReport {
  /** The authenticated agent; another agent's run is out of its reach. */
  agentId: string;
  runId: number;
  leaseToken: string;
  /** (runId, seq) is applied once, whatever the order. */
  seq: number;
  news: RunNews;
}

export type ReportOutcome =
  | { result: 'accepted' | 'duplicate' }
  | { result: 'lease_lost' | 'rejected'; reason: string };

const TERMINAL: ReadonlySet<RunNews['type']> = RUN_ENDS;

/**
 * Applies reports of runs. A report whose fence has moved on changes no state: it is answered `lease_lost` and kept as an event.
 * `started` and a terminal report of one run in one batch are one write.
 * @param pace bounds how often progress is written; absent: it never waits
 */
export function reportRunsVerb(emit: Emit<TaskEvent>, pace?: ProgressPace): Verb<RunReport, ReportOutcome> {
  return { name: 'task.report', rank: 10, run: (tx, items) => reportRuns(tx, items, emit, pace) };
}

export async function reportRuns(
  tx: Tx,
  reports: readonly RunReport[],
  emit: Emit<TaskEvent>,
  pace?: ProgressPace,
): Promise<ReportOutcome[]> {
  const quick = await endSucceeded(tx, reports, emit);
  if (quick.size === reports.length) return reports.map(() => ({ result: 'accepted' }));
  const rest = reports.filter((report) => !quick.has(report));
  const outcomes = await reportOneByOne(tx, rest, emit, pace);
  let next = 0;
  return reports.map((report) => (quick.has(report) ? { result: 'accepted' } : outcomes[next++]!));
}

async function reportOneByOne(
  tx: Tx,
  reports: readonly RunReport[],
  emit: Emit<TaskEvent>,
  pace: ProgressPace | undefined,
): Promise<ReportOutcome[]> {
  const ids = [...new Set(reports.map((report) => report.runId))];
  const runs = new Map((await tx.all(runsById, { rows: ids.map((id) => [id]) })).map((run) => [run.run_id, run]));
  const texts = checkpointTexts(reports);
  const verdicts = await verdictsOn(tx, reports, { runs, texts, pace });
  const fresh = await storeReports(tx, reports, verdicts, { runs, texts });
  const folded = new Map<number, Folded>();
  const repeats = new Set<RunReport>();
  for (const [index, report] of reports.entries()) {
    if (!fresh.delete(key(report))) repeats.add(report);
    else if (verdicts[index] === null) fold(folded, runs.get(report.runId)!, report, texts);
  }
  await apply(tx, folded, emit);
  const known = await knownReports(
    tx,
    reports.filter((report, index) => verdicts[index]?.result === 'lease_lost' && repeats.has(report)),
    runs,
  );
  return reports.map((report, index) => {
    const repeated = known.has(key(report)) || (verdicts[index] === null && repeats.has(report));
    return repeated ? { result: 'duplicate' } : (verdicts[index] ?? { result: 'accepted' });
  });
}

/** What each checkpoint of the batch is stored as, or what is wrong with it. */
type Texts = ReadonlyMap<RunReport, CheckpointText | string>;

function checkpointTexts(reports: readonly RunReport[]): Texts {
  const texts = new Map<RunReport, CheckpointText | string>();
  for (const report of reports)
    if (report.news.type === 'checkpoint') texts.set(report, checkpointText(report.news.data));
  return texts;
}

interface Known {
  runs: ReadonlyMap<number, HeldRun>;
  texts: Texts;
}

/** Null where a report is to be applied, else its answer. */
async function verdictsOn(
  tx: Tx,
  reports: readonly RunReport[],
  { runs, texts, pace }: Known & { pace: ProgressPace | undefined },
): Promise<(ReportOutcome | null)[]> {
  const verdicts = reports.map((report): ReportOutcome | null => {
    const text = texts.get(report);
    const refusal = typeof text === 'string' ? { result: 'rejected' as const, reason: `the checkpoint ${text}` } : null;
    return judge(report, runs.get(report.runId)) ?? refusal;
  });
  if (!pace) return verdicts;
  const paced = await pace.sift(
    tx,
    reports.filter((_, index) => verdicts[index] === null),
    runs,
  );
  return paced.size === 0 ? verdicts : verdicts.map((verdict, index) => paced.get(reports[index]!) ?? verdict);
}

const key = (report: { runId: number; seq: number }) => `${report.runId}/${report.seq}`;

/** Of repeats that come after the end of their run: those that were in time, which their agent never learned. */
async function knownReports(tx: Tx, late: readonly RunReport[], runs: Map<number, HeldRun>): Promise<Set<string>> {
  if (late.length === 0) return new Set();
  const rows = late.map(({ runId, seq }) => [runs.get(runId)!.task_id, runId, seq]);
  const known = new Set(
    (await tx.all(appliedReports, { rows })).map((row) => key({ runId: row.run_id, seq: row.seq })),
  );
  for (const report of late) if (isOnRecord(report, runs)) known.add(key(report));
  return known;
}

/** The fence of whatever a run says: null where it may change state, else why not. */
export function judge(
  report: Pick<RunReport, 'agentId' | 'leaseToken'>,
  run: HeldRun | undefined,
): Extract<ReportOutcome, { reason: string }> | null {
  if (!run || run.agent_id !== report.agentId)
    return { result: 'rejected', reason: 'there is no such run of this agent' };
  if (run.lease_token !== report.leaseToken)
    return { result: 'rejected', reason: 'the lease token is not the one of this run' };
  if (run.current_run !== run.run_id || run.run_ended_at !== null) {
    return {
      result: 'lease_lost',
      reason: run.run_ended_at === null ? 'the task was given to another run' : 'the run is over',
    };
  }
  return null;
}

async function storeReports(
  tx: Tx,
  reports: readonly RunReport[],
  verdicts: readonly (ReportOutcome | null)[],
  { runs, texts }: Known,
): Promise<Set<string>> {
  const rows: unknown[][] = [];
  const fresh = new Set<string>();
  for (const [index, report] of reports.entries()) {
    const verdict = verdicts[index];
    if ((verdict && verdict.result !== 'lease_lost') || isOnRecord(report, runs)) continue;
    if (TOLD_BY_RUN.has(report.news.type) && !verdict) fresh.add(key(report));
    else {
      const { task_id } = runs.get(report.runId)!;
      rows.push([task_id, report.runId, report.seq, typeOf(report, verdict), tx.now, eventData(report, texts)]);
    }
  }
  if (rows.length === 0) return fresh;
  for (const row of await tx.all(insertEvents, { rows })) fresh.add(key({ runId: row.run_id, seq: row.seq }));
  return fresh;
}

const typeOf = ({ news }: RunReport, verdict: unknown) => (verdict ? `late_${news.type}` : news.type);

/** The row of the run tells these; only where they came too late are they kept as an event. */
const TOLD_BY_RUN = new Set<RunNews['type']>(['started', 'succeeded']);

/** The row of the run has told this already. */
function isOnRecord({ runId, news }: RunReport, runs: ReadonlyMap<number, HeldRun>): boolean {
  const run = runs.get(runId)!;
  if (news.type === 'started') return run.run_started_at !== null;
  return news.type === 'succeeded' && run.run_outcome === 'succeeded';
}

/** Long results live on the task; the event keeps what tells the story. */
function eventData(report: RunReport, texts: Texts): unknown {
  const { type, ...data } = report.news;
  // What these bring is kept elsewhere.
  if (type === 'succeeded') return null;
  const text = texts.get(report);
  if (text !== undefined) return typeof text === 'string' ? null : { bytes: text.bytes };
  return Object.keys(data).length === 0 ? null : data;
}

/** The news of one run in one batch, joined. */
interface Folded {
  run: HeldRun;
  started: boolean;
  progress: Progress | null;
  checkpoint: SavedCheckpoint | null;
  outputs: Record<string, string> | null;
  end: RunNews | null;
}

function fold(into: Map<number, Folded>, run: HeldRun, report: RunReport, texts: Texts): void {
  const { news, seq } = report;
  const entry: Folded = into.get(run.run_id) ?? {
    run,
    started: false,
    progress: null,
    checkpoint: null,
    outputs: null,
    end: null,
  };
  into.set(run.run_id, entry);
  if (news.type === 'started') entry.started = true;
  else if (news.type === 'progress') entry.progress = progressOf(news);
  else if (news.type === 'checkpoint') {
    if (entry.checkpoint === null || entry.checkpoint.seq < seq)
      entry.checkpoint = { seq, ...(texts.get(report) as CheckpointText) };
  } else if (news.type === 'output') entry.outputs = { ...entry.outputs, [news.key]: news.value };
  else if (TERMINAL.has(news.type)) entry.end ??= news;
}

async function apply(tx: Tx, folded: Map<number, Folded>, emit: Emit<TaskEvent>): Promise<void> {
  const all = [...folded.values()];
  const news = all.filter((entry) => entry.progress !== null || (entry.outputs !== null && entry.end === null));
  if (news.length > 0) await applyProgress(tx, news, emit);
  // After a success nothing goes on from it.
  const saved = all.filter((entry) => entry.checkpoint !== null && entry.end?.type !== 'succeeded');
  if (saved.length > 0) await saveCheckpoints(tx, saved.map(checkpointOf));
  const started = all.filter((entry) => entry.started && entry.end === null && entry.run.status === 'leased');
  if (started.length > 0) await applyStarts(tx, started, emit);
  const ended = all.filter((entry) => entry.end !== null);
  await endHeldRuns(
    tx,
    ended.map(({ end, ...entry }) => endingOf({ ...entry, end: end! }, tx.now)),
    emit,
  );
}

const checkpointOf = ({ run, checkpoint }: Folded) => ({
  taskId: run.task_id,
  runId: run.run_id,
  saved: checkpoint!,
});

async function applyStarts(tx: Tx, started: readonly Folded[], emit: Emit<TaskEvent>): Promise<void> {
  await tx.all(markRunning, { rows: started.map(({ run }) => [run.task_id, run.run_id]), now: tx.now });
  await tx.run(startRuns, { rows: started.map(({ run }) => [run.run_id]), now: tx.now });
  emit(
    tx,
    started.map(({ run }) => ({ type: 'task.state', from: 'leased', to: 'running', reason: null, ...refOf(run) })),
  );
}

async function applyProgress(tx: Tx, news: readonly Folded[], emit: Emit<TaskEvent>): Promise<void> {
  const rows = news.map(({ run, progress, outputs }) => [run.task_id, run.run_id, progress, outputs]);
  await tx.run(storeProgress, { rows, now: tx.now });
  const told = news.filter((entry) => entry.progress !== null);
  emit(
    tx,
    told.map(({ run, progress }) => ({ type: 'task.progress', ...progress!, ...refOf(run) })),
  );
}
