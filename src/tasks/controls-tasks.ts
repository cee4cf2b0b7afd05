import { audit } from '../sessions/audit.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { headRef, headsOf, record, type TaskOrder, unique } from './cancel.ts';
import { pausedSince, pauseQueued, resumePaused, setNotifyPolicy, setPriority } from './controls-queries.ts';
import type { TaskHead } from './queries.ts';
import { auditTarget } from './retry.ts';
import {
  allows,
  isFinal,
  isHeld,
  type NotifyPolicy,
  PRIORITIES,
  type Priority,
  priorityNumber,
  type TaskState,
} from './states.ts';
import type { Emit, TaskEvent } from './task.ts';

/** What a person does to the place of one task in the line, and to what is told of it. */

export interface PlaceOrder extends TaskOrder {
  /** In the person's words; kept in the audit. */
  why?: string;
}

export interface PriorityOrder extends PlaceOrder {
  priority: Priority;
}

export interface NotifyOrder extends PlaceOrder {
  policy: NotifyPolicy;
}

export type PlaceAnswer =
  | { result: 'changed' }
  /** It was so already. */
  | { result: 'unchanged' }
  | { result: 'refused'; status: TaskState }
  | { result: 'unknown' };

/** queued → paused, and nothing else: what waits for something does not start anyhow, what runs is stopped by a cancel. */
export function pauseTasksVerb(emit: Emit<TaskEvent>): Verb<PlaceOrder, PlaceAnswer> {
  return { name: 'task.pause', rank: 60, run: (tx, orders) => changePlaces(tx, orders, PAUSE, emit) };
}

/** paused → queued, in its old place; the time for which it was paused does not count against its time to live. */
export function resumeTasksVerb(emit: Emit<TaskEvent>): Verb<PlaceOrder, PlaceAnswer> {
  return { name: 'task.resume', rank: 60, run: (tx, orders) => changePlaces(tx, orders, RESUME, emit) };
}

/** Of a task that no agent holds and that is not over; its place among those of the new priority is that of its time. */
export function setPriorityVerb(emit: Emit<TaskEvent>): Verb<PriorityOrder, PlaceAnswer> {
  return { name: 'task.priority', rank: 60, run: (tx, orders) => changePlaces(tx, orders, PRIORITY, emit) };
}

/**
 * In any state: what is told from now on goes by the new policy. What waits to be sent and is not wanted any more is taken back by whoever
 * listens to `task.notify`; what was sent stays said.
 */
export function setNotifyPolicies(tx: Tx, orders: readonly NotifyOrder[], emit: Emit<TaskEvent>) {
  return changePlaces(tx, orders, NOTIFY, emit);
}

export function setNotifyPolicyVerb(emit: Emit<TaskEvent>): Verb<NotifyOrder, PlaceAnswer> {
  return { name: 'task.notify', rank: 60, run: (tx, orders) => setNotifyPolicies(tx, orders, emit) };
}

interface Chosen<O> {
  readonly order: O;
  readonly head: TaskHead;
}

interface Change<O extends PlaceOrder> {
  /** Of the history; the audit has it with `task.` before it. */
  readonly type: string;
  may(state: TaskState): boolean;
  isDone(order: O, head: TaskHead): boolean;
  /** Writes the rows; answers the tasks that it was in time for. */
  write(tx: Tx, chosen: readonly Chosen<O>[]): Promise<{ id: number }[]>;
  data(order: O, head: TaskHead): Record<string, unknown>;
  events(order: O, head: TaskHead): TaskEvent[];
}

const PAUSE: Change<PlaceOrder> = {
  type: 'paused',
  may: (state) => allows('pause', state),
  isDone: (_order, { status }) => status === 'paused',
  write: (tx, chosen) => tx.all(pauseQueued, { rows: chosen.map(({ head }) => [head.id]), now: tx.now }),
  data: () => ({}),
  events: (_order, head) => [{ type: 'task.state', from: 'queued', to: 'paused', reason: 'paused', ...headRef(head) }],
};

const RESUME: Change<PlaceOrder> = {
  type: 'resumed',
  may: (state) => allows('resume', state),
  isDone: (_order, { status }) => status === 'queued',
  async write(tx, chosen) {
    const ids = chosen.map(({ head }) => [head.id]);
    const since = new Map((await tx.all(pausedSince, { rows: ids })).map(({ task_id, at }) => [task_id, at]));
    const rows = chosen.map(({ head }) => [head.id, Math.max(0, tx.now - (since.get(head.id) ?? tx.now))]);
    return tx.all(resumePaused, { rows, now: tx.now });
  },
  data: () => ({}),
  events: (_order, head) => [
    { type: 'task.state', from: 'paused', to: 'queued', reason: 'resumed', ...headRef(head) },
    queued(head, head.priority),
  ],
};

const PRIORITY: Change<PriorityOrder> = {
  type: 'priority',
  may: (state) => !isHeld(state) && !isFinal(state),
  isDone: ({ priority }, head) => PRIORITIES[head.priority] === priority,
  write: (tx, chosen) =>
    tx.all(setPriority, {
      rows: chosen.map(({ order, head }) => [head.id, head.status, priorityNumber(order.priority)]),
      now: tx.now,
    }),
  data: ({ priority }, head) => ({ from: PRIORITIES[head.priority], to: priority }),
  events: ({ priority }, head) => (head.status === 'queued' ? [queued(head, priorityNumber(priority))] : []),
};

const NOTIFY: Change<NotifyOrder> = {
  type: 'notify',
  may: () => true,
  isDone: ({ policy }, head) => head.notify_policy === policy,
  write: (tx, chosen) => tx.all(setNotifyPolicy, { rows: chosen.map(({ order, head }) => [head.id, order.policy]) }),
  data: ({ policy }, head) => ({ from: head.notify_policy, to: policy }),
  events: ({ policy }, head) => [{ type: 'task.notify', ...headRef(head), notifyPolicy: policy }],
};

/** Several orders for one task take effect one after another. */
async function changePlaces<O extends PlaceOrder>(
  tx: Tx,
  orders: readonly O[],
  change: Change<O>,
  emit: Emit<TaskEvent>,
): Promise<PlaceAnswer[]> {
  const heads = await headsOf(tx, orders);
  const first = unique(orders, heads) as Chosen<O>[];
  const chosen = first.filter(({ order, head }) => change.may(head.status as TaskState) && !change.isDone(order, head));
  if (chosen.length > 0) await apply(tx, chosen, change, emit);
  const done = new Set<O>(chosen.map(({ order }) => order));
  const known = new Set<O>(first.map(({ order }) => order));
  const rest = orders.filter((order) => heads.has(order.id) && !known.has(order));
  const later = rest.length === 0 ? [] : await changePlaces(tx, rest, change, emit);
  return orders.map((order) => {
    if (done.has(order)) return { result: 'changed' };
    const again = rest.indexOf(order);
    return again < 0 ? answerTo(order, heads.get(order.id), change) : later[again]!;
  });
}

async function apply<O extends PlaceOrder>(
  tx: Tx,
  chosen: readonly Chosen<O>[],
  change: Change<O>,
  emit: Emit<TaskEvent>,
): Promise<void> {
  const written = await change.write(tx, chosen);
  if (written.length !== chosen.length)
    throw new Error(`${chosen.length} tasks were to be ${change.type}, but ${written.length} could be`);
  await tell(tx, chosen, change);
  emit(
    tx,
    chosen.flatMap(({ order, head }) => change.events(order, head)),
  );
}

async function tell<O extends PlaceOrder>(tx: Tx, chosen: readonly Chosen<O>[], change: Change<O>): Promise<void> {
  await record(tx, chosen, change.type);
  for (const { order, head } of chosen) {
    const data = { ...change.data(order, head), ...(order.why === undefined ? {} : { why: order.why }) };
    await audit(tx, { actor: order.by, action: `task.${change.type}`, target: auditTarget(head.id), data });
  }
}

function answerTo<O extends PlaceOrder>(order: O, head: TaskHead | undefined, change: Change<O>): PlaceAnswer {
  if (!head) return { result: 'unknown' };
  const status = head.status as TaskState;
  if (change.isDone(order, head) && (change.may(status) || !isFinal(status))) return { result: 'unchanged' };
  return { result: 'refused', status };
}

function queued(head: TaskHead, priority: number): TaskEvent {
  return { type: 'task.queued', streamId: head.stream_id, priority, runAt: head.run_at, ...headRef(head) };
}
