import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { changeDrain, type DrainOrder } from '../../src/agents/drains.ts';
import { drainOf } from '../../src/agents/queries.ts';
import { AgentRegistry } from '../../src/agents/registry.ts';
import { shortageOf } from '../../src/agents/standing.ts';
import { TakerHints } from '../../src/agents/taker-hints.ts';
import { silentLog } from '../../src/log.ts';
import { Core, LEASE_MS, newTask, OFFLINE_MS, type TestAgent } from '../support/core.ts';
import { whyOf } from '../support/explain.ts';
import { planOf } from '../support/plans.ts';
import { until } from '../support/until.ts';

let core: Core;
let agent: TestAgent;
beforeEach(async () => {
  core = await Core.open();
  agent = core.agent();
  await agent.register();
});
afterEach(() => core.close());

const NEVER = new AbortController().signal;
const GIB = 1024 ** 3;

/** A heartbeat that says this of the machine. */
function says(
  load: number,
  { freeGib = 4, who = agent, ...more }: { freeGib?: number; who?: TestAgent; stopping?: true } = {},
) {
  const memory = { freeBytes: freeGib * GIB, totalBytes: 8 * GIB };
  const body = { ...who.caller, uptimeMs: 1, load, cores: 2, memory, activeRuns: [], ...more };
  return core.gateway.heartbeat(who.identity, body, NEVER);
}

const order = (more: Partial<DrainOrder> = {}): DrainOrder => ({
  agentId: 'a1',
  on: true,
  by: 'test',
  why: null,
  ...more,
});
const drain = (more: Partial<DrainOrder> = {}) =>
  core.store.transact('test.drain', (tx) =>
    changeDrain(tx, order(more), { roster: core.registry.roster, log: silentLog }),
  );
const audits = () =>
  core.store.fetch(core.store.dialect.build.selectFrom('audit').select(['actor', 'action', 'target', 'data']));
const parked = () => until(() => core.dispatch.waiting === 1, 'the pull to wait');

describe('an overloaded machine', () => {
  it('is given nothing above 0.9 of its cores until its load has fallen to 0.8, and is named', async () => {
    await says(0.9);
    await core.create();
    const [held] = (await agent.pull()).tasks;
    const holding = [held!.runId];
    await says(1.9);
    const id = await core.create();
    expect((await agent.pull(1, { holding })).tasks).toEqual([]);
    const why = await whyOf(core, id);
    expect(why).toMatchObject({
      reason: 'machines_overloaded',
      text: { en: 'The agent a1 is overloaded (load 3.8 of 2 cores).', zh: '代理 a1 负载过高（负载 3.8，共 2 核）。' },
    });
    await says(0.85);
    expect((await agent.pull(1, { holding })).tasks).toEqual([]);
    await says(0.8);
    expect((await agent.pull(1, { holding })).tasks).toHaveLength(1);
  });

  it('with less than a tenth of its memory free is given nothing until 15 % are', async () => {
    await says(0.1, { freeGib: 0.79 });
    const id = await core.create();
    expect((await agent.pull()).tasks).toEqual([]);
    expect((await whyOf(core, id)).text.en).toBe('The agent a1 is overloaded (9 % of its memory free).');
    await says(0.1, { freeGib: 1 });
    expect((await agent.pull()).tasks).toEqual([]);
    await says(0.1, { freeGib: 1.2 });
    expect((await agent.pull()).tasks).toHaveLength(1);
  });

  it('that waits with its pull is passed by, and served by the sweep after its load has fallen', async () => {
    const pull = agent.pull(1, { waitMs: 60_000 });
    await parked();
    await says(1.2);
    await core.create();
    await core.sweeper().sweepOnce();
    expect(core.dispatch.waiting).toBe(1);
    await says(0.2);
    await core.sweeper().sweepOnce();
    expect((await pull).tasks).toHaveLength(1);
  });

  it('gets nothing with a report either, and is still offered what it was granted before', async () => {
    for (let count = 0; count < 3; count += 1) await core.create();
    const [first, second] = (await agent.pull(2)).tasks;
    await says(2);
    const { runId, leaseToken } = first!;
    expect((await agent.reportAndPull(1, { runId, leaseToken, type: 'started' })).tasks).toEqual([]);
    expect((await agent.pull(3)).tasks.map((task) => task.runId)).toEqual([second!.runId]);
  });

  it('leaves the work to another one, and a task is not called stuck while that one is free', async () => {
    const other = core.agent('a2');
    await other.register();
    await says(3);
    const id = await core.create();
    expect((await whyOf(core, id)).reason).toBe('next');
    expect((await other.pull()).tasks).toHaveLength(1);
  });

  it('beside the gateway itself is not held back: what runs there is the gateway’s load too, and there may be no other', async () => {
    const registry = new AgentRegistry({ ...core, log: silentLog, offlineMs: OFFLINE_MS, bootId: 'boot' });
    const request = { ...agent.caller, bootId: 'boot', version: '1', protocol: 1 as const, host: 'h' };
    await registry.register(
      agent.identity,
      { ...request, pools: ['default'], labels: {}, runtimes: ['shell'], concurrency: 1 },
      [],
    );
    const instance = await registry.instance(agent.identity, 'a1', 'a1-1');
    registry.heard(instance, { load: 9, cores: 2, freeMemory: 0.01 });
    expect(instance.standing).toMatchObject({ shortage: null, machine: { load: 9 } });
  });

  it('does not flap: between the two limits it stays what it was', () => {
    const at = (load: number, freeMemory: number | null, before: Parameters<typeof shortageOf>[1]) =>
      shortageOf({ load, freeMemory }, before);
    expect([at(0.9, null, null), at(0.91, null, null), at(0.81, null, 'load'), at(0.8, null, 'load')]).toEqual([
      null,
      'load',
      'load',
      null,
    ]);
    expect([at(0, 0.1, null), at(0, 0.099, null), at(0, 0.149, 'memory'), at(0, 0.15, 'memory')]).toEqual([
      null,
      'memory',
      'memory',
      null,
    ]);
    expect(at(0.85, 0.05, 'load')).toBe('load');
    expect(at(0.5, 0.05, 'load')).toBe('memory');
  });

  it('is a new start for the next instance of the agent', async () => {
    await says(5);
    const next = agent.clone('a1-2');
    await next.register();
    await core.create();
    expect((await next.pull()).tasks).toHaveLength(1);
  });
});

describe('a drained agent', () => {
  it('takes nothing new from that moment on, also with a pull that waits, and goes on by the next sweep after resume', async () => {
    const pull = agent.pull(1, { waitMs: 60_000 });
    await parked();
    await drain();
    const id = await core.create();
    await core.sweeper().sweepOnce();
    expect(core.dispatch.waiting).toBe(1);
    expect((await whyOf(core, id)).reason).toBe('machines_draining');
    await drain({ on: false });
    await core.sweeper().sweepOnce();
    expect((await pull).tasks).toHaveLength(1);
  });

  it('is still drained after a restart of the gateway and for its next instance', async () => {
    await drain({ why: 'new disk' });
    core = await core.reopen();
    agent = core.agent();
    await core.create();
    expect((await agent.pull()).tasks).toEqual([]);
    const next = agent.clone('a1-2');
    await next.register();
    expect((await next.pull()).tasks).toEqual([]);
    expect((await core.registry.list())[0]!.standing.drain).toMatchObject({ by: 'test', why: 'new disk' });
  });

  it('renews its leases and reports as before', async () => {
    const id = await core.create();
    const { runId, leaseToken } = (await agent.pull()).tasks[0]!;
    await drain();
    core.pass(LEASE_MS - 1);
    expect((await agent.beat([{ runId, leaseToken }])).runs).toEqual([{ runId, action: 'continue' }]);
    await agent.report({ runId, leaseToken, type: 'succeeded', summary: 'ok' });
    expect((await core.task(id)).status).toBe('succeeded');
  });

  it('is written into the audit once for each change; a repeat changes nothing, an unknown agent is told', async () => {
    expect(await drain({ agentId: 'nobody' })).toBeUndefined();
    await drain({ on: false });
    await drain({ why: 'disk' });
    core.pass(1_000);
    await drain();
    await drain({ why: 'disk' });
    await drain({ on: false, by: 'other' });
    await drain({ on: false });
    expect((await audits()).map(({ actor, action, target }) => [actor, action, target])).toEqual([
      ['test', 'agent.draining', 'a1'],
      ['other', 'agent.resumed', 'a1'],
    ]);
  });
});

describe('the last word of an agent that ends', () => {
  it('A46: gives back what it was granted and never got, to whoever waits, and it is offline at once', async () => {
    const id = await core.create();
    const [lost] = (await agent.pull()).tasks;
    const other = core.agent('a2');
    await other.register();
    const pull = other.pull(1, { waitMs: 60_000 });
    await parked();
    await says(0.1, { stopping: true });
    expect((await pull).tasks.map((task) => task.taskId)).toEqual([lost!.taskId]);
    expect((await core.runs(id)).map((run) => run.outcome)).toEqual(['released', null]);
    expect((await core.registry.list()).map(({ agentId, online }) => [agentId, online])).toEqual([
      ['a1', false],
      ['a2', true],
    ]);
    expect((await agent.pull()).tasks).toEqual([]);
  });

  it('keeps what it names, and the next instance is online again', async () => {
    await core.create();
    const { runId, leaseToken } = (await agent.pull()).tasks[0]!;
    const body = { ...agent.caller, uptimeMs: 1, load: 0, activeRuns: [{ runId, leaseToken }], stopping: true };
    const answer = await core.gateway.heartbeat(agent.identity, body, NEVER);
    expect(answer.runs).toEqual([{ runId, action: 'continue' }]);
    await agent.clone('a1-2').register();
    expect((await core.registry.list())[0]!.online).toBe(true);
  });
});

describe('the hint for a task that nobody can take', () => {
  const hints = (sets: Record<string, string>[] = []) =>
    new TakerHints({ registry: core.registry, clock: core.clock, labelSets: () => sets });

  it.each([
    ['no agent serves its pool', { pool: 'vip' }, 'no_machine'],
    ['its agent never came', { agent: 'printer' }, 'no_machine'],
    ['nobody has its runtime', { runtime: 'acp' }, 'no_runtime'],
    ['nobody has its labels', { labels: { city: 'sz' } }, 'no_labels'],
  ])('is given where %s', (_when, more, reason) => {
    expect(hints([{ city: 'sz' }]).hintFor(newTask(more))).toMatchObject({
      reason,
      text: { en: expect.stringMatching(/\. It starts when .*connected\.$/), zh: expect.stringMatching(/。$/) },
    });
  });

  it('is not given for an agent that is busy or may take it, and comes and goes with the agents', async () => {
    const one = hints();
    const hintFor = (more = {}) => one.hintFor(newTask(more));
    expect([hintFor(), hintFor({ agent: 'a1' })]).toEqual([undefined, undefined]);
    await drain();
    expect(hintFor()?.reason).toBe('machines_draining');
    await drain({ on: false });
    expect(hintFor()).toBeUndefined();
    await says(4);
    expect(hintFor()?.reason).toBe('machines_overloaded');
    await says(0);
    core.pass(OFFLINE_MS);
    expect(hintFor()?.reason).toBe('machines_offline');
    await agent.beat([]);
    core.pass(1_000);
    expect(hintFor()).toBeUndefined();
  });

  it('knows the agents of an earlier process of the gateway', async () => {
    core = await core.reopen();
    expect(hints().hintFor(newTask())?.reason).toBe('no_machine');
    await core.registry.roster.load(core.store);
    expect(hints().hintFor(newTask())).toBeUndefined();
  });
});

it('the drain of an agent is read by its key', () => {
  const connection = new Database(core.path, { readonly: true });
  expect(planOf(connection, drainOf)).toEqual([expect.stringMatching(/^SEARCH agent_drain USING PRIMARY KEY/)]);
  connection.close();
});
