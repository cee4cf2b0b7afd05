import type { OutboxTable } from '../../store/outbox-tables.ts';
import type { Store } from '../../store/store.ts';
import type { EventTable, FollowupTable } from '../../store/tables.ts';
import { selectEvents, selectRuns, selectTasksById } from '../../tasks/read-queries.ts';
import {
  deliveriesOfKeys,
  deliveriesOfTasks,
  effectsOfKey,
  effectsOfTasks,
  followupsOfFlows,
  followupsOfMessages,
  tasksOfBusinessKey,
  tasksOfFlows,
  thingsOfId,
  tracedEffects,
  tracedFlows,
  tracedMessages,
} from './trace-queries.ts';
import { type Touched, type TraceEntry, traceEntries } from './trace-words.ts';

export interface Trace {
  key: string;
  /** Oldest first. */
  entries: TraceEntry[];
  /** More tasks have this key than are shown. */
  truncated: boolean;
}

/** Tasks of one trace. */
const MAX_TASKS = 100;

/**
 * Everything that a business key, an effect key or an id (of a task, run, flow, effect, message or delivery) touched, from the message
 * that asked to the receipt of the answer. Undefined where nothing has to do with it.
 */
export async function traceOf(store: Store, key: string): Promise<Trace | undefined> {
  const seeds = await seedsOf(store, key);
  await followEffects(store, seeds);
  await followMessages(store, seeds);
  await tasksFrom(store, seeds);
  const touched = await touchedBy(store, seeds);
  const entries = traceEntries(touched, store.ids);
  return entries.length === 0 ? undefined : { key, entries, truncated: seeds.truncated };
}

/** Where the search begins, and what it has found so far. */
interface Seeds {
  tasks: Set<number>;
  /** Flows that are shown with all of their tasks. */
  wholeFlows: Set<number>;
  effects: Set<number>;
  messages: Set<number>;
  deliveries: Set<number>;
  truncated: boolean;
}

async function seedsOf(store: Store, key: string): Promise<Seeds> {
  const tasks = await store.all(tasksOfBusinessKey, { key, limit: MAX_TASKS + 1 });
  const effects = await store.all(effectsOfKey, { key, limit: MAX_TASKS });
  const seeds: Seeds = {
    tasks: new Set(tasks.slice(0, MAX_TASKS).map(({ id }) => id)),
    wholeFlows: new Set(),
    effects: new Set(effects.map(({ id }) => id)),
    messages: new Set(),
    deliveries: new Set(),
    truncated: tasks.length > MAX_TASKS,
  };
  // A task without a key of its own hands `task:<id>` to its program.
  const id = store.ids.decode(key.replace(/^task:/, ''));
  for (const thing of id === undefined ? [] : await store.all(thingsOfId, { id })) {
    if (thing.task_id !== null) seeds.tasks.add(thing.task_id);
    if (thing.flow_id !== null) seeds.wholeFlows.add(thing.flow_id);
    if (thing.kind === 'effect') seeds.effects.add(id!);
    if (thing.kind === 'message') seeds.messages.add(id!);
    if (thing.kind === 'delivery') seeds.deliveries.add(id!);
  }
  return seeds;
}

const rowsOf = (ids: Iterable<number>) => [...ids].map((id) => [id]);

/** From effects to the tasks that began them. */
async function followEffects(store: Store, seeds: Seeds): Promise<void> {
  if (seeds.effects.size === 0) return;
  for (const effect of await store.all(tracedEffects, { rows: rowsOf(seeds.effects) })) {
    seeds.tasks.add(effect.first_task_id);
    seeds.tasks.add(effect.task_id);
  }
}

/** From messages to the flows that they asked for. */
async function followMessages(store: Store, seeds: Seeds): Promise<void> {
  if (seeds.messages.size === 0) return;
  for (const errand of await store.all(followupsOfMessages, { rows: rowsOf(seeds.messages) }))
    if (errand.flow_id !== null) seeds.wholeFlows.add(errand.flow_id);
}

async function tasksFrom(store: Store, seeds: Seeds): Promise<void> {
  if (seeds.wholeFlows.size === 0) return;
  const found = await store.all(tasksOfFlows, { rows: rowsOf(seeds.wholeFlows), limit: MAX_TASKS + 1 });
  seeds.truncated ||= found.length > MAX_TASKS;
  for (const { id } of found.slice(0, MAX_TASKS)) seeds.tasks.add(id);
}

async function touchedBy(store: Store, seeds: Seeds): Promise<Touched> {
  const tasks = seeds.tasks.size === 0 ? [] : await selectTasksById(store, [...seeds.tasks]);
  const taskRows = tasks.map(({ id }) => [id]);
  const flowIds = new Set([
    ...seeds.wholeFlows,
    ...tasks.flatMap(({ flow_id }) => (flow_id === null ? [] : [flow_id])),
  ]);
  for (const { id } of await store.all(effectsOfTasks, { rows: taskRows })) seeds.effects.add(id);
  const errands = await errandsOf(store, flowIds, seeds.messages);
  for (const errand of errands) seeds.messages.add(errand.inbox_id);
  return {
    messages: await store.all(tracedMessages, { rows: rowsOf(seeds.messages) }),
    errands,
    flows: await store.all(tracedFlows, { rows: rowsOf(flowIds) }),
    tasks,
    events: await eventsOf(store, seeds.tasks),
    runs: await selectRuns(store, [...seeds.tasks]),
    effects: await store.all(tracedEffects, { rows: rowsOf(seeds.effects) }),
    deliveries: await deliveriesOf(store, taskRows, seeds.messages),
  };
}

async function errandsOf(store: Store, flows: Set<number>, messages: Set<number>): Promise<FollowupTable[]> {
  const found = [
    ...(await store.all(followupsOfFlows, { rows: rowsOf(flows) })),
    ...(await store.all(followupsOfMessages, { rows: rowsOf(messages) })),
  ];
  return [...new Map(found.map((errand) => [errand.id, errand])).values()];
}

async function eventsOf(store: Store, taskIds: Iterable<number>): Promise<EventTable[]> {
  const events: EventTable[] = [];
  for (const id of taskIds) events.push(...(await selectEvents(store, id, null)));
  return events;
}

async function deliveriesOf(store: Store, taskRows: number[][], messages: Set<number>): Promise<OutboxTable[]> {
  const keys = [...messages].flatMap((id) => [[`inbox:${id}:reply`], [`inbox:${id}:errand`]]);
  const found = [
    ...(await store.all(deliveriesOfTasks, { rows: taskRows })),
    ...(await store.all(deliveriesOfKeys, { rows: keys })),
  ];
  return [...new Map(found.map((message) => [message.id, message])).values()];
}
