import type { IdCodec } from '../ids.ts';
import type { Tx } from '../store/tx.ts';
import { oneLine } from '../text.ts';
import { headsOf, settle } from './cancel.ts';
import type { Words } from './explain-facts.ts';
import { both } from './explain-words.ts';
import { ableToGoOn, type NeedCondition, type UnmetNeed } from './needs-graph.ts';
import {
  doomedTasks,
  meetNeeds,
  needsOf,
  type ReadyTask,
  readyTasks,
  releaseTasks,
  skippedTasks,
} from './needs-queries.ts';
import { insertEvents, type TaskHead } from './queries.ts';
import { reopen } from './reopen.ts';
import type { FinalState, TaskState } from './states.ts';
import type { Emit, EndedTask, TaskEvent } from './task.ts';
import { refOf } from './transition.ts';

export interface NeedRooms {
  readonly ids: Pick<IdCodec, 'encode'>;
  readonly emit: Emit<TaskEvent>;
}

/**
 * Subscriber, before those that notify and those that give tasks to agents. In the transaction of a task's end: what waited for nothing
 * else is queued, and what needed its success is cancelled with all that needs that in turn (reason `dependency_failed`). When a task is
 * run again, what was skipped because of it waits again. Events of tasks without needs cost a look at each, and no statement.
 */
export function watchNeeds(rooms: NeedRooms) {
  return async (tx: Tx, events: readonly TaskEvent[]): Promise<void> => {
    const ended = new Set<number>();
    const reopened = new Set<number>();
    for (const event of events) {
      if (event.graph === undefined) continue;
      if (event.type === 'task.ended') ended.add(event.id);
      else if (event.type === 'task.reopened') reopened.add(event.id);
    }
    if (ended.size > 0) await settleNeeds(tx, [...ended], rooms);
    if (reopened.size > 0) await unskip(tx, [...reopened], rooms);
  };
}

/** What follows from the ends of these tasks, by what their rows say; right however often it is done. Answers how many it moved. */
export async function settleNeeds(tx: Tx, ended: readonly number[], rooms: NeedRooms): Promise<number> {
  const rows = ended.map((id) => [id]);
  const touched = new Set((await tx.all(meetNeeds, { rows })).map(({ task_id }) => task_id));
  const released = await releaseReady(tx, [...touched], rooms.emit);
  return released + (await skipDoomed(tx, rows, rooms));
}

/** Queues those of these tasks that wait for needs of which none is left. Answers how many. */
export async function releaseReady(tx: Tx, ids: readonly number[], emit: Emit<TaskEvent>): Promise<number> {
  if (ids.length === 0) return 0;
  const ready = await tx.all(readyTasks, { rows: ids.map((id) => [id]) });
  if (ready.length === 0) return 0;
  const rows = ready.map((task) => [task.task_id, runAtOf(task, tx.now), expiryOf(task, tx.now)]);
  await tx.run(releaseTasks, { rows, now: tx.now });
  emit(
    tx,
    ready.flatMap((task) => releaseEvents(task, tx.now)),
  );
  return ready.length;
}

/** The needs of these tasks that are not met. */
export async function unmetNeeds(tx: Tx, ids: readonly number[]): Promise<UnmetNeed[]> {
  const needs = await tx.all(needsOf, { rows: ids.map((id) => [id]) });
  return needs
    .filter(({ met }) => met === 0)
    .map(({ task_id, on_task_id, condition, status }) => ({
      task: task_id,
      on: on_task_id,
      condition: condition as NeedCondition,
      status: status as TaskState | null,
    }));
}

/** It stands in line from now on, and not from when it was asked for; not before a time that was asked for by name, at its creation. */
function runAtOf({ generation, created_at, run_at }: ReadyTask, now: number): number {
  const isNamed = generation === 1 && run_at > created_at;
  return isNamed ? Math.max(run_at, now) : now;
}

const expiryOf = (task: ReadyTask, now: number) => (task.queue_ttl_ms === null ? null : now + task.queue_ttl_ms);

function releaseEvents(task: ReadyTask, now: number): TaskEvent[] {
  const ref = refOf(task);
  const { stream_id: streamId, priority } = task;
  return [
    { type: 'task.state', from: 'waiting', to: 'queued', reason: 'needs_met', ...ref },
    { type: 'task.queued', streamId, priority, runAt: runAtOf(task, now), ...ref },
  ];
}

async function skipDoomed(tx: Tx, rows: unknown[][], rooms: NeedRooms): Promise<number> {
  const doomed = await tx.all(doomedTasks, { rows });
  if (doomed.length === 0) return 0;
  const heads = await headsOf(tx, [...doomed, ...doomed.map(({ root }) => ({ id: root }))]);
  const causes = new Map(doomed.map(({ id, root }) => [id, endedTask(heads.get(root)!)]));
  const skipped = doomed.map(({ id }) => heads.get(id)!);
  const changeOf = (head: TaskHead) => {
    const because = causes.get(head.id)!;
    return { to: 'cancelled', reason: 'dependency_failed', error: sentence(because, rooms.ids), because } as const;
  };
  await settle(tx, skipped, changeOf, rooms.emit);
  await note(tx, 'skipped', skipped, (head) => {
    const { id, state } = causes.get(head.id)!;
    return { need: rooms.ids.encode(id), ended: state };
  });
  return skipped.length;
}

function endedTask({ id, template, label, status }: TaskHead): EndedTask {
  return { id, template, label, state: status as FinalState };
}

const ENDED: Record<FinalState, Words> = {
  succeeded: both('has succeeded', '已成功'),
  failed: both('has failed', '失败'),
  timed_out: both('has timed out', '超时'),
  cancelled: both('was cancelled', '被取消'),
  lost: both('was lost', '失联'),
};

/** `task k7q2 (load) has failed, and this one needs its success` */
function sentence({ id, template, label, state }: EndedTask, ids: NeedRooms['ids']): Words {
  const [name, how] = [oneLine(label ?? template, 80), ENDED[state]];
  return both(
    `task ${ids.encode(id)} (${name}) ${how.en}, and this one needs its success`,
    `任务 ${ids.encode(id)}（${name}）${how.zh}，而本任务需要它成功`,
  );
}

/** Of what was skipped because of these tasks, that goes back to waiting which nothing else stands in the way of. */
async function unskip(tx: Tx, reopened: readonly number[], rooms: NeedRooms): Promise<void> {
  const skipped = (await tx.all(skippedTasks, { rows: reopened.map((id) => [id]) })).map(({ id }) => id);
  if (skipped.length === 0) return;
  const able = ableToGoOn(new Set(skipped), await unmetNeeds(tx, skipped));
  if (able.size === 0) return;
  const heads = [
    ...(
      await headsOf(
        tx,
        [...able].map((id) => ({ id })),
      )
    ).values(),
  ];
  await reopen(
    tx,
    heads.map((head) => ({ head, to: 'waiting', reason: 'need_retried' })),
    rooms.emit,
  );
  await note(tx, 'waits_again', heads, () => null);
}

async function note(
  tx: Tx,
  type: string,
  heads: readonly TaskHead[],
  dataOf: (head: TaskHead) => unknown,
): Promise<void> {
  const first = await tx.ids(heads.length);
  await tx.run(insertEvents, {
    rows: heads.map((head, index) => [head.id, 0, first + index, type, tx.now, dataOf(head)]),
  });
}
