import { TaskExplainer } from '../../src/agents/explainer.ts';
import type { Explanation } from '../../src/tasks/explain.ts';
import { type Core, GRACE_MS, LEASE_MS } from './core.ts';

/** What `/why` would say of a task of this core, now. */
export async function whyOf(
  core: Core,
  id: number,
  labelSets: readonly Record<string, string>[] = [],
): Promise<Explanation> {
  const { store, clock, registry, line } = core;
  const explainer = new TaskExplainer({
    ...{ store, clock, registry, line },
    labelSets: () => labelSets,
    leaseMs: LEASE_MS,
    cancelGraceMs: GRACE_MS,
  });
  const explained = await explainer.explainNow(id);
  if (!explained) throw new Error(`there is no task ${id}`);
  return explained;
}
