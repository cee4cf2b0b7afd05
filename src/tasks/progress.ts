import type { Tx } from '../store/tx.ts';
import { insertEvents, keepProgress, newestProgress, storeProgress } from './queries.ts';
import type { ReportOutcome, RunNews, RunReport } from './report.ts';
import { type HeldRun, runsById } from './run-queries.ts';
import { RUN_ENDS } from './run-words.ts';
import { isHeld } from './states.ts';
import type { Emit, TaskEvent } from './task.ts';
import { refOf } from './transition.ts';

/** How far a run says it is. */
export interface Progress {
  percent: number | null;
  message: string | null;
}

/** Between two writes of one run's progress, milliseconds; what comes meanwhile waits in memory, the newest only. */
export const PROGRESS_MS = 1_000;
/** Beyond so many runs those are forgotten that have nothing waiting. */
const MAX_RUNS = 10_000;

interface Paced {
  readonly runId: number;
  /** Of the newest report that was written. */
  readonly seq: number;
  readonly writtenAt: number;
  /** What is to be written when it is due, or when the run ends. */
  readonly waiting?: { readonly seq: number; readonly progress: Progress };
}

/**
 * Bounds what progress costs, however fast it comes: of each run one write a second, the newest wins. A figure that waits is written
 * when it is due (`flush`) and when its run ends, by whatever transition; when this process dies, nothing but that figure is lost.
 */
export class ProgressPace {
  readonly #emit: Emit<TaskEvent>;
  /** By task. Changed by committed transactions only. */
  readonly #runs = new Map<number, Paced>();
  /** Tasks whose progress the transaction writes anyway: what waits for them is old. */
  readonly #writing = new WeakMap<Tx, Set<number>>();

  constructor(emit: Emit<TaskEvent>) {
    this.#emit = emit;
  }

  /**
   * Of these reports, all within the fence, the progress that is not to be written now, and how it is answered. The rows are asked
   * about runs of which this process remembers nothing: a report that is older than what they show is not to come back.
   */
  async sift(
    tx: Tx,
    reports: readonly RunReport[],
    runs: ReadonlyMap<number, HeldRun>,
  ): Promise<ReadonlyMap<RunReport, ReportOutcome>> {
    const answers = new Map<RunReport, ReportOutcome>();
    const newest = newestByRun(reports);
    if (newest.size === 0) return answers;
    const written = await this.#recall(tx, newest.keys(), runs);
    const ending = new Set(reports.filter(({ news }) => ENDS.has(news.type)).map(({ runId }) => runId));
    for (const report of reports) {
      if (report.news.type !== 'progress') continue;
      const taskId = runs.get(report.runId)!.task_id;
      const known = this.#known(taskId, report.runId) ?? written.get(report.runId);
      if (report !== newest.get(report.runId)) answers.set(report, ACCEPTED);
      else if (known && report.seq <= (known.waiting?.seq ?? known.seq))
        answers.set(report, isRepeat(report, known) ? DUPLICATE : ACCEPTED);
      else if (!known || ending.has(report.runId) || isDue(known, tx.now)) this.#write(tx, taskId, report);
      else {
        this.#wait(tx, taskId, known, report);
        answers.set(report, ACCEPTED);
      }
    }
    return answers;
  }

  /** Subscriber: a run that ends takes what waits along. People are told the end, and not the figure before it. */
  async onTaskEvents(tx: Tx, events: readonly TaskEvent[]): Promise<void> {
    if (this.#runs.size === 0) return;
    const ended = events.filter((event) => event.type === 'task.state' && isHeld(event.from) && !isHeld(event.to));
    const last = ended.flatMap(({ id }) => {
      const run = this.#runs.get(id);
      if (run) tx.afterCommit(() => this.#runs.delete(id));
      return run?.waiting && !this.#writing.get(tx)?.has(id) ? [{ id, runId: run.runId, ...run.waiting }] : [];
    });
    if (last.length === 0) return;
    await tx.all(insertEvents, {
      rows: last.map(({ id, runId, seq, progress }) => eventRow(id, runId, seq, tx.now, progress)),
    });
    await tx.run(keepProgress, { rows: last.map(({ id, progress }) => [id, progress]) });
  }

  /** Writes what has waited long enough; part of every sweep. Answers of how many runs. */
  async flush(tx: Tx): Promise<number> {
    const due = [...this.#runs].filter(([, run]) => run.waiting && isDue(run, tx.now));
    if (due.length === 0) return 0;
    const held = await tx.all(runsById, { rows: due.map(([, run]) => [run.runId]) });
    const current = new Map(
      held.filter((run) => run.current_run === run.run_id && run.run_ended_at === null).map((run) => [run.run_id, run]),
    );
    const written = due.flatMap(([id, { runId, waiting }]) => {
      const run = current.get(runId);
      tx.afterCommit(() => {
        if (run) this.#runs.set(id, { runId, seq: waiting!.seq, writtenAt: tx.now });
        else this.#runs.delete(id);
      });
      return run ? [{ run, ...waiting! }] : [];
    });
    await writeAll(tx, written, this.#emit);
    return written.length;
  }

  /** What the rows say of these runs, where memory says nothing: by run. */
  async #recall(
    tx: Tx,
    runIds: Iterable<number>,
    runs: ReadonlyMap<number, HeldRun>,
  ): Promise<ReadonlyMap<number, Paced>> {
    const rows = [...runIds]
      .map((runId) => [runs.get(runId)!.task_id, runId] as const)
      .filter(([taskId, runId]) => this.#known(taskId, runId) === undefined);
    if (rows.length === 0) return NOTHING_WRITTEN;
    const found = await tx.all(newestProgress, { rows: rows.map((row) => [...row]) });
    return new Map(
      found.map(({ run_id, seq }) => [run_id, { runId: run_id, seq, writtenAt: Number.NEGATIVE_INFINITY }]),
    );
  }

  #known(taskId: number, runId: number): Paced | undefined {
    const known = this.#runs.get(taskId);
    return known?.runId === runId ? known : undefined;
  }

  #write(tx: Tx, taskId: number, { runId, seq }: RunReport): void {
    const writing = this.#writing.get(tx) ?? new Set();
    this.#writing.set(tx, writing.add(taskId));
    tx.afterCommit(() => {
      if (this.#runs.size >= MAX_RUNS) for (const [id, run] of this.#runs) if (!run.waiting) this.#runs.delete(id);
      this.#runs.set(taskId, { runId, seq, writtenAt: tx.now });
    });
  }

  #wait(tx: Tx, taskId: number, { runId, seq, writtenAt }: Paced, report: RunReport): void {
    const waiting = { seq: report.seq, progress: progressOf(report.news) };
    tx.afterCommit(() => this.#runs.set(taskId, { runId, seq, writtenAt, waiting }));
  }
}

const NOTHING_WRITTEN: ReadonlyMap<number, Paced> = new Map();
const ENDS: ReadonlySet<RunNews['type']> = RUN_ENDS;
const ACCEPTED: ReportOutcome = { result: 'accepted' };
const DUPLICATE: ReportOutcome = { result: 'duplicate' };

/** @param news of type `progress` */
export function progressOf(news: RunNews): Progress {
  const { percent = null, message = null } = news as Extract<RunNews, { type: 'progress' }>;
  return { percent, message };
}

function newestByRun(reports: readonly RunReport[]): Map<number, RunReport> {
  const newest = new Map<number, RunReport>();
  for (const report of reports) {
    if (report.news.type !== 'progress') continue;
    const other = newest.get(report.runId);
    if (!other || other.seq < report.seq) newest.set(report.runId, report);
  }
  return newest;
}

const isRepeat = ({ seq }: RunReport, known: Paced) => seq === known.seq || seq === known.waiting?.seq;

/** A clock that was set back must not keep it waiting. */
const isDue = ({ writtenAt }: Paced, now: number) => now - writtenAt >= PROGRESS_MS || now < writtenAt;

interface Written {
  run: HeldRun;
  seq: number;
  progress: Progress;
}

async function writeAll(tx: Tx, written: readonly Written[], emit: Emit<TaskEvent>): Promise<void> {
  if (written.length === 0) return;
  const events = written.map(({ run, seq, progress }) => eventRow(run.task_id, run.run_id, seq, tx.now, progress));
  await tx.all(insertEvents, { rows: events });
  const rows = written.map(({ run, progress }) => [run.task_id, run.run_id, progress, null]);
  await tx.run(storeProgress, { rows, now: tx.now });
  emit(
    tx,
    written.map(({ run, progress }) => ({ type: 'task.progress', ...progress, ...refOf(run) })),
  );
}

const eventRow = (taskId: number, runId: number, seq: number, now: number, progress: Progress) => [
  taskId,
  runId,
  seq,
  'progress',
  now,
  Object.fromEntries(Object.entries(progress).filter(([, value]) => value !== null)),
];
