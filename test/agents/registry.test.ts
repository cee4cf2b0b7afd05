import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentTokens } from '../../src/agents/tokens.ts';
import { Core, LEASE_MS, OFFLINE_MS, START, type TestAgent } from '../support/core.ts';

let core: Core;
let agent: TestAgent;
beforeEach(async () => {
  core = await Core.open();
  agent = core.agent();
  await agent.register();
});
afterEach(() => core.close());

const flush = () => core.store.transact('test.flush', (tx) => core.registry.flush(tx));
const online = async () => (await core.registry.list())[0]!.online;

describe('A09: offline', () => {
  it('an agent is online until 90 s after its last call, and offline from exactly then on', async () => {
    for (const [at, expected] of [
      [OFFLINE_MS - 1, true],
      [OFFLINE_MS, false],
      [OFFLINE_MS + 1, false],
    ] as const) {
      core.clock.set(START + at);
      expect([at, await online()]).toEqual([at, expected]);
    }
  });

  it('the moment is told once, and forgotten with the next sign of life', async () => {
    expect(await flush()).toEqual([]);
    core.clock.set(START + OFFLINE_MS - 1);
    expect(await flush()).toEqual([]);
    core.clock.set(START + OFFLINE_MS);
    expect(await flush()).toEqual(['a1']);
    expect(await flush()).toEqual([]);
    await agent.beat([]);
    expect([await flush(), await online()]).toEqual([[], true]);
    core.clock.advance(OFFLINE_MS);
    expect(await flush()).toEqual(['a1']);
  });

  it('every call is a sign of life, and one is enough for the task that it brought', async () => {
    const id = await core.create();
    core.clock.set(START + OFFLINE_MS - 1_000);
    const [task] = (await agent.pull()).tasks;
    core.clock.set(START + OFFLINE_MS);
    expect([await flush(), await online()]).toEqual([[], true]);
    expect(await core.sweep()).toMatchObject({ lost: 0 });
    expect((await core.task(id)).status).toBe('leased');
    core.clock.set(START + OFFLINE_MS - 1_000 + OFFLINE_MS - 1);
    await agent.report({ runId: task!.runId, leaseToken: task!.leaseToken, type: 'started' });
    core.clock.advance(OFFLINE_MS - 1);
    expect(await online()).toBe(true);
  });

  it('contacts outlive a restart once they are written', async () => {
    core.clock.advance(50_000);
    await agent.beat([]);
    await flush();
    core = await core.reopen();
    expect((await core.registry.list())[0]).toMatchObject({ lastSeenAt: START + 50_000, online: true, load: 0.5 });
  });

  it('a sign of life that comes while the last ones are written is not lost', async () => {
    core.clock.advance(10);
    await agent.beat([]);
    await core.store.transact('test.flush', async (tx) => {
      await core.registry.flush(tx);
      core.clock.advance(10);
      core.registry.contact(agent.caller, null);
    });
    await flush();
    core = await core.reopen();
    expect((await core.registry.list())[0]!.lastSeenAt).toBe(START + 20);
  });

  it('what a replaced instance did last does not count for the new one', async () => {
    core.clock.advance(5);
    await agent.beat([]);
    await agent.clone('a1-2').register();
    await flush();
    core = await core.reopen();
    await expect(core.agent().beat([])).rejects.toMatchObject({ code: 'session_replaced' });
  });
});

it('the list shows each agent with what it holds', async () => {
  const other = core.agent('b1', { pools: ['p', 'q'], labels: { city: 'sz' } });
  await other.register();
  for (let n = 0; n < 3; n += 1) await core.create();
  await agent.pull(2);
  expect(await core.registry.list()).toMatchObject([
    { agentId: 'a1', activeRuns: 2, concurrency: 4, runtimes: ['shell'], version: '1.0.0', host: 'h' },
    { agentId: 'b1', activeRuns: 0, pools: ['p', 'q'], labels: { city: 'sz' } },
  ]);
});

describe('tokens', () => {
  it('a token names its agent, is stored only as a digest, and stops working when it is revoked', async () => {
    const tokens = new AgentTokens(core.store);
    const identity = { agentId: 'a7', pools: ['p'], labels: { k: 'v' } };
    const token = await tokens.issue(identity);
    expect(await tokens.identify(token)).toEqual(identity);
    expect(await new AgentTokens(core.store).identify(token)).toEqual(identity);
    const rows = await core.store.fetch(core.store.dialect.build.selectFrom('agent_token').selectAll());
    expect(JSON.stringify(rows)).not.toContain(token.slice(4));
    expect(await tokens.revoke('a7')).toBe(1);
    await expect(tokens.identify(token)).rejects.toMatchObject({ code: 'unauthorized' });
    expect(await tokens.revoke('a7')).toBe(0);
  });

  it('no token, a wrong one, and one that is nearly right are refused without a hint', async () => {
    const tokens = new AgentTokens(core.store);
    const token = await tokens.issue({ agentId: 'a7', pools: [], labels: {} });
    await expect(tokens.identify(undefined)).rejects.toMatchObject({ code: 'unauthorized' });
    for (const wrong of ['x', token.slice(0, -1), `${token}x`, token.toUpperCase()]) {
      await expect(tokens.identify(wrong)).rejects.toMatchObject({
        code: 'unauthorized',
        message: 'this agent token is not valid',
      });
    }
  });

  it('revoking one agent’s tokens leaves the others’', async () => {
    const tokens = new AgentTokens(core.store);
    const [one, two] = [
      await tokens.issue({ agentId: 'x', pools: [], labels: {} }),
      await tokens.issue({ agentId: 'y', pools: [], labels: {} }),
    ];
    await tokens.identify(one);
    await tokens.revoke('x');
    await expect(tokens.identify(one)).rejects.toMatchObject({ code: 'unauthorized' });
    expect((await tokens.identify(two)).agentId).toBe('y');
  });
});

it('leases of an agent that is heard of are not those of its registration: silence alone loses them', async () => {
  const id = await core.create();
  await agent.pull();
  core.clock.advance(LEASE_MS);
  await agent.beat([]); // alive, but it does not name the run
  expect(await core.sweep()).toMatchObject({ lost: 1 });
  expect((await core.task(id)).status).toBe('queued');
});
