import Database from 'better-sqlite3';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type Param, sqliteDialect } from '../../src/store/dialect.ts';
import type { Grant } from '../../src/tasks/claim.ts';
import { DEADLINE_MARGIN_MS } from '../../src/tasks/claim-round.ts';
import { dueTasks } from '../../src/tasks/queries.ts';
import type { Priority } from '../../src/tasks/states.ts';
import { Core, LEASE_MS, newTask, START } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const idsOf = (grants: readonly Grant[]) => grants.map(({ taskId }) => taskId);

it('a claim makes one run with a lease and a token; the execution is not counted yet', async () => {
  const id = await core.create({ timeoutMs: 5_000 });
  const grant = await core.claim();
  expect(grant).toMatchObject({ taskId: id, attempt: 1, leaseToken: expect.stringMatching(/^[\w-]{16}$/) });
  expect(await core.task(id)).toMatchObject({ status: 'leased', run_id: grant.runId, attempt: 0, started_at: null });
  expect(await core.runs(id)).toMatchObject([
    {
      id: grant.runId,
      agent_id: 'a1',
      instance_id: 'a1-1',
      attempt: 1,
      generation: 1,
      lease_token: grant.leaseToken,
      lease_until: START + LEASE_MS,
      deadline_at: START + 5_000 + DEADLINE_MARGIN_MS,
      claimed_at: START,
      started_at: null,
      ended_at: null,
    },
  ]);
  expect(await core.claimAll('a2')).toEqual([]);
});

it('better priority first, then the time it was due, then the order of creation', async () => {
  const wanted: [Priority, number | null][] = [
    ['low', null],
    ['normal', null],
    ['normal', START - 5],
    ['high', null],
    ['high', null],
    ['low', START - 9],
    ['normal', null],
  ];
  const created = await core.createAll(wanted.map(([priority, runAt]) => newTask({ priority, runAt })));
  const order = [3, 4, 2, 1, 6, 5, 0].map((index) => created[index]!.id);
  const taken: number[] = [];
  for (let n = 0; n < order.length; n += 1) taken.push((await core.claim()).taskId);
  expect(taken).toEqual(order);
});

it('any tasks come out each once and within their priority in the order of time and id, however many are taken at once', async () => {
  const tasks = fc.array(
    fc.record({ priority: fc.constantFrom<Priority>('high', 'normal', 'low'), due: fc.integer({ min: -20, max: 20 }) }),
    { minLength: 1, maxLength: 25 },
  );
  let round = 0;
  await fc.assert(
    fc.asyncProperty(tasks, fc.integer({ min: 1, max: 7 }), async (wanted, max) => {
      round += 1;
      const queue = `p${round}/shell`;
      const created = await core.createAll(
        wanted.map(({ priority, due }) => newTask({ pool: `p${round}`, priority, runAt: START + due })),
      );
      const due = wanted.map((task, index) => ({ ...task, id: created[index]!.id })).filter((task) => task.due <= 0);
      due.sort((a, b) => a.due - b.due || a.id - b.id);
      const taken: number[] = [];
      for (
        let grants = await core.claimAll('a1', { queues: [queue], max });
        grants.length > 0;
        grants = await core.claimAll('a1', { queues: [queue], max })
      ) {
        expect(grants.length).toBeLessThanOrEqual(max);
        taken.push(...idsOf(grants));
      }
      for (const priority of ['high', 'normal', 'low']) {
        const own = due.filter((task) => task.priority === priority).map((task) => task.id);
        expect(taken.filter((id) => own.includes(id))).toEqual(own);
      }
      expect(taken).toHaveLength(due.length);
    }),
    { numRuns: 40 },
  );
});

it('a delayed task is not taken a millisecond early, and then before its juniors', async () => {
  const delayed = await core.create({ runAt: START + 1_000 });
  const other = await core.create({ runAt: START + 1_001 });
  core.clock.set(START + 999);
  expect(await core.claimAll('a1', { max: 5 })).toEqual([]);
  core.clock.set(START + 1_001);
  expect(idsOf(await core.claimAll('a1', { max: 5 }))).toEqual([delayed, other]);
});

it('delayed tasks of a better band cost a claim nothing', async () => {
  const due = await core.create({ priority: 'low' });
  const [stream] = await core.store.fetch(core.store.dialect.build.selectFrom('stream').select('id'));
  const steps = () => {
    const connection = new Database(core.path, { readonly: true });
    // The rows that the claim's own statement looks at, told by the database: those that match before order and limit.
    const seen: number[] = [];
    connection.function('seen', (id: number) => seen.push(id));
    const { sql, parameters } = dueTasks.compile(sqliteDialect);
    const spied = connection.prepare(sql.replace('order by', 'and seen(id) order by'));
    for (const priority of [0, 1, 2]) {
      const values: Record<string, unknown> = { stream: stream!.id, priority, now: START, limit: 1 };
      spied.all(parameters.map((slot) => values[(slot as Param).name]));
    }
    connection.close();
    return seen;
  };
  expect(steps()).toEqual([due]);
  for (let n = 0; n < 10; n += 1)
    await core.createAll(Array.from({ length: 200 }, () => newTask({ priority: 'high', runAt: START + 60_000 })));
  expect(steps()).toEqual([due]);
  expect((await core.claim()).taskId).toBe(due);
});

it('better bands of all queues come before worse ones, and within a band the queues take turns', async () => {
  const make = (pool: string, priority: Priority) => core.create({ pool, priority });
  const lowFirst = await make('one', 'low');
  const normalSecond = await make('two', 'normal');
  const normalFirst = await make('one', 'normal');
  const grants = await core.claimAll('a1', { queues: ['one/shell', 'two/shell'], max: 3 });
  expect(idsOf(grants)).toEqual([normalFirst, normalSecond, lowFirst]);
});

it('only tasks of the queues that an agent serves are taken', async () => {
  await core.createAll([
    newTask({ pool: 'other' }),
    newTask({ runtime: 'http' }),
    newTask({ agent: 'a9' }),
    newTask({ labels: { city: 'sz' } }),
  ]);
  expect(await core.claimAll('a1', { max: 10 })).toEqual([]);
  expect(await core.claimAll('a1', { max: 10, queues: ['default/shell?city=sz'] })).toHaveLength(1);
});

it('parallel claims never give one task twice, whether they share a transaction or not', async () => {
  for (let n = 0; n < 3; n += 1) await core.createAll(Array.from({ length: 200 }, () => newTask()));
  const given: number[] = [];
  const agent = async (agentId: string) => {
    for (let round = 0; round < 4; round += 1) {
      const [claims, more] = await Promise.all([
        core.claimAll(agentId, { max: 7 }),
        core.claimAll(agentId, { max: 3 }),
      ]);
      given.push(...idsOf([...claims, ...more]));
    }
  };
  await Promise.all(Array.from({ length: 10 }, (_, n) => agent(`a${n}`)));
  expect(given).toHaveLength(400);
  expect(new Set(given).size).toBe(400);
  const runs = await core.store.fetch(core.store.dialect.build.selectFrom('run').select(['task_id', 'lease_token']));
  expect(runs).toHaveLength(400);
  expect(new Set(runs.map((run) => run.lease_token)).size).toBe(400);
});

it('many agents of one turn share what there is, in order, and ask the database once per band', async () => {
  const created = await core.createAll(Array.from({ length: 5 }, () => newTask()));
  const claims = Array.from({ length: 4 }, (_, n) => core.claimOf(`a${n}`, { max: 2 }));
  const grants = (await Promise.all(claims.map((claim) => core.store.write(core.line.claim, [claim])))).map(
    (answer) => answer[0]!,
  );
  expect(grants.map(idsOf)).toEqual([[0, 1], [2, 3], [4], []].map((group) => group.map((index) => created[index]!.id)));
});

it('trap 3: a grant whose answer was lost is offered again with the same run and token, with a whole lease, before anything new', async () => {
  await core.createAll([newTask(), newTask(), newTask()]);
  const lost = await core.claim('a1', { holding: [] });
  const kept = await core.claim('a1', { holding: [lost.runId] });
  core.clock.advance(LEASE_MS - 1);
  const again = await core.claimAll('a1', { holding: [kept.runId], max: 2 });
  expect(again[0]).toMatchObject({ runId: lost.runId, taskId: lost.taskId, leaseToken: lost.leaseToken, attempt: 1 });
  expect(again).toHaveLength(2);
  expect(again[1]!.runId).not.toBe(lost.runId);
  core.clock.advance(LEASE_MS - 1);
  await core.sweep();
  expect(await core.task(lost.taskId)).toMatchObject({ status: 'leased', run_id: lost.runId });
  expect(await core.runs(lost.taskId)).toHaveLength(1);
});

it('trap 3: what has started, what another instance or agent holds, and what is over is not offered again', async () => {
  await core.createAll([newTask(), newTask(), newTask(), newTask()]);
  await core.run('a1', { holding: [] });
  await core.claim('a1', { instanceId: 'a1-0' });
  await core.claim('a2');
  const over = await core.claim('a1', { holding: null });
  await core.tell(over, { type: 'succeeded', summary: 'ok' });
  expect(await core.claimAll('a1', { holding: [], max: 10 })).toEqual([]);
});

it('trap 3: no more is offered again than the agent has room for', async () => {
  await core.createAll([newTask(), newTask(), newTask()]);
  const lost = idsOf(await core.claimAll('a1', { max: 3 }));
  expect(idsOf(await core.claimAll('a1', { max: 2, holding: [] }))).toEqual(lost.slice(0, 2));
});
