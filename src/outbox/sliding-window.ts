import type { RateLimit } from '../channels/rates.ts';

/** Calls so far, by the length of the window: when each batch of them stops to count, less the window, and how many. */
export type Used = Readonly<Record<string, readonly (readonly [at: number, calls: number])[]>>;

/** A window is remembered in so many steps; a call counts as made at the end of its step, so never too few are counted. */
const STEPS = 60;

/** What a row holds; nothing usable is nothing used. */
export function parseUsed(text: string | null): Used {
  return text === null ? {} : (JSON.parse(text) as Used);
}

/** When the next call is allowed, epoch milliseconds; not later than `now`: at once. */
export function freeAt(used: Used, limits: readonly RateLimit[], now: number): number {
  return Math.max(now, ...limits.map((limit) => freeOf(used, limit, now)));
}

/** With one more call, made at `now`; what has left its window is dropped. */
export function withCall(used: Used, limits: readonly RateLimit[], now: number): Used {
  return Object.fromEntries(limits.map((limit) => [limit.windowMs, counted(used, limit, now)]));
}

function freeOf(used: Used, limit: RateLimit, now: number): number {
  const entries = live(used, limit, now);
  let excess = entries.reduce((sum, [, calls]) => sum + calls, 0) - limit.max;
  for (const [at, calls] of entries) {
    if (excess < 0) break;
    excess -= calls;
    if (excess < 0) return at + limit.windowMs;
  }
  return now;
}

function counted(used: Used, limit: RateLimit, now: number): Used[string] {
  const step = stepOf(limit);
  const at = Math.ceil(now / step) * step;
  const entries = live(used, limit, now);
  const same = entries.find((entry) => entry[0] === at)?.[1] ?? 0;
  return [...entries.filter((entry) => entry[0] !== at), [at, same + 1] as const];
}

/** Oldest first. What lies ahead comes from a clock that has been set back since and would count for ever. */
function live(used: Used, limit: RateLimit, now: number): Used[string] {
  const latest = now + stepOf(limit);
  return (used[limit.windowMs] ?? []).filter(([at]) => at + limit.windowMs > now && at <= latest);
}

function stepOf({ windowMs }: RateLimit): number {
  return Math.max(1, Math.ceil(windowMs / STEPS));
}
