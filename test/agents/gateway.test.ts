import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Report } from '../../src/agents/protocol.ts';
import { registerRequestSchema, reportSchema } from '../../src/agents/protocol.ts';
import { parseWith } from '../../src/http/hot.ts';
import { Core, LEASE_MS, newTask, type TestAgent } from '../support/core.ts';
import { until } from '../support/until.ts';

let core: Core;
let agent: TestAgent;
beforeEach(async () => {
  core = await Core.open();
  agent = core.agent();
  await agent.register();
});
afterEach(() => core.close());

const parked = (count = 1) => until(() => core.dispatch.waiting === count, `${count} pulls to wait`);
const WAIT = { waitMs: 60_000 };
const publicId = (id: number) => core.store.ids.encode(id);

describe('register', () => {
  it('tells the agent the rules of the house', async () => {
    expect(await agent.register()).toEqual({
      ok: true,
      serverTime: core.clock.now(),
      leaseMs: LEASE_MS,
      heartbeatMs: 10_000,
      latestVersion: '1.2.3',
      hasUpdate: false,
      results: [],
    });
  });

  it('trap 10: a token fixes the agent: under another id nothing works', async () => {
    const thief = core.agent('a2');
    await thief.register();
    const request = { ...agent.caller, maxTasks: 1, waitMs: 0, holding: [] };
    await expect(core.gateway.pull(thief.identity, request, new AbortController().signal)).rejects.toMatchObject({
      code: 'forbidden',
      field: 'agentId',
    });
    const registration = {
      ...agent.caller,
      bootId: 'b',
      version: '1',
      protocol: 1 as const,
      host: 'h',
      pools: ['default'],
      labels: {},
      runtimes: ['shell'],
      concurrency: 1,
    };
    await expect(core.gateway.register(thief.identity, registration)).rejects.toMatchObject({ code: 'forbidden' });
    expect((await agent.pull()).tasks).toEqual([]); // the true one is still registered
  });

  it('trap 10: pools and labels come from the token, not from what the agent says', async () => {
    await core.create({ pool: 'vip' });
    await core.gateway.register(agent.identity, {
      ...agent.caller,
      bootId: 'b',
      version: '1',
      protocol: 1,
      host: 'h',
      pools: ['vip'],
      labels: { city: 'sz' },
      runtimes: ['shell'],
      concurrency: 1,
    });
    expect((await agent.pull()).tasks).toEqual([]);
    expect(await core.registry.list()).toMatchObject([{ pools: ['default'], labels: {} }]);
  });

  it('an agent that has not registered is told so', async () => {
    await expect(core.agent('new').pull()).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('register'),
    });
  });

  it('session_replaced: the newer instance wins, every call of the older is refused, and what it held is free at once', async () => {
    const id = await core.create();
    const { tasks } = await agent.pull();
    await agent.report({ ...run(tasks[0]!), type: 'started' });
    const newer = agent.clone('a1-2');
    await newer.register();
    for (const call of [
      () => agent.pull(),
      () => agent.beat([]),
      () => agent.report({ ...run(tasks[0]!), type: 'succeeded', summary: 'late' }),
    ]) {
      await expect(call()).rejects.toMatchObject({ code: 'session_replaced', status: 409 });
    }
    expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 1, reason: 'lease_expired' });
    expect((await newer.pull()).tasks).toMatchObject([{ taskId: publicId(id), attempt: 2 }]);
  });

  it('registering again with the same instance keeps what it holds', async () => {
    const id = await core.create();
    const { tasks } = await agent.pull();
    await agent.register();
    expect(await core.task(id)).toMatchObject({ status: 'leased' });
    expect((await agent.report({ ...run(tasks[0]!), type: 'succeeded', summary: 'ok' })).results).toMatchObject([
      { result: 'accepted' },
    ]);
  });

  it('trap 1: spooled reports are applied before the leases of the dead instance are given away', async () => {
    const [done, half, lost] = [await core.create(), await core.create(), await core.create()];
    const { tasks } = await agent.pull(3);
    await agent.report(...tasks.map((task) => ({ ...run(task), type: 'started' as const })));
    const spooled: Report[] = [
      agent.says({ ...run(tasks[0]!), type: 'succeeded', summary: 'finished before the crash', exitCode: 0 }),
      agent.says({ ...run(tasks[1]!), type: 'failed', errorClass: 'permanent', error: 'exit 3', exitCode: 3 }),
      { ...run(tasks[0]!), runId: '!!', seq: 9, type: 'started' },
    ];
    const answer = await agent.clone('a1-2').register(spooled);
    expect(answer.results).toMatchObject([
      { result: 'accepted' },
      { result: 'accepted' },
      { runId: '!!', result: 'rejected' },
    ]);
    expect(await core.task(done)).toMatchObject({ status: 'succeeded', summary: 'finished before the crash' });
    expect(await core.task(half)).toMatchObject({ status: 'failed', error: 'exit 3' });
    expect(await core.task(lost)).toMatchObject({ status: 'queued', attempt: 1 });
    expect(core.endings(done)).toHaveLength(1);
  });

  it('a task freed by a register goes to the new instance or to others, never to the replaced one that still waits', async () => {
    const id = await core.create();
    const [held] = (await agent.pull()).tasks;
    const waiting = agent.pull(1, { ...WAIT, holding: [held!.runId] });
    waiting.catch(() => undefined);
    await parked();
    const newer = agent.clone('a1-2');
    await newer.register();
    await expect(waiting).rejects.toMatchObject({ code: 'session_replaced' });
    expect(await core.task(id)).toMatchObject({ status: 'queued' });
    expect((await newer.pull()).tasks).toMatchObject([{ taskId: publicId(id) }]);
  });

  it('a pull and a report with `next` that share their turn with the register of a newer instance keep nothing', async () => {
    for (const call of [
      (old: TestAgent) => old.pull(2),
      (old: TestAgent) => old.reportAndPull(2, { runId: 'zzzz', leaseToken: 'x', type: 'started' }),
    ]) {
      const created = await core.createAll([newTask(), newTask()]);
      const old = agent.clone(`old-${created[0]!.id}`);
      await old.register();
      const newer = agent.clone(`new-${created[0]!.id}`);
      const [, pulled] = await Promise.allSettled([newer.register(), call(old)]);
      expect(pulled).toMatchObject({ status: 'rejected', reason: { code: 'session_replaced' } });
      for (const { id } of created) expect(await core.task(id)).toMatchObject({ status: 'queued', attempt: 0 });
      expect((await newer.pull(5)).tasks).toHaveLength(2);
      for (const { id } of created) await core.cancel(id);
    }
  });

  it('after a restart of the gateway the registered instance goes on without registering, and an older one is still refused', async () => {
    await agent.clone('a1-0').register();
    await agent.register();
    core = await core.reopen();
    const id = await core.create();
    const [same, older] = [core.agent(), core.agent().clone('a1-0')];
    expect((await same.pull()).tasks).toMatchObject([{ taskId: publicId(id) }]);
    await expect(older.pull()).rejects.toMatchObject({ code: 'session_replaced' });
  });
});

describe('pull', () => {
  it('an assignment has everything a run needs, under public ids', async () => {
    const id = await core.create({ timeoutMs: 1_234 });
    const { tasks } = await agent.pull();
    const [stored] = await core.runs(id);
    expect(tasks).toEqual([
      {
        runId: publicId(stored!.id),
        taskId: publicId(id),
        attempt: 1,
        leaseToken: stored!.lease_token,
        leaseMs: LEASE_MS,
        template: 't',
        runtime: 'shell',
        spec: null,
        args: {},
        secrets: [],
        timeoutMs: 1_234,
        limits: { outputBytes: 1 },
        idempotencyKey: null,
      },
    ]);
  });

  it('a pull that finds nothing waits, and is answered in the turn in which a task is created', async () => {
    const pull = agent.pull(2, WAIT);
    await parked();
    const before = core.store.stats().transactions;
    const id = await core.create();
    expect((await pull).tasks).toMatchObject([{ taskId: publicId(id) }]);
    expect([core.dispatch.waiting, core.store.stats().transactions - before]).toEqual([0, 1]);
  });

  it('a pull in vain costs no transaction once the line is known, and is still offered what an answer lost', async () => {
    await agent.pull();
    const before = core.store.stats().transactions;
    const gone = new AbortController();
    const pull = agent.pull(2, { ...WAIT, gone: gone.signal });
    await parked();
    gone.abort();
    await pull;
    expect(core.store.stats().transactions - before).toBe(0);
    await core.create();
    const [lost] = (await agent.pull()).tasks;
    expect((await agent.pull(2, { ...WAIT, holding: [] })).tasks).toEqual([lost]);
  });

  it('agents that wait share what comes, first come first served, each task once', async () => {
    const others = await Promise.all(
      ['b1', 'b2', 'b3'].map(async (name) => {
        const other = core.agent(name);
        await other.register();
        return other;
      }),
    );
    const pulls = others.map((other) => other.pull(2, WAIT));
    await parked(3);
    const created = (await core.createAll([newTask(), newTask(), newTask()])).map(({ id }) => publicId(id));
    const [first, second] = await Promise.all(pulls.slice(0, 2));
    expect([first!.tasks.map(({ taskId }) => taskId), second!.tasks.map(({ taskId }) => taskId)]).toEqual([
      created.slice(0, 2),
      created.slice(2),
    ]);
    expect(core.dispatch.waiting).toBe(1);
  });

  it('a delayed task wakes a waiting pull when it is due', async () => {
    const pull = agent.pull(1, WAIT);
    await parked();
    const id = await core.create({ runAt: core.clock.now() + 40 });
    core.clock.advance(40);
    expect((await pull).tasks).toMatchObject([{ taskId: publicId(id) }]);
  });

  it('a task that comes back by a report, a hand-back or a retry wakes a waiting pull', async () => {
    const other = core.agent('b1');
    await other.register();
    const id = await core.create();
    let [held] = (await agent.pull()).tasks;
    for (const give of [
      async () => void (await agent.report({ ...run(held!), type: 'released' })),
      async () => {
        await core.cancel(id);
        await agent.report({ ...run(held!), type: 'cancelled' });
        await core.retry(id);
      },
    ]) {
      const pull = other.pull(1, WAIT);
      await parked();
      await give();
      const [task] = (await pull).tasks;
      expect(task!.taskId).toBe(publicId(id));
      await other.report({ ...run(task!), type: 'released' });
      held = (await agent.pull()).tasks[0];
    }
  });

  it('A04, trap 3: a caller that hangs up gets nothing, and what its answer lost is offered again', async () => {
    const gone = new AbortController();
    const pull = agent.pull(1, { ...WAIT, gone: gone.signal });
    await parked();
    gone.abort();
    expect(await pull).toEqual({ tasks: [] });
    const id = await core.create();
    expect((await core.task(id)).status).toBe('queued');
    const [lost] = (await agent.pull()).tasks;
    const [again] = (await agent.pull(1, { holding: [] })).tasks;
    expect(again).toEqual(lost);
    expect((await agent.pull(1, { holding: [lost!.runId] })).tasks).toEqual([]);
    expect(await core.runs(id)).toHaveLength(1);
  });

  it('a report that also pulls is one transaction, and starts and ends of it are applied first', async () => {
    const [first, second] = [await core.create(), await core.create()];
    const { tasks } = await agent.pull();
    const before = core.store.stats().transactions;
    const answer = await agent.reportAndPull(
      3,
      { ...run(tasks[0]!), type: 'started' },
      { ...run(tasks[0]!), type: 'succeeded', summary: 'ok' },
    );
    expect(core.store.stats().transactions - before).toBe(1);
    expect(answer).toMatchObject({
      results: [{ result: 'accepted' }, { result: 'accepted' }],
      tasks: [{ taskId: publicId(second) }],
    });
    expect((await core.task(first)).status).toBe('succeeded');
    expect('tasks' in (await agent.report({ ...run(tasks[0]!), type: 'started' }))).toBe(false);
  });

  it('a task whose template is gone fails with the reason instead of coming back for ever', async () => {
    core.gone.add('old');
    const [dead, fine] = [await core.ask({ template: 'old' }), await core.create()];
    const { tasks } = await agent.pull(5);
    expect(tasks).toMatchObject([{ taskId: publicId(fine) }]);
    expect(await core.task(dead)).toMatchObject({
      status: 'failed',
      error: 'the template old is gone or no longer valid',
      error_class: 'permanent',
    });
    expect(await core.flowOf(dead)).toMatchObject({ status: 'failed' });
    expect((await agent.pull(5, { holding: [tasks[0]!.runId] })).tasks).toEqual([]);
  });

  it('a task that its template no longer accepts fails with the reason, and its neighbours are assigned', async () => {
    const strict = await Core.open({
      assignmentOf: ({ task }) => {
        if (task.template === 'bad') throw new Error('room must not begin with -');
        return {
          template: task.template,
          runtime: 'shell',
          spec: null,
          args: {},
          secrets: [],
          timeoutMs: 1,
          limits: { outputBytes: 1 },
          idempotencyKey: null,
        };
      },
    });
    const other = strict.agent();
    await other.register();
    const [bad, fine] = [await strict.create({ template: 'bad' }), await strict.create()];
    expect((await other.pull(5)).tasks.map(({ taskId }) => taskId)).toEqual([strict.store.ids.encode(fine)]);
    expect(await strict.task(bad)).toMatchObject({
      status: 'failed',
      error: expect.stringContaining('room must not begin with -'),
    });
    await strict.close();
  });

  it('labels that templates ask for are served by agents that have them', async () => {
    const labelled = await Core.open({ labelSets: () => [{ city: 'sz' }, { city: 'bj' }] });
    const [local, plain] = [labelled.agent('sz-1', { labels: { city: 'sz', floor: '3' } }), labelled.agent('plain')];
    await local.register();
    await plain.register();
    await labelled.createAll([
      newTask({ labels: { city: 'bj' } }),
      newTask({ labels: { city: 'sz' } }),
      newTask({ agent: 'plain' }),
    ]);
    expect((await local.pull(5)).tasks).toHaveLength(1);
    expect((await plain.pull(5)).tasks).toHaveLength(1);
    await labelled.close();
  });

  it('a gateway that stops sends waiting agents away and gives out nothing more', async () => {
    const pull = agent.pull(1, WAIT);
    const heart = agent.beat([], WAIT);
    await parked();
    core.dispatch.stop();
    core.gateway.stop();
    expect(await pull).toEqual({ tasks: [] });
    expect((await heart).runs).toEqual([]);
    const id = await core.create();
    expect((await agent.pull(1, WAIT)).tasks).toEqual([]);
    expect((await core.task(id)).status).toBe('queued');
  });
});

describe('heartbeat', () => {
  it('extends the leases it names and says which are lost', async () => {
    const id = await core.create();
    const [task] = (await agent.pull()).tasks;
    core.clock.advance(20_000);
    expect(
      (await agent.beat([run(task!), { runId: 'zzzz', leaseToken: 'x' }, { runId: '!', leaseToken: 'x' }])).runs,
    ).toEqual([
      { runId: task!.runId, action: 'continue' },
      { runId: 'zzzz', action: 'lost' },
      { runId: '!', action: 'lost' },
    ]);
    expect((await core.runs(id))[0]!.lease_until).toBe(core.clock.now() + LEASE_MS);
  });

  it('a cancel answers a waiting heartbeat early', async () => {
    const id = await core.create();
    const [task] = (await agent.pull()).tasks;
    const beat = agent.beat([run(task!)], WAIT);
    await until(async () => (await core.runs(id))[0]!.lease_until! > 0);
    await core.cancel(id);
    expect((await beat).runs).toEqual([{ runId: task!.runId, action: 'cancel' }]);
  });

  it('a cancel of the very same turn is not missed', async () => {
    const id = await core.create();
    const [task] = (await agent.pull()).tasks;
    const [beat] = await Promise.all([agent.beat([run(task!)], WAIT), Promise.resolve().then(() => core.cancel(id))]);
    expect(beat.runs).toEqual([{ runId: task!.runId, action: 'cancel' }]);
  });

  it('a heartbeat that brings a lost run is answered at once', async () => {
    expect((await agent.beat([{ runId: 'zzzz', leaseToken: 'x' }], WAIT)).runs).toEqual([
      { runId: 'zzzz', action: 'lost' },
    ]);
  });

  it('a run that its agent has just ended is nothing to tell: the heartbeat that names it goes on waiting', async () => {
    await core.create();
    const [task] = (await agent.pull()).tasks;
    await agent.report({ ...run(task!), type: 'succeeded', summary: 'ok' });
    const next = await core.create();
    const [other] = (await agent.pull()).tasks;
    const beat = agent.beat([run(task!), run(other!)], WAIT);
    await core.cancel(next);
    // It has waited for the cancel, else it would not know of it.
    expect((await beat).runs).toEqual([
      { runId: task!.runId, action: 'continue' },
      { runId: other!.runId, action: 'cancel' },
    ]);
  });

  it('the heartbeat of a replaced instance ends at once with the reason', async () => {
    const beat = agent.beat([], WAIT);
    beat.catch(() => undefined);
    await agent.clone('a1-2').register();
    await expect(beat).rejects.toMatchObject({ code: 'session_replaced' });
  });

  it('a caller that hangs up is let go', async () => {
    const gone = new AbortController();
    const beat = agent.beat([], { ...WAIT, gone: gone.signal });
    gone.abort();
    expect((await beat).runs).toEqual([]);
  });
});

describe('what agents send', () => {
  it('A05: an agent’s times are information: far off they change nothing, malformed they are refused', async () => {
    const id = await core.create();
    const [task] = (await agent.pull()).tasks;
    for (const at of [core.clock.now() + 600_000, core.clock.now() - 600_000, 0, -1]) {
      core.clock.advance(1);
      expect((await agent.report({ ...run(task!), at, type: 'progress', percent: 1 })).results).toMatchObject([
        { result: 'accepted' },
      ]);
    }
    core.clock.advance(1);
    await agent.report({ ...run(task!), at: 0, type: 'succeeded', summary: 'ok' });
    const stored = await core.task(id);
    expect([stored.started_at, stored.ended_at]).toEqual([core.clock.now(), core.clock.now()]);
    expect((await core.history(id)).every(({ at }) => at >= stored.created_at && at <= core.clock.now())).toBe(true);
    expect(core.endings(id)).toMatchObject([{ end: { tookMs: 5 } }]);
    const report = { runId: task!.runId, leaseToken: 'x', seq: 1, type: 'started' };
    for (const at of ['abc', Number.NaN, null]) {
      expect(() => parseWith(reportSchema, { ...report, at })).toThrow(
        expect.objectContaining({ code: 'invalid_request', field: 'at' }),
      );
    }
    expect(parseWith(reportSchema, report)).toEqual(report);
  });

  it('an agent of another protocol version is refused by the field', () => {
    const request = {
      ...agent.caller,
      bootId: 'b',
      version: '1',
      protocol: 2,
      host: 'h',
      pools: ['default'],
      labels: {},
      runtimes: ['shell'],
      concurrency: 1,
    };
    expect(() => parseWith(registerRequestSchema, request)).toThrow(expect.objectContaining({ field: 'protocol' }));
  });

  it('texts that no database takes are made well-formed, also inside a checkpoint', async () => {
    const id = await core.create();
    const [task] = (await agent.pull()).tasks;
    await agent.report(
      { ...run(task!), type: 'checkpoint', data: { 'k\u0000': ['\ud800x', { deep: 'a\u0000b' }] } },
      { ...run(task!), type: 'blocked', summary: 'half \ud83d of a face\u0000' },
    );
    expect((await core.task(id)).summary).toBe('half \ufffd of a face');
    expect(JSON.parse((await core.checkpoint(id))!.data)).toEqual({ k: ['\ufffdx', { deep: 'ab' }] });
  });

  it('results are in the order of the reports, whatever is wrong with some', async () => {
    await core.create();
    const [task] = (await agent.pull()).tasks;
    const { results } = await agent.report(
      { ...run(task!), runId: '?', type: 'started' },
      { ...run(task!), type: 'started' },
      { runId: publicId(5_000), leaseToken: 'x', type: 'started' },
      { ...run(task!), seq: 2, type: 'started' },
      { ...run(task!), type: 'succeeded', summary: 'ok' },
    );
    expect(results.map(({ seq, result }) => [seq, result])).toEqual([
      [1, 'rejected'],
      [2, 'accepted'],
      [3, 'rejected'],
      [2, 'duplicate'],
      [5, 'accepted'],
    ]);
  });
});

function run(task: { runId: string; leaseToken: string }) {
  return { runId: task.runId, leaseToken: task.leaseToken };
}

describe('patience of new tasks', () => {
  it('there is none without agents that ask, some while they are busy and enough is ready, none once they have taken all', async () => {
    expect(core.dispatch.patienceMs()).toBe(0);
    await core.createAll(Array.from({ length: 200 }, () => newTask()));
    expect(core.dispatch.patienceMs()).toBe(0);
    await until(async () => {
      await agent.pull();
      return core.dispatch.patienceMs() > 0;
    }, 'patience while an agent asks in quick succession');
    await agent.pull(1_000);
    expect(core.dispatch.patienceMs()).toBe(0);
  });
});
