import { describe, expect, it } from 'vitest';
import { ACTIONS } from './actions/all.ts';
import type { Invariant } from './invariants/invariant.ts';
import { shrink, simulate } from './simulate.ts';
import { simulationTemplates } from './world.ts';

const templates = await simulationTemplates();
const STEPS = Array.from({ length: 400 }, (_, index) => index + 1);

/** Holds until a person cancels what waits. */
const NOBODY_CANCELS: Invariant = {
  name: 'nobody cancels',
  breach: ({ changed }) => {
    const task = changed.tasks.find(({ status }) => status === 'cancelled');
    return task && `task ${task.id} is cancelled`;
  },
};

describe('the simulation itself', () => {
  it('a seed lives the same life each time', async () => {
    const first = await simulate(11, STEPS, templates);
    const second = await simulate(11, STEPS, templates);
    expect(first.failure).toBeUndefined();
    expect(second.trace).toEqual(first.trace);
    expect((await simulate(12, STEPS, templates)).trace).not.toEqual(first.trace);
  });

  it('a broken law is told with its steps, and fewer of them are enough to break it again', async () => {
    const { failure } = await simulate(3, STEPS, templates, [NOBODY_CANCELS]);
    expect(failure).toMatchObject({ seed: 3, law: 'nobody cancels' });
    const smallest = await shrink(failure!, templates, 60, [NOBODY_CANCELS]);
    expect(smallest.steps.length).toBeLessThan(failure!.steps.length);
    expect(smallest.steps.length).toBeLessThan(20);
    expect(smallest.trace.length).toBe(smallest.steps.length);
    const again = await simulate(3, smallest.steps, templates, [NOBODY_CANCELS]);
    expect(again.failure).toEqual(smallest);
  });

  it('every action is taken somewhere', async () => {
    const taken = new Set<string>();
    for (let seed = 1; seed <= 6; seed += 1) {
      for (const name of (await simulate(seed, STEPS, templates)).taken) taken.add(name);
    }
    expect(ACTIONS.map(({ name }) => name).filter((name) => !taken.has(name))).toEqual([]);
  });
});
