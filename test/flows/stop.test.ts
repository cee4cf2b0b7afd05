import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cancelFlowsVerb, sweepDeadlines } from '../../src/flows/stop.ts';
import { Core, GRACE_MS, START } from '../support/core.ts';
import { diamond, fail, makeGraph, runTask, statuses, succeed } from '../support/graphs.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

type Four = [number, number, number, number];
const MINUTE_MS = 60_000;
const sweep = () => core.store.transact('test.deadlines', (tx) => sweepDeadlines(tx, core.emit));
const cancelFlow = async (id: number) => (await core.store.write(cancelFlowsVerb(core.emit), [{ id, by: 'eva' }]))[0]!;
const audit = async () => {
  const rows = await core.store.fetch(core.store.dialect.build.selectFrom('audit').selectAll());
  return rows.map(({ actor, action, target, data }) => ({ actor, action, target, data: JSON.parse(data!) as unknown }));
};

describe('the deadline of a graph', () => {
  it('stops everything that is left, at its millisecond, once', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond(), { deadlineMs: MINUTE_MS })) as Four;
    await succeed(core, a);
    const grant = await runTask(core, b);
    core.clock.advance(MINUTE_MS - 1);
    expect(await sweep()).toBe(0);
    core.clock.advance(1);
    expect(await sweep()).toBe(1);
    expect(await statuses(core, [a, b, c, d])).toEqual(['succeeded', 'running', 'failed', 'failed']);
    for (const id of [c, d])
      expect(await core.task(id)).toMatchObject({ reason: 'deadline', error: expect.stringContaining('deadline') });
    expect(await core.task(b)).toMatchObject({ cancel_requested_at: core.clock.now() });
    expect(await core.flowOf(a)).toMatchObject({ status: 'active', cancel_requested_at: core.clock.now() });
    expect(await sweep()).toBe(0);
    await core.tell(grant, { type: 'cancelled' });
    expect(await core.flowOf(a)).toMatchObject({ status: 'failed' });
    expect(core.endings(d)).toHaveLength(1);
    expect((await core.history(d)).map(({ type }) => type)).toEqual(['deadline']);
  });

  it('is kept over restarts, and the sweeper comes to it at the start', async () => {
    const ids = await makeGraph(core, diamond(), { deadlineMs: MINUTE_MS });
    core.clock.advance(MINUTE_MS);
    core = await core.reopen();
    const sweeper = core.sweeper();
    await sweeper.sweepOnce();
    expect(new Set(await statuses(core, ids))).toEqual(new Set(['failed']));
    expect(await core.flowOf(ids[0]!)).toMatchObject({ status: 'failed' });
  });

  it('ends what is blocked or was to run whatever happens, and a success that comes all the same counts', async () => {
    const [a, b, c] = (await makeGraph(core, [{}, {}, { needs: [0, 1], when: 'always' }], {
      deadlineMs: MINUTE_MS,
    })) as Four;
    await core.tell(await runTask(core, a), { type: 'blocked', summary: 'quota' });
    const grant = await runTask(core, b);
    core.clock.advance(MINUTE_MS);
    await sweep();
    await core.tell(grant, { type: 'succeeded', summary: 'ok' });
    expect(await statuses(core, [a, b, c])).toEqual(['failed', 'succeeded', 'failed']);
  });

  it('cancels what a person has paused', async () => {
    const [a] = (await makeGraph(core, [{}], { deadlineMs: MINUTE_MS })) as Four;
    await core.store.transact('test.pause', (tx) =>
      tx.exec(tx.dialect.build.updateTable('task').set({ status: 'paused' }).where('id', '=', a)),
    );
    core.clock.advance(MINUTE_MS);
    await sweep();
    expect(await core.task(a)).toMatchObject({ status: 'cancelled', reason: 'deadline' });
  });

  it('means nothing to a flow that is over, and a person’s retry after it lifts it', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }], { deadlineMs: MINUTE_MS })) as Four;
    await fail(core, a);
    core.clock.advance(MINUTE_MS);
    expect(await sweep()).toBe(0);
    await core.retry(a);
    expect(await core.flowOf(a)).toMatchObject({ deadline_at: null, status: 'active' });
    expect(await sweep()).toBe(0);
    await succeed(core, a);
    await succeed(core, b);
    expect(await core.flowOf(a)).toMatchObject({ status: 'finished' });
  });

  it('that is to come holds for what a person runs again', async () => {
    const [a] = (await makeGraph(core, [{}, { needs: [0] }], { deadlineMs: MINUTE_MS })) as Four;
    await fail(core, a);
    await core.retry(a);
    expect(await core.flowOf(a)).toMatchObject({ deadline_at: START + MINUTE_MS });
    core.clock.advance(MINUTE_MS);
    expect(await sweep()).toBe(1);
    expect(await core.flowOf(a)).toMatchObject({ status: 'failed' });
  });

  it('of a graph that was stopped by it, all letters replayed together run again in their order', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }], { deadlineMs: MINUTE_MS })) as Four;
    core.clock.advance(MINUTE_MS);
    await sweep();
    expect(await core.retry(b)).toEqual({ result: 'refused', status: 'failed', because: 'needs' });
    await core.store.write(
      core.verbs.retry,
      [a, b].map((id) => ({ id, by: 'eva' })),
    );
    expect(await statuses(core, [a, b])).toEqual(['queued', 'waiting']);
    await succeed(core, a);
    await succeed(core, b);
    expect(await core.flowOf(a)).toMatchObject({ status: 'finished' });
  });
});

describe('cancelling a flow', () => {
  it('ends what waits, tells what runs to stop, and is written down', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond())) as Four;
    await succeed(core, a);
    const grant = await runTask(core, b);
    const { id } = await core.flowOf(a);
    expect(await cancelFlow(id)).toEqual({ result: 'requested' });
    expect(await statuses(core, [a, b, c, d])).toEqual(['succeeded', 'running', 'cancelled', 'cancelled']);
    expect((await core.task(d)).reason).toBe('cancel_requested');
    expect(await audit()).toEqual([
      { actor: 'eva', action: 'flow.cancelled', target: `flow#${id}`, data: { tasks: 3 } },
    ]);
    expect(await cancelFlow(id)).toEqual({ result: 'requested' });
    expect(await audit()).toHaveLength(1);
    await core.tell(grant, { type: 'failed', errorClass: 'transient', error: 'x' });
    expect(await core.flowOf(a)).toMatchObject({ status: 'cancelled' });
    expect(await cancelFlow(id)).toEqual({ result: 'already', status: 'cancelled' });
  });

  it('is over at once where nothing runs', async () => {
    const ids = await makeGraph(core, diamond());
    expect(await cancelFlow((await core.flowOf(ids[0]!)).id)).toEqual({ result: 'cancelled' });
    expect(new Set(await statuses(core, ids))).toEqual(new Set(['cancelled']));
    for (const id of ids) expect(core.endings(id)).toHaveLength(1);
  });

  it('of an errand of one task works as well, and of nothing says so', async () => {
    const id = await core.ask();
    expect(await cancelFlow((await core.flowOf(id)).id)).toEqual({ result: 'cancelled' });
    expect(await core.flowOf(id)).toMatchObject({ status: 'cancelled' });
    expect(await cancelFlow(987_654)).toEqual({ result: 'unknown' });
  });

  it('ends by the server where an agent does not answer', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as Four;
    await runTask(core, a);
    await cancelFlow((await core.flowOf(a)).id);
    core.clock.advance(GRACE_MS);
    await core.sweep();
    expect(await statuses(core, [a, b])).toEqual(['cancelled', 'cancelled']);
    expect(await core.flowOf(a)).toMatchObject({ status: 'cancelled' });
  });
});
