import type { Reader } from '../store/tx.ts';
import { allBreakers, taskOfRun } from './breaker-queries.ts';
import { storedBreaker } from './breaker-rows.ts';
import { admission, type Breaker, type BreakerState, callsWithin, newBreaker } from './breaker-state.ts';
import type { BreakerPlan, BreakerPolicies } from './breakers.ts';

/** A breaker as people see it. */
export interface BreakerView {
  readonly breaker: Breaker;
  /** As a claim would find it now: `half_open` as soon as the cooldown is over. */
  readonly state: BreakerState;
  /** In the window that ends now; 0 unless closed. */
  readonly calls: number;
  readonly failures: number;
  /** Loaded templates that name it. */
  readonly templates: BreakerPlan['templates'];
}

/** All breakers: those of loaded templates, and those that only a row remembers. Sorted by name. */
export async function listBreakers(reader: Reader, policies: BreakerPolicies, now: number): Promise<BreakerView[]> {
  const views = new Map(
    policies.all().map((plan) => [plan.settings.name, viewOf(newBreaker(plan.settings, now), false, plan, now)]),
  );
  for (const row of await allBreakers(reader)) {
    const { breaker, probeIsOver } = storedBreaker(row, now);
    views.set(row.name, viewOf(breaker, probeIsOver, policies.named(row.name), now));
  }
  return [...views.values()].sort((a, b) => (a.breaker.name < b.breaker.name ? -1 : 1));
}

/** The task whose run is the probe; undefined where none probes. */
export function probingTask(reader: Reader, { probeRun }: Breaker): Promise<number | undefined> {
  return probeRun === null ? Promise.resolve(undefined) : taskOfRun(reader, probeRun);
}

function viewOf(breaker: Breaker, probeIsOver: boolean, plan: BreakerPlan | undefined, now: number): BreakerView {
  return {
    // The settings of today, where there are any.
    breaker: { ...breaker, ...plan?.settings },
    state: admission(breaker, now, probeIsOver).state,
    ...callsWithin(breaker, now),
    templates: plan?.templates ?? [],
  };
}
