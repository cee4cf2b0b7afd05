import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { replayLetters } from '../../src/tasks/dead-letters.ts';
import { watchNeeds } from '../../src/tasks/needs.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, GRACE_MS, LEASE_MS, START } from '../support/core.ts';
import { diamond, fail, makeGraph, runTask, statuses, storedNeeds, succeed } from '../support/graphs.ts';
import { until } from '../support/until.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const flow = async (id: number) => (await core.flowOf(id)).status;
const once = { retry: { ...DEFAULT_RETRY, max: 1 } };
const claimed = async () => (await core.claimAll('a1', { max: 100 })).map(({ taskId }) => taskId);

describe('a diamond', () => {
  it('A63: runs its last task once, after both of its needs', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond())) as [number, number, number, number];
    expect(await statuses(core, [a, b, c, d])).toEqual(['queued', 'waiting', 'waiting', 'waiting']);
    expect(await core.task(d)).toMatchObject({ reason: 'needs', graph: 1 });
    expect(await claimed()).toEqual([a]);
    core.clock.advance(5);
    await core.sweep();
    expect(await claimed()).toEqual([]);
  });

  it('A63: queues each task in the transaction of the end of its last need', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond())) as [number, number, number, number];
    core.clock.advance(1_000);
    await succeed(core, a);
    expect(await statuses(core, [a, b, c, d])).toEqual(['succeeded', 'queued', 'queued', 'waiting']);
    expect(await core.task(b)).toMatchObject({ reason: null, run_at: START + 1_000 });
    await succeed(core, c);
    expect(await statuses(core, [d])).toEqual(['waiting']);
    await succeed(core, b);
    expect(await statuses(core, [d])).toEqual(['queued']);
    expect(await flow(d)).toBe('active');
    await succeed(core, d);
    expect(await flow(d)).toBe('finished');
    for (const id of [a, b, c, d]) {
      expect((await core.runs(id)).filter(({ outcome }) => outcome === 'succeeded')).toHaveLength(1);
      expect(core.endings(id)).toHaveLength(1);
    }
  });

  it('gives what it releases to an agent that waits, in the same transaction', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    const grant = await runTask(core, a);
    const agent = core.agent('a2');
    await agent.register();
    const pulled = agent.pull(1, { waitMs: 60_000 });
    await until(() => core.dispatch.waiting === 1, 'the agent to wait');
    const before = core.store.stats().transactions;
    await core.tell(grant, { type: 'succeeded', summary: 'ok' });
    expect((await pulled).tasks.map(({ taskId }) => core.store.ids.decode(taskId))).toEqual([b]);
    expect(core.store.stats().transactions - before).toBe(1);
  });
});

describe('A62: when B of a diamond does not succeed, D is skipped at once and the flow ends with C', () => {
  const cases: [string, (b: number) => Promise<unknown>, string][] = [
    ['fails', (b) => fail(core, b), 'has failed'],
    ['is cancelled before it runs', (b) => core.cancel(b), 'was cancelled'],
    ['times out', async (b) => core.tell(await runTask(core, b), { type: 'timed_out' }), 'has timed out'],
    [
      'times out by the server alone',
      async (b) => {
        await runTask(core, b);
        core.clock.advance(700_000);
        await core.store.transact('test.alive', (tx) =>
          tx.exec(
            tx.dialect.build
              .updateTable('run')
              .set({ lease_until: core.clock.now() + LEASE_MS })
              .where('task_id', '=', b),
          ),
        );
        await core.sweep();
      },
      'has timed out',
    ],
    [
      'is lost',
      async (b) => {
        await runTask(core, b);
        core.clock.advance(LEASE_MS);
        await core.sweep();
      },
      'was lost',
    ],
    [
      'is cancelled while it runs, and its agent says nothing',
      async (b) => {
        await runTask(core, b);
        await core.cancel(b);
        core.clock.advance(GRACE_MS);
        await core.sweep();
      },
      'was cancelled',
    ],
  ];
  it.each(cases)('B %s', async (_name, end, words) => {
    const [a, b, c, d] = (await makeGraph(core, diamond({ task: once }))) as [number, number, number, number];
    await succeed(core, a);
    await end(b);
    const skipped = await core.task(d);
    expect(skipped).toMatchObject({ status: 'cancelled', reason: 'dependency_failed', ended_at: core.clock.now() });
    expect(skipped.error).toBe(`task ${core.store.ids.encode(b)} (1) ${words}, and this one needs its success`);
    expect(await core.runs(d)).toEqual([]);
    expect((await core.history(d)).map(({ type, data }) => [type, JSON.parse(data!)])).toEqual([
      ['skipped', { need: core.store.ids.encode(b), ended: (await core.task(b)).status }],
    ]);
    expect(await flow(d)).toBe('active');
    await succeed(core, c);
    expect(['failed', 'cancelled']).toContain(await flow(d));
    expect(await flow(d)).toBe((await core.task(b)).status === 'cancelled' ? 'cancelled' : 'failed');
    expect(core.endings(d)).toHaveLength(1);
    // No letter: nobody has to decide on what never ran.
    expect(
      await core.store.fetch(
        core.store.dialect.build.selectFrom('dead_letter').select('task_id').where('task_id', '=', d),
      ),
    ).toEqual([]);
  });

  it('everything that needs D in turn goes with it in one step, however long the chain', async () => {
    const chain = Array.from({ length: 400 }, (_, index) => (index === 0 ? {} : { needs: [index - 1] }));
    const ids = await makeGraph(core, chain);
    await fail(core, ids[0]!);
    expect(new Set(await statuses(core, ids.slice(1)))).toEqual(new Set(['cancelled']));
    // The cause is named, and not the last link.
    expect((await core.task(ids[399]!)).error).toContain(`task ${core.store.ids.encode(ids[0]!)} (0) has failed`);
    expect(await flow(ids[0]!)).toBe('failed');
  });

  it('a failure that is tried again skips nobody', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await core.tell(await runTask(core, a), { type: 'failed', errorClass: 'transient', error: 'busy' });
    expect(await statuses(core, [a, b])).toEqual(['queued', 'waiting']);
  });

  it('a blocked need leaves the others waiting', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await core.tell(await runTask(core, a), { type: 'blocked', summary: 'quota' });
    expect(await statuses(core, [a, b])).toEqual(['waiting', 'waiting']);
    expect(await flow(a)).toBe('blocked');
    await core.retry(a);
    await succeed(core, a);
    expect(await statuses(core, [a, b])).toEqual(['succeeded', 'queued']);
  });
});

describe('when: always', () => {
  it('lets a task run after the end of its needs, however they ended', async () => {
    const [a, b, c] = (await makeGraph(core, [{}, { needs: [0] }, { needs: [0, 1], when: 'always' }])) as [
      number,
      number,
      number,
    ];
    await fail(core, a);
    expect(await statuses(core, [a, b, c])).toEqual(['failed', 'cancelled', 'queued']);
    await succeed(core, c);
    // What was always to run does not make good what failed.
    expect(await flow(c)).toBe('failed');
  });

  it('does not wait again when a need that has ended is run again', async () => {
    const [a, b, c] = (await makeGraph(core, [{}, {}, { needs: [0, 1], when: 'always' }])) as [number, number, number];
    await fail(core, a);
    await core.retry(a);
    await succeed(core, b);
    expect(await statuses(core, [a, b, c])).toEqual(['queued', 'succeeded', 'queued']);
  });
});

describe('A62: a need that is run again', () => {
  it('takes back what was skipped because of it: the replay of B from the dead letters un-skips D', async () => {
    const [a, b, c, d, e] = (await makeGraph(core, [...diamond({ task: once }), { needs: [3] }])) as [
      number,
      number,
      number,
      number,
      number,
    ];
    await succeed(core, a);
    await fail(core, b);
    await succeed(core, c);
    expect(await flow(d)).toBe('failed');
    const answers = await core.store.transact('test.replay', (tx) =>
      replayLetters(tx, [{ id: b, by: 'eva' }], core.emit),
    );
    expect(answers).toEqual([{ result: 'done' }]);
    expect(await flow(d)).toBe('active');
    expect(await statuses(core, [b, d, e])).toEqual(['queued', 'waiting', 'waiting']);
    expect(await core.task(d)).toMatchObject({ reason: 'needs', generation: 2, error: null, ended_at: null });
    expect((await core.history(d)).map(({ type }) => type)).toEqual(['skipped', 'waits_again']);
    await succeed(core, b);
    await succeed(core, d);
    await succeed(core, e);
    expect(await flow(d)).toBe('finished');
    for (const id of [d, e]) expect(core.endings(id)).toHaveLength(2);
  });

  it('leaves what another failed need keeps from running', async () => {
    const [a, b, c] = (await makeGraph(core, [{}, {}, { needs: [0, 1] }])) as [number, number, number];
    await fail(core, a);
    await fail(core, b);
    await core.retry(a);
    expect(await statuses(core, [a, b, c])).toEqual(['queued', 'failed', 'cancelled']);
    await core.retry(b);
    expect(await statuses(core, [a, b, c])).toEqual(['queued', 'queued', 'waiting']);
  });

  it('and cancelled again in the same moment leaves nobody waiting for ever', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await fail(core, a);
    await Promise.all([core.retry(a), core.cancel(a)]);
    expect(await core.task(a)).toMatchObject({ status: 'cancelled', generation: 2 });
    expect(await core.task(b)).toMatchObject({ status: 'cancelled' });
  });

  it('and failing again skips them again', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await fail(core, a);
    await core.retry(a);
    await fail(core, a);
    expect(await core.task(b)).toMatchObject({ status: 'cancelled', reason: 'dependency_failed', generation: 2 });
    expect(core.endings(b)).toHaveLength(2);
  });
});

describe('a person’s retry', () => {
  it('does not let a task run before its needs', async () => {
    const [, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    expect(await core.retry(b)).toEqual({ result: 'refused', status: 'waiting', because: 'needs' });
    expect(await core.task(b)).toMatchObject({ status: 'waiting', reason: 'needs', generation: 1 });
  });

  it('of a task that was skipped is refused while its need has failed', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await fail(core, a);
    expect(await core.retry(b)).toEqual({ result: 'refused', status: 'cancelled', because: 'needs' });
    expect(await core.task(b)).toMatchObject({ status: 'cancelled', generation: 1 });
  });

  it('of a task that was cancelled while it waited lets it wait again, and what was skipped because of it', async () => {
    const [a, b, c] = (await makeGraph(core, [{}, { needs: [0] }, { needs: [1] }])) as [number, number, number];
    await core.cancel(b);
    expect(await statuses(core, [a, b, c])).toEqual(['queued', 'cancelled', 'cancelled']);
    expect(await core.retry(b)).toEqual({ result: 'queued', waits: true });
    expect(await statuses(core, [a, b, c])).toEqual(['queued', 'waiting', 'waiting']);
    expect(await claimed()).toEqual([a]);
  });

  it('of a failed need and of the task that it skipped, together, lets the one run and the other wait', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await fail(core, a);
    const answers = await core.store.write(
      core.verbs.retry,
      [b, a].map((id) => ({ id, by: 'test' })),
    );
    expect(answers).toEqual([{ result: 'queued', waits: true }, { result: 'queued' }]);
    expect(await statuses(core, [a, b])).toEqual(['queued', 'waiting']);
    await succeed(core, a);
    await succeed(core, b);
    expect(core.endings(b)).toHaveLength(2);
  });
});

describe('times', () => {
  it('the time to live of a task begins when its needs are met', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0], task: { ttlMs: 1_000 } }])) as [number, number];
    core.clock.advance(5_000);
    await core.sweep();
    expect(await core.task(b)).toMatchObject({ status: 'waiting', expires_at: null });
    await succeed(core, a);
    core.clock.advance(999);
    await core.sweep();
    expect(await core.task(b)).toMatchObject({ status: 'queued', expires_at: START + 6_000 });
    core.clock.advance(1);
    await core.sweep();
    expect(await core.task(b)).toMatchObject({ status: 'failed', reason: 'expired' });
  });

  it('a task that is asked for later stands in line then, and not before', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0], task: { runAt: START + 60_000 } }])) as [number, number];
    await succeed(core, a);
    expect(await core.task(b)).toMatchObject({ status: 'queued', run_at: START + 60_000 });
    expect(await claimed()).toEqual([]);
    core.clock.advance(60_000);
    expect(await claimed()).toEqual([b]);
  });
});

it('a restart changes nothing: what waits goes on when its need ends', async () => {
  const ids = await makeGraph(core, diamond());
  core = await core.reopen();
  for (const id of ids) await succeed(core, id);
  expect(await flow(ids[3]!)).toBe('finished');
});

it('tasks without needs cost no statement of needs, and their events say nothing of graphs', async () => {
  const id = await core.ask();
  await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
  const other = await core.create();
  await core.cancel(other);
  await core.retry(other);
  const ends = core.events.filter(({ type }) => type === 'task.ended' || type === 'task.reopened');
  expect(ends).toHaveLength(3);
  expect(ends.some((event) => 'graph' in event)).toBe(false);
  await core.store.transact('test.watch', async (tx) => {
    const untouched = new Proxy(tx, {
      get: (target, key) => {
        if (key !== 'now') throw new Error(`${String(key)} was asked for`);
        return target.now;
      },
    });
    await watchNeeds({ ids: core.store.ids, emit: core.emit })(untouched, core.events);
  });
  expect((await core.task(id)).graph).toBe(0);
  expect(await storedNeeds(core)).toEqual([]);
});
