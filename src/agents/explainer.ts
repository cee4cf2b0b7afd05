import type { Clock } from '../clock.ts';
import type { Store } from '../store/store.ts';
import type { TaskTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';
import type { TaskLine } from '../tasks/claim.ts';
import { type Explanation, explain } from '../tasks/explain.ts';
import type { LinePlace, WhyAgent, WhyFacts, WhyNeed, WhyRun, WhyTask } from '../tasks/explain-facts.ts';
import { MAX_BANDS, placeInLine } from '../tasks/explain-line.ts';
import { awaitedEffects, liveRunsById, type WhyRunRow } from '../tasks/explain-queries.ts';
import { saidBy } from '../tasks/explain-said.ts';
import type { Hold } from '../tasks/gates.ts';
import { streamsById } from '../tasks/line-queries.ts';
import { type NeedRow, needsOf } from '../tasks/needs-queries.ts';
import { selectTasksById } from '../tasks/read-queries.ts';
import type { ArgValue, OnLost } from '../tasks/run-words.ts';
import { activityOf, type RunSnapshot } from '../tasks/snapshot-words.ts';
import type { TaskState } from '../tasks/states.ts';
import { labelSuffix, placeOf, type Stream } from '../tasks/streams.ts';
import type { AgentRegistry } from './registry.ts';
import { heldBack } from './standing.ts';

export interface ExplainerOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly registry: Pick<AgentRegistry, 'list'>;
  readonly line: Pick<TaskLine, 'holdsOf' | 'bandsOf'>;
  /** Label sets that templates ask for: agents look for these alone. */
  readonly labelSets: () => readonly Readonly<Record<string, string>>[];
  readonly leaseMs: number;
  readonly cancelGraceMs: number;
}

/** A reader that knows what time it is; a transaction is one. */
export type TimedReader = Reader & { readonly now: number };

/** Gathers what there is to know about tasks, for `explain`. Reads only, a few statements however many tasks. */
export class TaskExplainer {
  readonly #options: ExplainerOptions;

  constructor(options: ExplainerOptions) {
    this.#options = options;
  }

  /** By task; a task that there is not is missing. */
  async explain(reader: TimedReader, taskIds: readonly number[]): Promise<Map<number, Explanation>> {
    const tasks = taskIds.length === 0 ? [] : await selectTasksById(reader, taskIds);
    if (tasks.length === 0) return new Map();
    const shared = await this.#shared(reader, tasks);
    const explained = new Map<number, Explanation>();
    for (const task of tasks) explained.set(task.id, explain(await this.#factsOf(reader, task, shared)));
    return explained;
  }

  /** Outside of a transaction; undefined where there is no such task. */
  async explainNow(taskId: number): Promise<Explanation | undefined> {
    const { store, clock } = this.#options;
    const reader: TimedReader = {
      now: clock.now(),
      dialect: store.dialect,
      all: (query, params) => store.all(query, params),
      fetch: (query) => store.fetch(query),
    };
    return (await this.explain(reader, [taskId])).get(taskId);
  }

  async #shared(reader: TimedReader, tasks: readonly TaskTable[]): Promise<Shared> {
    const streamIds = [...new Set(tasks.map((task) => task.stream_id))];
    const queued = tasks.filter(({ status }) => status === 'queued');
    const streams = new Map((await reader.all(streamsById, { rows: rowsOf(streamIds) })).map((row) => [row.id, row]));
    const waiting = [...new Set(queued.map((task) => streams.get(task.stream_id)!))];
    return {
      streams,
      holds: waiting.length === 0 ? new Map() : await this.#options.line.holdsOf(reader, waiting),
      agents: queued.length === 0 ? [] : await this.#agents(reader),
      ...(await factsOfRows(reader, tasks)),
    };
  }

  async #agents(reader: TimedReader): Promise<WhyAgent[]> {
    return (await this.#options.registry.list(reader)).map((agent) => ({
      ...agent,
      freeSlots: Math.max(0, agent.concurrency - agent.activeRuns),
      ...heldBack(agent.standing),
    }));
  }

  async #factsOf(reader: TimedReader, row: TaskTable, shared: Shared): Promise<WhyFacts> {
    const { store, leaseMs, cancelGraceMs } = this.#options;
    const stream = shared.streams.get(row.stream_id)!;
    const task = this.#task(row, stream);
    const holds = shared.holds.get(stream) ?? [];
    const isInLine = task.status === 'queued' && holds.length === 0 && task.runAt <= reader.now;
    return {
      now: reader.now,
      task,
      run: shared.runs.get(row.run_id ?? -1) ?? null,
      agents: shared.agents,
      holds,
      place: isInLine ? await this.#place(reader, row, stream) : null,
      needs: (shared.needs.get(row.id) ?? []).map(
        ({ on_task_id, status }): WhyNeed => ({
          taskId: store.ids.encode(on_task_id),
          status: status as TaskState | null,
        }),
      ),
      effects: task.status === 'waiting' ? (shared.effects.get(row.id) ?? []).map(({ type }) => type) : [],
      leaseMs,
      cancelGraceMs,
    };
  }

  #task(row: TaskTable, { queue }: Stream): WhyTask {
    const labels = (json(row.labels) ?? {}) as Record<string, string>;
    const suffix = labelSuffix(labels);
    const args = json(row.args) as Record<string, ArgValue>;
    const question = json(row.question) as { prompt: string } | null;
    const progress = json(row.progress) as { percent: number | null } | null;
    return {
      status: row.status as TaskState,
      reason: row.reason,
      attempt: row.attempt,
      maxAttempts: row.max_attempts,
      runAt: row.run_at,
      createdAt: row.created_at,
      endedAt: row.ended_at,
      // A person's retry lifts that limit.
      expiresAt: row.generation > 1 ? null : row.expires_at,
      cancelRequestedAt: row.cancel_requested_at,
      timeoutMs: row.timeout_ms,
      onLost: row.on_lost as OnLost,
      place: placeOf(queue),
      runtime: row.runtime,
      labels,
      isSought: suffix === '' || this.#options.labelSets().some((set) => labelSuffix(set) === suffix),
      percent: progress?.percent ?? null,
      said: saidBy(row.status === 'waiting' ? (question?.prompt ?? row.summary) : row.error, args),
      ...(row.error_zh === null || row.status === 'waiting' ? {} : { saidZh: saidBy(row.error_zh, args) }),
    };
  }

  /** Among those that the same agents may take and that nothing holds back. */
  async #place(reader: TimedReader, { id, priority, run_at }: TaskTable, stream: Stream): Promise<LinePlace | null> {
    const { line } = this.#options;
    const bands = line.bandsOf(stream.queue, reader.now);
    if (bands.length > MAX_BANDS) return null;
    const holds = await line.holdsOf(
      reader,
      bands.map((band) => band.stream),
    );
    const free = bands.filter((band) => holds.get(band.stream)!.length === 0);
    return placeInLine(reader, { id, priority, owner: stream.owner, runAt: run_at }, free);
  }
}

interface RowFacts {
  readonly runs: ReadonlyMap<number, WhyRun>;
  /** Those that are not met. */
  readonly needs: ReadonlyMap<number, NeedRow[]>;
  readonly effects: ReadonlyMap<number, { type: string }[]>;
}

interface Shared extends RowFacts {
  readonly streams: ReadonlyMap<number, Stream>;
  readonly holds: ReadonlyMap<Stream, Hold[]>;
  readonly agents: readonly WhyAgent[];
}

async function factsOfRows(reader: Reader, tasks: readonly TaskTable[]): Promise<RowFacts> {
  const held = tasks.flatMap(({ run_id }) => (run_id === null ? [] : [run_id]));
  const waiting = tasks.filter(({ status }) => status === 'waiting').map(({ id }) => id);
  const needing = tasks.filter(({ graph, status }) => graph === 1 && (status === 'waiting' || status === 'cancelled'));
  const runs = held.length === 0 ? [] : await reader.all(liveRunsById, { rows: rowsOf(held) });
  const effects = waiting.length === 0 ? [] : await reader.all(awaitedEffects, { rows: rowsOf(waiting) });
  const needs = needing.length === 0 ? [] : await reader.all(needsOf, { rows: needing.map(({ id }) => [id]) });
  return {
    runs: new Map(runs.map((run) => [run.id, runFacts(run)])),
    needs: byTask(needs.filter(({ met }) => met === 0)),
    effects: byTask(effects),
  };
}

function runFacts(run: WhyRunRow): WhyRun {
  const snapshot = json(run.snapshot) as { at: number; data: RunSnapshot } | null;
  return {
    agentId: run.agent_id,
    claimedAt: run.claimed_at,
    startedAt: run.started_at,
    leaseUntil: run.lease_until,
    deadlineAt: run.deadline_at,
    ...(snapshot && { sign: { at: snapshot.at, activity: activityOf(snapshot.data) } }),
  };
}

function byTask<T extends { task_id: number }>(items: readonly T[]): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) groups.set(item.task_id, [...(groups.get(item.task_id) ?? []), item]);
  return groups;
}

const rowsOf = (ids: readonly number[]) => ids.map((id) => [id]);

function json(text: string | null): unknown {
  return text === null ? null : JSON.parse(text);
}
