import { type BreakerView, listBreakers } from '../../tasks/breaker-read.ts';
import { allBands } from '../../tasks/line-queries.ts';
import { countByStatus } from '../../tasks/queries.ts';
import type { FinishedTasks } from '../../telemetry/finished.ts';
import type { Figures } from '../../telemetry/metrics.ts';
import { namedLanes } from '../controls.ts';
import type { Rooms } from '../rooms.ts';
import { oldestWaiting, undelivered } from './queries.ts';

/** Scrapes within this time share one reading, so that they cannot be used to keep the database busy. Milliseconds. */
const KEEP_MS = 1_000;

/** Reads what `/metrics` and `/api/stats` show. */
export function figuresOf(rooms: Rooms, finished: FinishedTasks | undefined): () => Promise<Figures> {
  let reading: { at: number; figures: Promise<Figures> } | undefined;
  return () => {
    const now = performance.now();
    if (!reading || now - reading.at >= KEEP_MS) {
      const figures = read(rooms, finished);
      reading = { at: now, figures };
      figures.catch(() => {
        reading = undefined;
      });
    }
    return reading.figures;
  };
}

async function read(
  { store, clock, registry, dispatch, breakers, line, templates, refusals }: Rooms,
  finished: FinishedTasks | undefined,
): Promise<Figures> {
  const now = clock.now();
  const [oldest] = await store.all(oldestWaiting, {});
  const firstAt = (await store.all(allBands, {})).reduce((first, { head_at }) => Math.min(first, head_at), Infinity);
  const agents = await registry.list();
  const waiting = line.waitingLanes(now);
  const online = agents.filter((agent) => agent.online).length;
  return {
    now,
    tasks: countsOf(await countByStatus(store)),
    finished: finished?.counts() ?? new Map(),
    refused: refusals.counts(),
    outbox: countsOf(await store.all(undelivered, {})),
    inboxNew: oldest?.inbox_new ?? 0,
    oldest: {
      task: firstAt <= now ? firstAt : null,
      outbox: oldest?.outbox_at ?? null,
      inbox: oldest?.inbox_at ?? null,
    },
    breakers: new Map((await listBreakers(store, breakers.policies, now)).flatMap(stateNumber)),
    lanes: new Map([...namedLanes(templates)].map((lane) => [lane, waiting.get(lane) ?? null])),
    agents: { online, offline: agents.length - online },
    parkedPulls: dispatch.waiting,
    store: store.stats(),
  };
}

/** Names come from the loaded templates alone, so that the number of series stays what they make it. */
function stateNumber({ breaker: { name }, state, templates }: BreakerView): [string, number][] {
  return templates.length === 0 ? [] : [[name, { closed: 0, half_open: 1, open: 2 }[state]]];
}

function countsOf(rows: readonly { status: string; count: number }[]): Map<string, number> {
  return new Map(rows.map(({ status, count }) => [status, Number(count)]));
}
