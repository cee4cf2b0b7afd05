import type { Route } from '../channels/channel.ts';
import { AppError } from '../errors.ts';
import type { Tx, Verb } from '../store/tx.ts';
import { createTasks } from '../tasks/create.ts';
import { defaultNotifyPolicy, type NotifyPolicy } from '../tasks/states.ts';
import type { CreateAnswer, Emit, NewTask, TaskEvent } from '../tasks/task.ts';
import { insertFlows, knownSessions } from './queries.ts';

/** A task to create. With a `sessionKey` it gets a flow of its own, owned by that conversation; without, none. */
export interface FlowSeed {
  task: NewTask;
  /** The route of the message that asked; null: the conversation's stored destination. */
  route: Route | null;
  /** What the person asked for, in their words; shown in lists. */
  goal: string;
}

export type StartAnswer = CreateAnswer | { result: 'no_session' };

/** Flow and task in one transaction; idempotent by the task's key. `no_session`: nobody has ever spoken in that conversation. */
export function startFlowsVerb(emit: Emit<TaskEvent>): Verb<FlowSeed, StartAnswer> {
  return { name: 'flow.start', rank: 20, run: (tx, seeds) => startFlows(tx, seeds, emit) };
}

export async function startFlows(tx: Tx, seeds: readonly FlowSeed[], emit: Emit<TaskEvent>): Promise<StartAnswer[]> {
  const homeless = await withoutSession(tx, seeds);
  const chosen = homeless.size === 0 ? seeds : seeds.filter((seed) => !homeless.has(seed));
  const byTask = new Map(chosen.map((seed) => [seed.task, seed]));
  const created = await createTasks(
    tx,
    chosen.map((seed) => seed.task),
    emit,
    (inner, tasks) =>
      insertFlowsFor(
        inner,
        tasks.map((task) => byTask.get(task)!),
      ),
  );
  if (homeless.size === 0) return created;
  let next = 0;
  return seeds.map((seed) => (homeless.has(seed) ? { result: 'no_session' } : created[next++]!));
}

/** Seeds that name a conversation nobody knows and bring no route of their own. */
export async function withoutSession(tx: Tx, seeds: readonly FlowSeed[]): Promise<Set<FlowSeed>> {
  const asked = seeds.filter(
    (seed) => seed.task.sessionKey !== null && seed.task.flowId === null && seed.route === null,
  );
  if (asked.length === 0) return new Set();
  const keys = [...new Set(asked.map((seed) => seed.task.sessionKey!))];
  const known = new Set(
    (await tx.all(knownSessions, { rows: keys.map((key) => [key]) })).map((row) => row.session_key),
  );
  return new Set(asked.filter((seed) => !known.has(seed.task.sessionKey!)));
}

/** A task for a conversation that nobody has spoken in. @param place of the task in the request */
export function noSessionError(place: string): AppError {
  return new AppError(
    'invalid_request',
    'nobody has spoken in that conversation yet, so there is nowhere to report to',
    { field: `${place}sessionKey` },
  );
}

/** What the task is to tell, by its own word or by its source. */
export function policyOf({ notifyPolicy, source }: NewTask): NotifyPolicy {
  return notifyPolicy ?? defaultNotifyPolicy(source);
}

/** A flow for each that has a conversation and no flow; answers the flow of each. */
export async function insertFlowsFor(tx: Tx, seeds: readonly FlowSeed[]): Promise<(number | null)[]> {
  const owned = seeds.filter((seed) => seed.task.sessionKey !== null && seed.task.flowId === null);
  if (owned.length === 0) return seeds.map((seed) => seed.task.flowId);
  const first = await tx.ids(owned.length);
  const rows = owned.map(({ task, route, goal }, index) => [
    first + index,
    task.sessionKey,
    route,
    goal,
    policyOf(task),
  ]);
  await tx.run(insertFlows, { rows, now: tx.now });
  let next = first;
  return seeds.map((seed) => (seed.task.sessionKey !== null && seed.task.flowId === null ? next++ : seed.task.flowId));
}

/** One flow with one task. */
export async function startFlow(tx: Tx, seed: FlowSeed, emit: Emit<TaskEvent>): Promise<StartAnswer> {
  return (await startFlows(tx, [seed], emit))[0]!;
}
