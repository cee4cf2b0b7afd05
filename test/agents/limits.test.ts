import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TemplateLimits } from '../../src/tasks/gates.ts';
import { Core, newTask, START, type TestAgent } from '../support/core.ts';
import { until } from '../support/until.ts';

/** Agents that wait for work which a limit holds back. Nothing sweeps here: whatever serves them is the change itself. */

let core: Core;
let limits: Map<string, TemplateLimits>;
beforeEach(async () => {
  limits = new Map();
  core = await Core.open({ gates: { limitsOf: (template) => limits.get(template) } });
});
afterEach(() => core.close());

async function agentOf(agentId: string): Promise<TestAgent> {
  const agent = core.agent(agentId);
  await agent.register();
  return agent;
}

/** An agent that waits, and what it will be answered. */
async function parked(agentId: string): Promise<{ answer: ReturnType<TestAgent['pull']> }> {
  const agent = await agentOf(agentId);
  const before = core.dispatch.waiting;
  const answer = agent.pull(1, { waitMs: 600_000 });
  await until(() => core.dispatch.waiting === before + 1);
  return { answer };
}

describe('an agent that waits behind a limit', () => {
  it.each(['succeeded', 'failed', 'blocked', 'released'] as const)(
    'is given its task in the transaction in which the run before it has %s',
    async (type) => {
      limits.set('t', { concurrency: 1, rate: null });
      const agent = await agentOf('a1');
      await core.create();
      const [held] = (await agent.pull(1)).tasks;
      const next = await core.create({ runAt: START - 1 });
      const { answer } = await parked('a2');
      const { transactions } = core.store.stats();
      const { runId, leaseToken } = held!;
      const news = {
        succeeded: { type: 'succeeded', summary: 'ok', exitCode: 0 },
        failed: { type: 'failed', errorClass: 'permanent', error: 'no' },
        blocked: { type: 'blocked', summary: 'help' },
        released: { type: 'released' },
      } as const;
      await agent.report({ runId, leaseToken, at: core.clock.now(), ...news[type] });
      expect((await answer).tasks).toMatchObject([{ taskId: core.store.ids.encode(next) }]);
      expect(core.store.stats().transactions).toBe(transactions + 1);
    },
  );

  it('is given it when the lease before it is lost', async () => {
    await core.create({ lane: 'cron', timeoutMs: 1e9 });
    const lost = await core.claim('a1');
    const { answer } = await parked('a2');
    core.clock.advance(60_000);
    await core.sweep();
    expect((await answer).tasks).toMatchObject([{ taskId: core.store.ids.encode(lost.taskId), attempt: 1 }]);
  });

  it('is woken when the next start of its template is allowed, and not a sweep later', async () => {
    core = await withRealTime();
    limits.set('t', { concurrency: null, rate: { perMs: 300, max: 1 } });
    await core.createAll([newTask(), newTask()]);
    await core.claim('a1');
    const { answer } = await parked('a2');
    expect((await answer).tasks).toHaveLength(1);
  });

  /** A clock that moves by itself, as timers do. */
  async function withRealTime(): Promise<Core> {
    await core.close();
    const made = await Core.open({ gates: { limitsOf: (template) => limits.get(template) } });
    const offset = START - Date.now();
    made.clock.now = () => Date.now() + offset;
    return made;
  }
});

it('where nothing is limited an end costs no statement more, whether agents wait or not', async () => {
  const agent = await agentOf('a1');
  const statementsOf = async () => {
    await core.create();
    const [held] = (await agent.pull(1)).tasks;
    const names: string[] = [];
    const run = core.line.claim.run;
    Object.assign(core.line.claim, {
      run: (...args: Parameters<typeof run>) => {
        names.push('claim');
        return run(...args);
      },
    });
    const { runId, leaseToken } = held!;
    await agent.report({ runId, leaseToken, at: core.clock.now(), type: 'succeeded', summary: 'ok', exitCode: 0 });
    Object.assign(core.line.claim, { run });
    return names;
  };
  expect(await statementsOf()).toEqual([]);
  const idle = core.agent('a2', { pools: ['elsewhere'] });
  await idle.register();
  void idle.pull(1, { waitMs: 600_000 });
  await until(() => core.dispatch.waiting === 1);
  expect(await statementsOf()).toEqual([]);
});

it('agents that cannot take what is held back are left alone when a run ends', async () => {
  await core.create({ lane: 'cron' });
  await core.create({ lane: 'cron' });
  const agent = await agentOf('a1');
  const [held] = (await agent.pull(1)).tasks;
  await agent.pull(1);
  const elsewhere = core.agent('a2', { pools: ['elsewhere'] });
  await elsewhere.register();
  let isAnswered = false;
  void elsewhere.pull(1, { waitMs: 600_000 }).then(() => {
    isAnswered = true;
  });
  await until(() => core.dispatch.waiting === 1);
  const { runId, leaseToken } = held!;
  await agent.report({ runId, leaseToken, at: core.clock.now(), type: 'succeeded', summary: 'ok', exitCode: 0 });
  expect([isAnswered, core.dispatch.waiting]).toEqual([false, 1]);
  const queued = await core.store.fetch(sql<{ n: number }>`select count(*) as n from task where status = 'queued'`);
  expect(queued[0]!.n).toBe(1);
});
