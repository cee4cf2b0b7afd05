import { canonicalJson, sha256 } from '../ids.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { insertGraphTasks, insertTasks, tasksByIdempotency } from './queries.ts';
import { defaultNotifyPolicy, priorityNumber, type TaskState } from './states.ts';
import { ensureStreams, queueName, streamKey } from './streams.ts';
import { type CreateAnswer, DEFAULT_RETRY, type Emit, type NewTask, type TaskEvent } from './task.ts';

/** Gives each task that is really created its flow (ids in the same order); called at most once, in the same transaction. */
export type FlowFor = (tx: Tx, items: readonly NewTask[]) => Promise<(number | null)[]>;

/**
 * Creates tasks as `queued`, those of a graph that wait for their needs as `waiting`. An idempotency key that its template and owner have used before answers the existing task
 * (`existing`) when the payload is the same and `conflict` when it is not; nothing is created then.
 */
export function createTasksVerb(emit: Emit<TaskEvent>, flowFor?: FlowFor): Verb<NewTask, CreateAnswer> {
  return { name: 'task.create', rank: 20, run: (tx, items) => createTasks(tx, items, emit, flowFor) };
}

export async function createTasks(
  tx: Tx,
  items: readonly NewTask[],
  emit: Emit<TaskEvent>,
  flowFor?: FlowFor,
): Promise<CreateAnswer[]> {
  const keys = items.map(idempotencyOf);
  const known = await existing(tx, keys);
  const fresh: number[] = [];
  for (const [index, key] of keys.entries()) {
    if (key === null) fresh.push(index);
    else if (!known.has(key.text)) {
      known.set(key.text, { digest: key.digest, answer: null, index });
      fresh.push(index);
    }
  }
  const created = await insert(
    tx,
    fresh.map((index) => items[index]!),
    fresh.map((index) => keys[index]!),
    emit,
    flowFor,
  );
  const answers = new Map(fresh.map((index, order) => [index, created[order]!]));
  return items.map((_, index) => answers.get(index) ?? repeated(known.get(keys[index]!.text)!, keys[index]!, answers));
}

interface Key {
  text: string;
  digest: string;
}

interface Known {
  digest: string;
  /** Null: created by this very call, at `index`. */
  answer: CreateAnswer | null;
  index: number;
}

function idempotencyOf(task: NewTask): Key | null {
  if (task.idempotencyKey === null) return null;
  return {
    text: JSON.stringify([task.template, task.sessionKey ?? '', task.idempotencyKey]),
    digest: sha256(canonicalJson(task.args)),
  };
}

async function existing(tx: Tx, keys: readonly (Key | null)[]): Promise<Map<string, Known>> {
  const rows = keys.filter((key) => key !== null).map((key) => [key.text]);
  if (rows.length === 0) return new Map();
  const found = await tx.all(tasksByIdempotency, { rows });
  return new Map(
    found.map((row) => [
      row.idempotency,
      {
        digest: row.payload_digest,
        answer: { result: 'existing', id: row.id, status: row.status as TaskState, flowId: row.flow_id },
        index: -1,
      },
    ]),
  );
}

function repeated(known: Known, key: Key, answers: Map<number, CreateAnswer>): CreateAnswer {
  const first = known.answer ?? answers.get(known.index)!;
  if (known.digest !== key.digest || first.result === 'conflict') return { result: 'conflict', id: first.id };
  return { ...first, result: 'existing' };
}

async function insert(
  tx: Tx,
  items: NewTask[],
  keys: (Key | null)[],
  emit: Emit<TaskEvent>,
  flowFor?: FlowFor,
): Promise<CreateAnswer[]> {
  if (items.length === 0) return [];
  const flows = flowFor ? await flowFor(tx, items) : items.map((item) => item.flowId);
  const streams = await ensureStreams(
    tx,
    items.map((item) => streamKey(item, queueName(item))),
  );
  const first = await tx.ids(items.length);
  const places = items.map((_, index) => ({ id: first + index, streamId: streams[index]!, flowId: flows[index]! }));
  const rows = items.map((item, index) => taskRow(places[index]!, item, keys[index]!, tx.now));
  await insertRows(tx, items, rows);
  emit(
    tx,
    items.flatMap((item, index) => (item.graph?.waits ? [] : [queuedEvent(places[index]!, item, tx.now)])),
  );
  return items.map(({ graph }, index) => ({
    result: 'created',
    id: first + index,
    status: graph?.waits ? 'waiting' : 'queued',
    flowId: flows[index]!,
  }));
}

async function insertRows(tx: Tx, items: readonly NewTask[], rows: unknown[][]): Promise<void> {
  const plain = items.some(({ graph }) => graph) ? rows.filter((_, index) => !items[index]!.graph) : rows;
  if (plain.length > 0) await tx.run(insertTasks, { rows: plain, now: tx.now });
  if (plain.length === rows.length) return;
  const linked = rows.flatMap((row, index) => graphRow(row, items[index]!));
  await tx.run(insertGraphTasks, { rows: linked, now: tx.now });
}

function graphRow(row: unknown[], { graph, ttlMs }: NewTask): unknown[][] {
  if (!graph) return [];
  return [[...row, ...(graph.waits ? ['waiting', 'needs', ttlMs] : ['queued', null, null])]];
}

interface Place {
  id: number;
  streamId: number;
  flowId: number | null;
}

function taskRow({ id, streamId, flowId }: Place, task: NewTask, key: Key | null, now: number): unknown[] {
  const policy = task.notifyPolicy ?? defaultNotifyPolicy(task.source);
  const nobodyWaits = task.sessionKey === null || policy === 'silent';
  return [
    id,
    task.template,
    task.runtime,
    streamId,
    task.labels,
    priorityNumber(task.priority),
    task.runAt ?? now,
    task.args,
    key?.text ?? null,
    key?.digest ?? null,
    task.sessionKey,
    flowId,
    task.source,
    task.sessionKey === null ? 'system' : 'session',
    task.label,
    task.parentTaskId,
    policy,
    nobodyWaits ? 'not_applicable' : 'pending',
    (task.retry ?? DEFAULT_RETRY).max,
    task.retry,
    task.timeoutMs,
    task.ttlMs === null || task.graph?.waits ? null : now + task.ttlMs,
    task.onLost ?? 'retry',
  ];
}

function queuedEvent({ id, streamId, flowId }: Place, task: NewTask, now: number): TaskEvent {
  const event: TaskEvent = {
    type: 'task.queued',
    streamId,
    priority: priorityNumber(task.priority),
    runAt: task.runAt ?? now,
    id,
    template: task.template,
    label: task.label,
    flowId,
    sessionKey: task.sessionKey,
    notifyPolicy: task.notifyPolicy ?? defaultNotifyPolicy(task.source),
    generation: 1,
  };
  if (task.graph) event.graph = true;
  return event;
}
