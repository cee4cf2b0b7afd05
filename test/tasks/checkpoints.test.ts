import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { prunableKinds, readBundles } from '../../src/retention/prune.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import { checkpointsSchema } from '../../src/store/migrations/0007-checkpoints.ts';
import * as queries from '../../src/tasks/checkpoint-queries.ts';
import { CHECKPOINT_LIMITS, checkpointText } from '../../src/tasks/checkpoint-words.ts';
import { keepProgress } from '../../src/tasks/queries.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { retryTasks } from '../../src/tasks/retry.ts';
import { Core, LEASE_MS, newTask } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const saves = (data: unknown): RunNews => ({ type: 'checkpoint', data });
const failure: RunNews = { type: 'failed', errorClass: 'permanent', error: 'no' };
const success: RunNews = { type: 'succeeded', summary: 'ok' };
const typesOf = async (id: number) => (await core.history(id)).map(({ type }) => type);
const batch = (grant: { runId: number; leaseToken: string }, ...reports: [seq: number, news: RunNews][]) =>
  core.store.write(
    core.verbs.report,
    reports.map(([seq, news]) => ({ agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq, news })),
  );
const rows = () => core.store.fetch(core.store.dialect.build.selectFrom('checkpoint').selectAll());

describe('saving', () => {
  it('keeps the newest, with its version, its size and the run that saved it', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves({ step: 1, name: 'é' }), { seq: 500 });
    core.clock.advance(7);
    await core.tell(grant, saves({ step: 2 }), { seq: 501 });
    expect(await rows()).toEqual([
      { task_id: id, version: 2, run_id: grant.runId, seq: 501, at: core.clock.now(), bytes: 10, data: '{"step":2}' },
    ]);
    expect(await core.task(id)).toMatchObject({ checkpoint_version: 2, last_event_at: core.clock.now() });
    expect((await core.history(id)).map(({ type, data }) => [type, data])).toEqual([
      ['checkpoint', '{"bytes":22}'],
      ['checkpoint', '{"bytes":10}'],
    ]);
  });

  it('of two reports of one run the later one stays, in whichever order they come', async () => {
    const id = await core.create();
    const grant = await core.run();
    expect(await core.tell(grant, saves('later'), { seq: 9 })).toEqual({ result: 'accepted' });
    expect(await core.tell(grant, saves('earlier'), { seq: 8 })).toEqual({ result: 'accepted' });
    expect(await core.checkpoint(id)).toMatchObject({ data: '"later"', version: 1, seq: 9 });
    await batch(grant, [12, saves('last')], [11, saves('last but one')]);
    expect(await core.checkpoint(id)).toMatchObject({ data: '"last"', version: 2, seq: 12 });
  });

  it('of the next run counts whatever the numbers of its reports', async () => {
    const id = await core.create();
    await core.tell(await core.run(), saves(1), { seq: 90_000 });
    core.clock.advance(LEASE_MS + 1);
    await core.sweep();
    await core.tell(await core.run('a2'), saves(2), { agentId: 'a2', seq: 1 });
    expect(await core.checkpoint(id)).toMatchObject({ data: '2', version: 2, seq: 1 });
  });

  it('twice is once', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves(1), { seq: 5 });
    expect(await core.tell(grant, saves(1), { seq: 5 })).toEqual({ result: 'duplicate' });
    expect(await core.checkpoint(id)).toMatchObject({ version: 1 });
    await core.tell(grant, failure);
    expect(await core.tell(grant, saves(1), { seq: 5 })).toEqual({ result: 'duplicate' });
    expect(await typesOf(id)).not.toContain('late_checkpoint');
  });

  it('null is a checkpoint like any other', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves(3));
    await core.tell(grant, saves(null));
    expect(await core.checkpoint(id)).toMatchObject({ version: 2, data: 'null' });
  });

  it('of a late run is kept as an event and changes nothing', async () => {
    const id = await core.create();
    const first = await core.run();
    await core.tell(first, saves('first'));
    core.clock.advance(LEASE_MS + 1);
    await core.sweep();
    const late = await core.tell(first, saves('between'));
    const second = await core.run('a2');
    expect([late, await core.tell(first, saves('late'))]).toMatchObject([
      { result: 'lease_lost' },
      { result: 'lease_lost' },
    ]);
    expect(await core.checkpoint(id)).toMatchObject({ data: '"first"', version: 1, run_id: first.runId });
    await core.tell(second, saves('second'), { agentId: 'a2' });
    await core.tell(first, saves('late again'));
    expect(await core.checkpoint(id)).toMatchObject({ data: '"second"', version: 2, run_id: second.runId });
    expect((await typesOf(id)).filter((type) => type === 'late_checkpoint')).toHaveLength(3);
  });

  it('one that is too large is refused by itself, the others of its batch are not, and the old one stays', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves('old'));
    const answers = await batch(
      grant,
      [21, { type: 'progress', percent: 3 }],
      [22, saves('é'.repeat(CHECKPOINT_LIMITS.bytes / 2))],
      [23, { type: 'output', key: 'k', value: 'v' }],
    );
    expect(answers).toEqual([
      { result: 'accepted' },
      { result: 'rejected', reason: 'the checkpoint is larger than 262144 bytes' },
      { result: 'accepted' },
    ]);
    expect(await core.checkpoint(id)).toMatchObject({ data: '"old"', version: 1 });
    expect(await core.task(id)).toMatchObject({ outputs: '{"k":"v"}' });
    expect(await core.tell(grant, saves('é'.repeat(CHECKPOINT_LIMITS.bytes / 2 - 1)))).toEqual({ result: 'accepted' });
    expect(await core.checkpoint(id)).toMatchObject({ bytes: CHECKPOINT_LIMITS.bytes, version: 2 });
  });

  it('tells what may not be kept', () => {
    const nested = (levels: number) => JSON.parse('['.repeat(levels) + ']'.repeat(levels)) as unknown;
    expect(checkpointText(nested(CHECKPOINT_LIMITS.depth))).toMatchObject({ bytes: 2 * CHECKPOINT_LIMITS.depth });
    expect(checkpointText(nested(CHECKPOINT_LIMITS.depth + 1))).toBe('is nested deeper than 100 levels');
    expect(checkpointText(nested(130_000))).toBe('is nested deeper than 100 levels');
  });
});

describe('the next attempt', () => {
  it.each([
    ['a failure that is tried again', async () => {}, { type: 'failed', errorClass: 'transient', error: 'x' }],
    ['a hand-back', async () => {}, { type: 'released' }],
    ['a time-out', async () => {}, { type: 'timed_out' }],
    ['a block', (id: number) => core.retry(id), { type: 'blocked', summary: 's' }],
    ['a question', (id: number) => core.retry(id), { type: 'needs_input', prompt: 'p' }],
    ['a failure, as the next generation', (id: number) => core.retry(id), failure],
    ['a cancel, as the next generation', (id: number) => core.retry(id), { type: 'cancelled' }],
  ] as [string, (id: number) => Promise<unknown>, RunNews][])('goes on from it after %s', async (_what, ask, end) => {
    const id = await core.create();
    const grant = await core.run();
    await batch(grant, [10, saves({ page: 1 })], [11, saves({ page: 2 })], [12, end]);
    await ask(id);
    core.clock.advance(600_000);
    expect((await core.claim()).task.checkpoint_version).toBe(1);
    expect(await core.checkpoint(id)).toMatchObject({ data: '{"page":2}' });
  });

  it('after a lost lease with onLost: ask goes on from it', async () => {
    const id = await core.create({ onLost: 'ask' });
    await core.tell(await core.run(), saves('kept'));
    core.clock.advance(LEASE_MS + 1);
    await core.sweep();
    expect(await core.task(id)).toMatchObject({ status: 'waiting', reason: 'lost_ask' });
    await core.retry(id);
    expect((await core.claim('a2')).task.checkpoint_version).toBe(1);
  });

  it('with other arguments begins without one, and counts from one', async () => {
    const id = await core.create({ args: { n: 1 } });
    const grant = await core.run();
    await core.tell(grant, saves('of n = 1'));
    await core.tell(grant, failure);
    const args = { from: { n: 1 }, to: { n: 2 } };
    await core.store.transact('replay', (tx) => retryTasks(tx, [{ id, by: 'p', args }], core.emit));
    expect([await rows(), (await core.task(id)).checkpoint_version]).toEqual([[], null]);
    await core.tell(await core.run(), saves('of n = 2'));
    expect(await core.checkpoint(id)).toMatchObject({ version: 1 });
  });

  it('A64: two people who resume at once start one', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves(1));
    await core.tell(grant, { type: 'blocked', summary: 's' });
    const [one, two] = await Promise.all([core.retry(id), core.retry(id)]);
    expect([one.result, two.result]).toContain('queued');
    expect(await core.claimAll('a1', { max: 5 })).toHaveLength(1);
    expect(await core.claimAll('a2', { max: 5 })).toEqual([]);
  });

  it('is handed over with its version by pull, by an offer again, and by the pull in a report', async () => {
    const agent = core.agent();
    await agent.register();
    const ids = [await core.create(), await core.create(), await core.create()];
    for (const [n, { runId, leaseToken }] of (await agent.pull(2)).tasks.entries()) {
      await agent.report(
        { runId, leaseToken, type: 'checkpoint', data: { was: n } },
        { runId, leaseToken, type: 'checkpoint', data: { at: n } },
      );
      await agent.report({ runId, leaseToken, type: 'checkpoint', data: { at: n, more: true } });
      await agent.report({ runId, leaseToken, type: 'released' });
    }
    const seen = (tasks: { taskId: string; checkpoint?: unknown; checkpointVersion?: number }[]) =>
      tasks.map(({ taskId, checkpoint, checkpointVersion }) => [
        ids.indexOf(core.store.ids.decode(taskId)!),
        checkpoint,
        checkpointVersion,
      ]);
    const expected = [
      [0, { at: 0, more: true }, 2],
      [1, { at: 1, more: true }, 2],
      [2, undefined, undefined],
    ];
    const first = await agent.pull(3);
    expect(seen(first.tasks)).toEqual(expected);
    expect(first.tasks.map((task) => 'checkpoint' in task)).toEqual([true, true, false]);
    expect(seen((await agent.pull(3)).tasks)).toEqual(expected);
    const [{ runId, leaseToken }] = first.tasks as [(typeof first.tasks)[0]];
    await core.cancel(ids[2]!);
    const again = await agent.reportAndPull(1, { runId, leaseToken, type: 'released' });
    expect(seen(again.tasks!)).toEqual([expected[0]]);
  });
});

describe('cleaning up', () => {
  it.each([
    ['alone', [[30, success]]],
    [
      'with another checkpoint in the batch',
      [
        [30, saves(9)],
        [31, success],
      ],
    ],
    [
      'with output in the batch',
      [
        [30, { type: 'output', key: 'k', value: 'v' }],
        [31, success],
      ],
    ],
  ] as [string, [number, RunNews][]][])('a success %s leaves none', async (_what, reports) => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves(1));
    await batch(grant, ...reports);
    expect([await rows(), await core.task(id)]).toMatchObject([[], { status: 'succeeded', checkpoint_version: null }]);
  });

  it('a checkpoint that first comes with the success is not stored at all', async () => {
    const id = await core.create();
    await batch(await core.claim(), [1, { type: 'started' }], [2, saves(1)], [3, success]);
    expect([await rows(), (await core.task(id)).checkpoint_version]).toEqual([[], null]);
    expect(await typesOf(id)).toEqual(['checkpoint']);
  });

  it('costs a task without one no statement', async () => {
    const statements: string[] = [];
    await core.create();
    const grant = await core.claim();
    await core.store.transact('spy', async (tx) => {
      const run = tx.run.bind(tx);
      const all = tx.all.bind(tx);
      tx.run = (query, params) => {
        statements.push(query.name);
        return run(query, params);
      };
      tx.all = (query, params) => {
        statements.push(query.name);
        return all(query, params);
      };
      const report = { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq: 1, news: success };
      await core.verbs.report.run(tx, [report]);
    });
    expect(statements).toEqual(['run.live', 'run.succeed', 'task.succeed']);
  });

  it('goes into the archive and away with its task', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, saves({ at: 'the end' }));
    await core.tell(grant, { type: 'cancelled' });
    const now = core.clock.now() + 30 * 86_400_000;
    const cutoffs = { now, before: now - 1, inbox_before: now - 1, audit_before: now - 1 };
    const { kind, verb } = prunableKinds(core.store.ids).find((one) => one.kind.table === 'task')!;
    const [bundle] = await readBundles(core.store, kind, [id], core.store.ids);
    expect(bundle!.lines.find((line) => line.includes('"table":"checkpoint"'))).toContain('the end');
    expect(await core.store.write(verb, [{ bundle: bundle!, cutoffs }])).toEqual([true]);
    expect([await rows(), await core.task(id)]).toEqual([[], undefined]);
  });
});

describe('the statements', () => {
  const statements = [...Object.values(queries), keepProgress] as HotQuery<never, unknown>[];

  it.each(statements.map((query) => [query.name, query] as const))(
    '%s looks up what it needs',
    async (_name, query) => {
      await core.createAll(Array.from({ length: 500 }, () => newTask()));
      for (const grant of await core.claimAll('a1', { max: 300 })) await core.tell(grant, saves(1));
      const connection = new Database(core.path);
      for (const kind of ['without statistics', 'with']) {
        if (kind === 'with') connection.exec('analyze');
        const scans = planOf(connection, query).filter((step) => /SCAN (?!jsonb_each|r\b)|TEMP B-TREE/.test(step));
        expect(scans).toEqual([]);
      }
      connection.close();
    },
  );
});

it('the migration takes the checkpoints along that tasks had in their own row', () => {
  const connection = new Database(':memory:');
  connection.exec(`create table task (id integer primary key, status text, run_id integer, last_event_at integer, checkpoint text);
    insert into task values (1, 'running', 7, 50, '{"a":"é"}'), (2, 'failed', null, 60, '2'), (3, 'succeeded', null, 70, '3'),
      (4, 'queued', null, 80, null)`);
  for (const statement of checkpointsSchema.statements) connection.exec(statement);
  expect(connection.prepare('select * from checkpoint').all()).toEqual([
    { task_id: 1, version: 1, run_id: 7, seq: 0, at: 50, bytes: 10, data: '{"a":"é"}' },
    { task_id: 2, version: 1, run_id: 0, seq: 0, at: 60, bytes: 1, data: '2' },
  ]);
  expect(connection.prepare('select id, checkpoint_version from task').raw().all()).toEqual([
    [1, 1],
    [2, 1],
    [3, null],
    [4, null],
  ]);
  connection.close();
});
