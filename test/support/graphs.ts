import { sql } from 'kysely';
import { linkSeeds } from '../../src/flows/graph.ts';
import { startGraph } from '../../src/flows/graph-start.ts';
import type { Grant } from '../../src/tasks/claim.ts';
import type { NeedCondition } from '../../src/tasks/needs-graph.ts';
import type { NewTask } from '../../src/tasks/task.ts';
import { type Core, newTask } from './core.ts';

/** What a test says of one task of a graph. */
export interface Node {
  needs?: readonly (number | string)[];
  when?: NeedCondition;
  flowId?: string;
  task?: Partial<NewTask>;
}

/** Makes a graph as a submission does; answers its tasks in order. Each is labelled by its index unless it says otherwise. */
export async function makeGraph(
  core: Core,
  nodes: readonly Node[],
  options: { deadlineMs?: number; goal?: string; task?: Partial<NewTask> } = {},
): Promise<number[]> {
  const seeds = nodes.map(({ task }, index) => ({
    task: newTask({ label: `${index}`, ...options.task, ...task }),
    route: null,
    goal: 'graph',
  }));
  const placeOf = (index: number) => `[${index}].`;
  const whole = nodes.every(({ flowId }) => flowId === undefined);
  const linked = linkSeeds(seeds, nodes, { whole, placeOf, ids: core.store.ids });
  const order = { seeds: linked, goal: options.goal ?? 'graph', deadlineMs: options.deadlineMs ?? null };
  const rooms = { ids: core.store.ids, emit: core.emit };
  return (await core.store.transact('test.graph', (tx) => startGraph(tx, order, rooms))).map(({ id }) => id);
}

/** A → B, C → D; what is said of B, C and D beside their needs. */
export const diamond = (b: Omit<Node, 'needs'> = {}, d: Omit<Node, 'needs'> = {}): Node[] => [
  {},
  { ...b, needs: [0] },
  { needs: [0] },
  { ...d, needs: [1, 2] },
];

export async function statuses(core: Core, ids: readonly number[]): Promise<string[]> {
  return Promise.all(ids.map(async (id) => (await core.task(id)).status));
}

/** Claims exactly this task and reports its start. */
export async function runTask(core: Core, id: number): Promise<Grant> {
  const grants = await core.claimAll('a1', { max: 1_000 });
  const grant = grants.find(({ taskId }) => taskId === id);
  for (const other of grants) if (other !== grant) await core.tell(other, { type: 'released' });
  if (!grant) throw new Error(`task ${id} is not to be had`);
  await core.tell(grant, { type: 'started' });
  return grant;
}

export async function succeed(core: Core, id: number): Promise<void> {
  await core.tell(await runTask(core, id), { type: 'succeeded', summary: `summary of ${id}` });
}

export async function fail(core: Core, id: number): Promise<void> {
  await core.tell(await runTask(core, id), { type: 'failed', errorClass: 'permanent', error: 'no such room' });
}

export async function storedNeeds(core: Core): Promise<[task: number, on: number, condition: string, met: number][]> {
  const query = sql<{ task_id: number; on_task_id: number; condition: string; met: number }>`
    select * from need order by task_id, on_task_id`;
  return (await core.store.fetch(query)).map((row) => [row.task_id, row.on_task_id, row.condition, row.met]);
}
