import type { IdCodec } from '../ids.ts';
import type { RunTable, TaskTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';
import { streamsById } from './line-queries.ts';
import type { NeedCondition } from './needs-graph.ts';
import { neededBy, needsOf } from './needs-queries.ts';
import { selectEvents, selectRuns, selectTasks, selectTasksById, type TaskFilter } from './read-queries.ts';
import type { ErrorClass } from './run-words.ts';
import { type DeliveryStatus, type NotifyPolicy, PRIORITIES, type TaskSource, type TaskState } from './states.ts';
import { placeOf, type Stream } from './streams.ts';
import type { RunRecord, TaskRecord } from './task.ts';

/** Tasks as the outside sees them. */
export async function listTasks(reader: Reader, ids: IdCodec, filter: TaskFilter): Promise<TaskRecord[]> {
  return withRuns(reader, ids, await selectTasks(reader, filter));
}

export async function getTask(reader: Reader, ids: IdCodec, id: number): Promise<TaskRecord | undefined> {
  const rows = await selectTasksById(reader, [id]);
  const [task] = await withRuns(reader, ids, rows);
  return task && rows[0]!.graph === 1 ? { ...task, ...(await linksOf(reader, ids, id)) } : task;
}

/** Whom a task of a graph needs, and who needs it. */
async function linksOf(reader: Reader, ids: IdCodec, id: number): Promise<Pick<TaskRecord, 'needs' | 'neededBy'>> {
  const needs = (await reader.all(needsOf, { rows: [[id]] })).sort((a, b) => a.on_task_id - b.on_task_id);
  const dependents = await reader.all(neededBy, { id });
  return {
    needs: needs.map(({ on_task_id, condition, met, status }) => ({
      taskId: ids.encode(on_task_id),
      ...present({ status: status as TaskState | null }),
      when: condition as NeedCondition,
      met: met === 1,
    })),
    neededBy: dependents.map(({ task_id, status }) => ({ taskId: ids.encode(task_id), status: status as TaskState })),
  };
}

async function withRuns(reader: Reader, ids: IdCodec, tasks: readonly TaskTable[]): Promise<TaskRecord[]> {
  const runs = await selectRuns(
    reader,
    tasks.map((task) => task.id),
  );
  const streamIds = [...new Set(tasks.map((task) => task.stream_id))].map((id) => [id]);
  const streams = new Map((await reader.all(streamsById, { rows: streamIds })).map((row) => [row.id, row]));
  return tasks.map((task) =>
    taskRecord(
      task,
      streams.get(task.stream_id)!,
      runs.filter((run) => run.task_id === task.id),
      ids,
    ),
  );
}

export interface TaskEventRecord {
  type: string;
  at: number;
  runId?: string;
  /** The agent's own number of a report; negative for the server's. Absent where the rows of task and run tell it. */
  seq?: number;
  data: unknown;
}

/**
 * The story of a task, oldest first. Creation, leases, starts and successes are told by the rows of the task and its runs; everything
 * else is an event of its own.
 */
export async function taskEvents(reader: Reader, ids: IdCodec, id: number): Promise<TaskEventRecord[]> {
  const [task] = await selectTasksById(reader, [id]);
  if (!task) return [];
  const runs = await selectRuns(reader, [id]);
  const stored = (await selectEvents(reader, id, null)).map((event) => ({
    type: event.type,
    at: event.at,
    ...(event.run_id === 0 ? {} : { runId: ids.encode(event.run_id) }),
    seq: event.seq,
    data: json(event.data),
  }));
  const told: TaskEventRecord[] = [
    { type: 'created', at: task.created_at, data: null },
    ...runs.flatMap((run) => runEvents(run, ids)),
  ];
  return [...told, ...stored].sort((a, b) => a.at - b.at);
}

function runEvents(run: RunTable, ids: IdCodec): TaskEventRecord[] {
  const runId = ids.encode(run.id);
  const events: TaskEventRecord[] = [{ type: 'leased', at: run.claimed_at, runId, data: { agentId: run.agent_id } }];
  if (run.started_at !== null) events.push({ type: 'started', at: run.started_at, runId, data: null });
  if (run.outcome === 'succeeded')
    events.push({ type: 'succeeded', at: run.ended_at!, runId, data: { exitCode: run.exit_code } });
  return events;
}

function taskRecord(task: TaskTable, stream: Stream, runs: readonly RunTable[], ids: IdCodec): TaskRecord {
  const succeeded = task.status === 'succeeded';
  return {
    taskId: ids.encode(task.id),
    status: task.status as TaskState,
    attempt: task.attempt,
    maxAttempts: task.max_attempts,
    generation: task.generation,
    template: task.template,
    args: json(task.args) as TaskRecord['args'],
    priority: PRIORITIES[task.priority]!,
    lane: stream.lane,
    ...poolOf(stream.queue),
    ...(succeeded
      ? { result: { summary: task.summary, outputs: (json(task.outputs) as Record<string, string> | null) ?? {} } }
      : {}),
    source: task.source as TaskSource,
    scopeKind: task.scope_kind as TaskRecord['scopeKind'],
    runAt: task.run_at,
    createdAt: task.created_at,
    lastEventAt: task.last_event_at,
    notifyPolicy: task.notify_policy as NotifyPolicy,
    deliveryStatus: task.delivery_status as DeliveryStatus,
    ...present({
      error: task.error,
      errorZh: task.error_zh,
      errorClass: task.error_class as ErrorClass | null,
      reason: task.reason,
      label: task.label,
      parentTaskId: task.parent_id === null ? null : ids.encode(task.parent_id),
      startedAt: task.started_at,
      endedAt: task.ended_at,
      cleanupAfter: task.cleanup_after,
      cancelRequestedAt: task.cancel_requested_at,
      progress: json(task.progress) as TaskRecord['progress'] | null,
      checkpointVersion: task.checkpoint_version,
      question: json(task.question) as TaskRecord['question'] | null,
      summary: task.summary,
      sessionKey: task.session_key,
      flowId: task.flow_id === null ? null : ids.encode(task.flow_id),
    }),
    runs: runs.map((run) => runRecord(run, ids)),
  };
}

function poolOf(queue: string): { pool: string; agent?: string } {
  const place = placeOf(queue);
  return place.startsWith('@') ? { pool: '', agent: place.slice(1) } : { pool: place };
}

function runRecord(run: RunTable, ids: IdCodec): RunRecord {
  return {
    runId: ids.encode(run.id),
    attempt: run.attempt,
    generation: run.generation,
    agentId: run.agent_id,
    claimedAt: run.claimed_at,
    ...present({
      startedAt: run.started_at,
      endedAt: run.ended_at,
      outcome: run.outcome,
      errorClass: run.error_class as ErrorClass | null,
      error: run.error,
      exitCode: run.exit_code,
      signal: run.signal,
    }),
  };
}

type Present<T> = { [K in keyof T]?: NonNullable<T[K]> };

/** Leaves out what is null. */
function present<T extends Record<string, unknown>>(fields: T): Present<T> {
  const found: Record<string, unknown> = {};
  for (const name in fields) {
    const value = fields[name];
    if (value !== null && value !== undefined) found[name] = value;
  }
  return found as Present<T>;
}

function json(text: string | null): unknown {
  return text === null ? null : JSON.parse(text);
}
