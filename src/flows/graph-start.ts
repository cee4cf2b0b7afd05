import { AppError } from '../errors.ts';
import type { IdCodec } from '../ids.ts';
import type { FlowTable } from '../store/tables.ts';
import type { Tx } from '../store/tx.ts';
import { createTasks } from '../tasks/create.ts';
import { insertNeeds, markNeeded, type NeededTask, neededTasks, needsOf } from '../tasks/needs-queries.ts';
import { isFinal, type NotifyPolicy, type TaskState } from '../tasks/states.ts';
import type { CreateAnswer, Emit, NewTask, TaskEvent } from '../tasks/task.ts';
import { type LinkedSeed, type Need, needError } from './graph.ts';
import { markGraph } from './graph-queries.ts';
import { flowById, insertFlows } from './queries.ts';
import { insertFlowsFor, noSessionError, policyOf, withoutSession } from './start.ts';

export interface GraphOrder {
  readonly seeds: readonly LinkedSeed[];
  /** What a new flow is called in lists and messages. */
  readonly goal: string;
  /** Milliseconds from now until what is left of a new flow is stopped; null: never. */
  readonly deadlineMs: number | null;
}

export interface GraphRooms {
  readonly ids: Pick<IdCodec, 'encode'>;
  readonly emit: Emit<TaskEvent>;
}

/**
 * Creates tasks that need one another or belong to a flow that exists, all or none, within the caller's transaction: those whose needs
 * are met are queued, the others wait.
 * @throws AppError invalid_request (no such flow or task, another's flow), conflict (a flow that is over or being cancelled, a need that
 * has ended without success), idempotency_conflict (a graph of which a part was submitted before)
 */
export async function startGraph(tx: Tx, order: GraphOrder, rooms: GraphRooms): Promise<CreateAnswer[]> {
  const flows = await flowsOf(tx, order.seeds, rooms.ids);
  const seeds = order.seeds.map((seed) => withOwner(seed, flows));
  for (const seed of await withoutSession(tx, seeds)) throw noSessionError((seed as LinkedSeed).place);
  const needed = await neededBy(tx, seeds, rooms.ids);
  const tasks = seeds.map((seed, index) => newTask(seed, isLinkedTask(seeds, index, flows), needed));
  const byTask = new Map(tasks.map((task, index) => [task, seeds[index]!]));
  const answers = await createTasks(tx, tasks, rooms.emit, (inner, fresh) =>
    insertFlowsOf(
      inner,
      fresh.map((task) => byTask.get(task)!),
      order,
    ),
  );
  // The caller refuses these, each at its place.
  if (answers.some(({ result }) => result === 'conflict')) return answers;
  const made = answers as Made[];
  await insertNeedRows(tx, seeds, made, needed);
  await refuseOtherRepeats(tx, seeds, made);
  return answers;
}

type Made = Extract<CreateAnswer, { result: 'created' | 'existing' }>;
type Flows = ReadonlyMap<number, FlowTable>;
type Needed = ReadonlyMap<number, NeededTask>;

/** The flows that are to get more tasks. */
async function flowsOf(tx: Tx, seeds: readonly LinkedSeed[], ids: GraphRooms['ids']): Promise<Flows> {
  const flows = new Map<number, FlowTable>();
  for (const { flow, place, task } of seeds) {
    if (typeof flow !== 'number') continue;
    const row = flows.get(flow) ?? (await tx.all(flowById, { id: flow }))[0];
    const refuse = (code: 'invalid_request' | 'conflict', text: string, field = 'flowId') =>
      new AppError(code, text, { field: place + field });
    if (!row) throw refuse('invalid_request', `there is no flow ${ids.encode(flow)}`);
    if (task.sessionKey !== null && task.sessionKey !== row.owner_session_key)
      throw refuse('invalid_request', `flow ${ids.encode(flow)} belongs to another conversation`, 'sessionKey');
    if (row.ended_at !== null) throw refuse('conflict', `flow ${ids.encode(flow)} is over (${row.status})`);
    if (row.cancel_requested_at !== null)
      throw refuse('conflict', `flow ${ids.encode(flow)} is being cancelled and gets no more tasks`);
    flows.set(flow, row);
  }
  return flows;
}

function withOwner(seed: LinkedSeed, flows: Flows): LinkedSeed {
  const flow = typeof seed.flow === 'number' ? flows.get(seed.flow) : undefined;
  if (!flow) return seed;
  return { ...seed, task: { ...seed.task, flowId: flow.id, sessionKey: flow.owner_session_key || null } };
}

/** The tasks of these flows that the new ones need. */
async function neededBy(tx: Tx, seeds: readonly LinkedSeed[], ids: GraphRooms['ids']): Promise<Needed> {
  const wanted = new Set(seeds.flatMap(({ needs }) => needs.flatMap((need) => ('id' in need ? [need.id] : []))));
  if (wanted.size === 0) return new Map();
  const found = await tx.all(neededTasks, { rows: [...wanted].map((id) => [id]) });
  const tasks = new Map(found.map((task) => [task.id, task]));
  for (const [index, { needs, flow, condition, place }] of seeds.entries()) {
    for (const [nth, need] of needs.entries()) {
      if (!('id' in need)) continue;
      const task = tasks.get(need.id);
      const shown = ids.encode(need.id);
      if (task?.flow_id !== flow)
        throw needError(place, index, nth, `there is no task ${shown} in flow ${ids.encode(flow as number)}`);
      const status = task.status as TaskState;
      if (condition === 'success' && isFinal(status) && status !== 'succeeded')
        throw needError(
          place,
          index,
          nth,
          `task ${shown} is ${status}, so what needs its success could never start: retry it first, or say when: always`,
          'conflict',
        );
    }
  }
  return tasks;
}

/** Of a graph, needing or needed: what its end means for others is looked up. */
function isLinkedTask(seeds: readonly LinkedSeed[], index: number, flows: Flows): boolean {
  const { flow, needs } = seeds[index]!;
  if (flow === 'new' || needs.length > 0) return true;
  if (flow === 'own') return false;
  return flows.get(flow)!.graph === 1 || seeds.some((other) => other.needs.some((need) => indexOf(need) === index));
}

const indexOf = (need: Need): number | undefined => ('index' in need ? need.index : undefined);

function newTask({ task, needs, condition }: LinkedSeed, linked: boolean, needed: Needed): NewTask {
  if (!linked) return { ...task };
  return { ...task, graph: { waits: needs.some((need) => !isMet(need, condition, needed)) } };
}

function isMet(need: Need, condition: LinkedSeed['condition'], needed: Needed): boolean {
  if (!('id' in need)) return false;
  const status = needed.get(need.id)!.status as TaskState;
  return status === 'succeeded' || (condition === 'always' && isFinal(status));
}

/** The flow of each task that is really created. */
async function insertFlowsOf(tx: Tx, fresh: readonly LinkedSeed[], order: GraphOrder): Promise<(number | null)[]> {
  const whole = fresh.filter(({ flow }) => flow === 'new');
  const made = whole.length === 0 ? null : await insertGraphFlow(tx, whole, order);
  const own = fresh.filter(({ flow }) => flow === 'own');
  const others = await insertFlowsFor(tx, own);
  return fresh.map((seed) =>
    seed.flow === 'new' ? made : seed.flow === 'own' ? others[own.indexOf(seed)]! : seed.flow,
  );
}

async function insertGraphFlow(
  tx: Tx,
  seeds: readonly LinkedSeed[],
  { goal, deadlineMs }: GraphOrder,
): Promise<number> {
  const id = await tx.ids(1);
  const owner = seeds[0]!.task.sessionKey ?? '';
  await tx.run(insertFlows, { rows: [[id, owner, null, goal, loudest(seeds)]], now: tx.now });
  await tx.run(markGraph, { id, deadline: deadlineMs === null ? null : tx.now + deadlineMs });
  return id;
}

/** A flow is told about as its most talkative task. */
function loudest(seeds: readonly LinkedSeed[]): NotifyPolicy {
  const policies = new Set(seeds.map(({ task }) => policyOf(task)));
  return (['state_changes', 'done_only'] as const).find((policy) => policies.has(policy)) ?? 'silent';
}

async function insertNeedRows(
  tx: Tx,
  seeds: readonly LinkedSeed[],
  made: readonly Made[],
  needed: Needed,
): Promise<void> {
  const fresh = seeds.map((seed, index) => ({ ...seed, ...made[index]! })).filter(({ result }) => result === 'created');
  const rows = fresh.flatMap(({ id, needs, condition }) =>
    needs.map((need) => [id, onOf(need, made), condition, isMet(need, condition, needed) ? 1 : 0]),
  );
  if (rows.length > 0) await tx.run(insertNeeds, { rows });
  if (needed.size > 0) await tx.run(markNeeded, { rows: [...needed.keys()].map((id) => [id]) });
}

const onOf = (need: Need, made: readonly Made[]): number => ('id' in need ? need.id : made[need.index]!.id);

/**
 * A request that is sent again (its answer was lost) finds all its tasks with the same needs in the same flow. Anything between that and
 * a new request would tie new tasks to old ones that nobody has named.
 */
async function refuseOtherRepeats(tx: Tx, seeds: readonly LinkedSeed[], made: readonly Made[]): Promise<void> {
  const repeated = [...made.keys()].filter(
    (index) => made[index]!.result === 'existing' && seeds[index]!.flow !== 'own',
  );
  if (repeated.length === 0) return;
  const needs = await tx.all(needsOf, {
    rows: [...new Set(repeated.map((index) => made[index]!.id))].map((id) => [id]),
  });
  const whole = made.filter((_, index) => seeds[index]!.flow === 'new');
  const isSplit = new Set(whole.map(({ result, flowId }) => `${result} ${flowId}`)).size > 1;
  for (const index of repeated) {
    const { flow, needs: wanted, place } = seeds[index]!;
    const { id, flowId } = made[index]!;
    const expected = wanted.map((need) => onOf(need, made)).sort((a, b) => a - b);
    const stored = needs
      .filter(({ task_id }) => task_id === id)
      .map(({ on_task_id }) => on_task_id)
      .sort((a, b) => a - b);
    if ((flow === 'new' ? !isSplit : flowId === flow) && expected.join() === stored.join()) continue;
    throw new AppError(
      'idempotency_conflict',
      'this idempotency key was used before: the tasks of a graph are all new, or all the same as before with the same needs',
      { field: `${place}idempotencyKey` },
    );
  }
  refuseNewOnOld(seeds, made);
}

function refuseNewOnOld(seeds: readonly LinkedSeed[], made: readonly Made[]): void {
  for (const [task, { needs, place }] of seeds.entries()) {
    if (made[task]!.result === 'existing') continue;
    for (const [nth, need] of needs.entries())
      if ('index' in need && made[need.index]!.result === 'existing')
        throw needError(place, task, nth, `task ${need.index} was submitted before: name it by its id`, 'conflict');
  }
}
