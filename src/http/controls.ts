import { type Gate, listGates } from '../tasks/controls.ts';
import { runningStreams } from '../tasks/controls-queries.ts';
import { LANE_DEFAULTS } from '../tasks/gate-settings.ts';
import { allBands } from '../tasks/line-queries.ts';
import { placeOf } from '../tasks/streams.ts';
import type { Rooms } from './rooms.ts';

type Known = Pick<Rooms, 'store' | 'templates' | 'registry'>;

/** A lane as people see it. */
export interface LaneView {
  readonly name: string;
  /** Running at once; null: no limit. */
  readonly concurrency: number | null;
  /** Where that comes from; `agents`: what those that are online can take together. */
  readonly from: 'set' | 'default' | 'agents' | 'none';
  readonly pause: Gate['pause'];
  readonly running: number;
  /** About: when its first task that is due and not taken was due, epoch milliseconds. */
  readonly waitingSince?: number;
}

export interface PoolView {
  readonly name: string;
  /** Online. */
  readonly agents: number;
  /** Runs that they can take together. */
  readonly capacity: number;
  readonly running: number;
  readonly gate: Gate | undefined;
}

/** Lane of tasks whose template and source name none; it takes what the agents can. */
const MAIN = 'main';

/** Lanes of the loaded templates and the built-in ones: a closed set, good for labels of metrics. */
export function namedLanes(templates: Rooms['templates']): Set<string> {
  const own = templates.list().flatMap(({ lane }) => (lane === null ? [] : [lane]));
  return new Set([MAIN, ...Object.keys(LANE_DEFAULTS), ...own]);
}

/** All lanes that somebody has named: also those of tasks that wait, and those that a person has limited. */
export async function knownLanes({ store, templates }: Known): Promise<Set<string>> {
  const waiting = (await store.all(allBands, {})).map(({ lane }) => lane);
  return new Set([...namedLanes(templates), ...waiting]);
}

/** All pools that somebody has named, and the own queues of agents, as `@agent`. */
export async function knownPools({ store, templates, registry }: Known): Promise<Set<string>> {
  const agents = await registry.list();
  const waiting = (await store.all(allBands, {})).map(({ queue }) => placeOf(queue));
  const own = agents.map(({ agentId }) => `@${agentId}`);
  return new Set([...agents.flatMap(({ pools }) => pools), ...templates.list().map(poolOf), ...waiting, ...own]);
}

/** By name. */
export async function laneViews(rooms: Known & Pick<Rooms, 'line' | 'clock'>): Promise<LaneView[]> {
  const gates = await gatesOf(rooms, 'lane');
  const running = countBy(await rooms.store.all(runningStreams, {}), ({ lane }) => lane);
  const waiting = rooms.line.waitingLanes(rooms.clock.now());
  const capacity = (await online(rooms)).reduce((sum, agent) => sum + agent.concurrency, 0);
  const names = new Set([...(await knownLanes(rooms)), ...gates.keys(), ...running.keys()]);
  return [...names].sort().map((name) => {
    const gate = gates.get(name);
    const waitingSince = waiting.get(name);
    return {
      name,
      ...limitOf(name, gate, capacity),
      pause: gate?.pause ?? null,
      running: running.get(name) ?? 0,
      ...(waitingSince === undefined ? {} : { waitingSince }),
    };
  });
}

function limitOf(name: string, gate: Gate | undefined, capacity: number): Pick<LaneView, 'concurrency' | 'from'> {
  if (gate && gate.concurrency !== null) return { concurrency: gate.concurrency, from: 'set' };
  const byDefault = LANE_DEFAULTS[name];
  if (byDefault !== undefined) return { concurrency: byDefault, from: 'default' };
  return name === MAIN ? { concurrency: capacity, from: 'agents' } : { concurrency: null, from: 'none' };
}

/** By name; own queues of agents only where something is said about them. */
export async function poolViews(rooms: Known): Promise<PoolView[]> {
  const gates = await gatesOf(rooms, 'pool');
  const running = countBy(await rooms.store.all(runningStreams, {}), ({ queue }) => placeOf(queue));
  const agents = await online(rooms);
  const named = [...(await knownPools(rooms))].filter((name) => !name.startsWith('@'));
  const names = new Set([...named, ...gates.keys(), ...running.keys()]);
  return [...names].sort().map((name) => {
    const serving = agents.filter(({ agentId, pools }) => pools.includes(name) || `@${agentId}` === name);
    return {
      name,
      agents: serving.length,
      capacity: serving.reduce((sum, { concurrency }) => sum + concurrency, 0),
      running: running.get(name) ?? 0,
      gate: gates.get(name),
    };
  });
}

const poolOf = ({ pool, agent }: { pool: string; agent: string | null }) => (agent === null ? pool : `@${agent}`);

async function gatesOf({ store }: Known, kind: Gate['kind']): Promise<Map<string, Gate>> {
  const gates = await listGates(store);
  return new Map(gates.filter((gate) => gate.kind === kind).map((gate) => [gate.name, gate]));
}

async function online({ registry }: Known) {
  return (await registry.list()).filter((agent) => agent.online);
}

function countBy<T extends { running: number }>(rows: readonly T[], key: (row: T) => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(key(row), (counts.get(key(row)) ?? 0) + row.running);
  return counts;
}
