import { LaneWatch } from '../agents/lane-watch.ts';
import type { Rooms } from '../http/rooms.ts';
import type { Service } from '../service.ts';
import { Controls } from '../tasks/controls.ts';
import type { Base } from './base.ts';

type Agents = Pick<Rooms, 'dispatch' | 'line' | 'registry'>;

/** Limits, pauses and the drain, as stored; and the service that tells which lanes wait. */
export async function controlRooms(base: Base, agents: Agents): Promise<{ controls: Controls; laneWatch: Service }> {
  const controls = new Controls({ line: agents.line, log: base.log, onFreed: serveAgain(base, () => agents) });
  await controls.load(base.store);
  return { controls, laneWatch: new LaneWatch({ ...base, ...agents, warnMs: base.settings.laneWarnMs }) };
}

/** For whatever lets tasks go: the agents that wait look again, at once. */
export function serveAgain(
  { store, log }: Pick<Base, 'store' | 'log'>,
  agents: () => Pick<Rooms, 'dispatch' | 'line'>,
): () => void {
  return () => {
    const { dispatch, line } = agents();
    line.recall();
    store
      .transact('dispatch.freed', (tx) => dispatch.serveDue(tx))
      .catch((error: unknown) => log.error('dispatch.freed_failed', { error }));
  };
}
