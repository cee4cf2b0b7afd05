import type { LinePlace } from './explain-facts.ts';
import { countBefore, countDue } from './explain-queries.ts';
import type { Facts } from './gates.ts';
import { type Band, WEIGHTS } from './lineup.ts';

/** More bands than this in one queue: the place would be dear to find out. */
export const MAX_BANDS = 300;
/** Tasks of one band that are counted. */
const MAX_COUNT = 100;

/** A due task that waits. */
export interface Waiting {
  readonly id: number;
  readonly owner: string;
  readonly priority: number;
  readonly runAt: number;
}

/** How many due tasks one owner has with one priority. */
export interface Crowd {
  readonly owner: string;
  readonly priority: number;
  readonly count: number;
  /** Of the owner and the priority of the task that asks: those that come before it. */
  readonly before: number;
}

/** About where a task stands among these bands of its queue (at most `MAX_BANDS`), its own among them. */
export async function placeInLine(facts: Facts, task: Waiting, bands: readonly Band[]): Promise<LinePlace> {
  const rows = bands.map(({ stream, priority }, place) => [place, stream.id, priority]);
  const own = rows.filter((_, place) => isOwn(bands[place]!, task));
  const due = await facts.all(countDue, { rows, now: facts.now, limit: MAX_COUNT });
  const before = await facts.all(countBefore, { rows: own, run_at: task.runAt, id: task.id, limit: MAX_COUNT });
  const earlier = new Map(before.map(({ place, count }) => [place, count]));
  return placeAmong(
    task,
    due.map(({ place, count }) => {
      const { stream, priority } = bands[place]!;
      return { owner: stream.owner, priority, count, before: earlier.get(place) ?? 0 };
    }),
  );
}

/**
 * Turns go round: while one's own turn comes up, every other owner of the same priority has at most as many, and the other priorities
 * have their share of all.
 */
export function placeAmong(task: Pick<Waiting, 'owner' | 'priority'>, crowds: readonly Crowd[]): LinePlace {
  const { priority, owner } = task;
  const total = crowds.reduce((sum, { count }) => sum + count, 0);
  const isMore = crowds.some(({ count }) => count >= MAX_COUNT);
  const same = byOwner(crowds.filter((crowd) => crowd.priority === priority));
  const own = same.get(owner)?.before ?? 0;
  if (own >= MAX_COUNT) return { position: null, total, isMore };
  let before = own;
  for (const [other, { count }] of same) if (other !== owner) before += Math.min(count, own + 1);
  const turns = before + 1;
  for (const rival of WEIGHTS.keys()) {
    if (rival === priority) continue;
    const share = (turns * WEIGHTS[rival]!) / WEIGHTS[priority]!;
    const count = crowds.filter((crowd) => crowd.priority === rival).reduce((sum, crowd) => sum + crowd.count, 0);
    before += Math.min(count, rival < priority ? Math.ceil(share) : Math.floor(share));
  }
  return { position: before + 1, total: Math.max(total, before + 1), isMore };
}

function isOwn({ stream, priority }: Band, task: Waiting): boolean {
  return stream.owner === task.owner && priority === task.priority;
}

function byOwner(crowds: readonly Crowd[]): Map<string, { count: number; before: number }> {
  const sums = new Map<string, { count: number; before: number }>();
  for (const { owner, count, before } of crowds) {
    const sum = sums.get(owner) ?? { count: 0, before: 0 };
    sums.set(owner, { count: sum.count + count, before: sum.before + before });
  }
  return sums;
}
