import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/log.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import { createArchive } from '../../src/retention/archive.ts';
import { TaskAudit } from '../../src/retention/audit.ts';
import { Retention } from '../../src/retention/retention.ts';
import { Core, LEASE_MS } from '../support/core.ts';
import { diamond, fail, makeGraph, statuses, storedNeeds, succeed } from '../support/graphs.ts';

const WEEK_MS = 7 * 86_400_000;

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const change = (statement: ReturnType<typeof sql>) => core.store.transact('test.fault', (tx) => tx.exec(statement));

describe('retention', () => {
  let uptime = 0;
  function retention(): Retention {
    const { store, clock } = core;
    const archive = createArchive({ folder: join(core.folder, 'archive'), clock });
    return new Retention({
      store,
      clock,
      log: silentLog,
      archive,
      retentionMs: WEEK_MS,
      pauseMs: 0,
      monotonic: () => uptime,
    });
  }
  const pass = (ms: number) => {
    core.pass(ms);
    uptime += ms;
  };

  it('takes the needs of a task with it, into the archive', async () => {
    const prune = retention();
    await prune.runOnce();
    const ids = await makeGraph(core, diamond());
    for (const id of ids) await succeed(core, id);
    const needs = await storedNeeds(core);
    pass(WEEK_MS);
    expect((await prune.runOnce()).pruned).toMatchObject({ task: 4, flow: 1 });
    expect(await storedNeeds(core)).toEqual([]);
    const [name] = await readdir(join(core.folder, 'archive'));
    const lines = gunzipSync(await readFile(join(core.folder, 'archive', name!)))
      .toString()
      .trim()
      .split('\n');
    const archived = lines.map((line) => JSON.parse(line) as { table: string; row: unknown });
    expect(archived.filter(({ table }) => table === 'need').map(({ row }) => row)).toEqual(
      expect.arrayContaining(
        needs.map(([task_id, on_task_id, condition, met]) => ({ task_id, on_task_id, condition, met })),
      ),
    );
  });

  it('never takes what a live task needs, not even where its flow looks over', async () => {
    const prune = retention();
    await prune.runOnce();
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await succeed(core, a);
    await change(sql`update flow set ended_at = ${core.clock.now()}, status = 'finished'`);
    pass(2 * WEEK_MS);
    await prune.runOnce();
    expect(await statuses(core, [a, b])).toEqual(['succeeded', 'queued']);
  });
});

describe('stuck_needs', () => {
  let audit: TaskAudit;
  beforeEach(() => {
    const { store, clock, emit, registry, dispatch, line } = core;
    const sweeper = core.sweeper();
    audit = new TaskAudit({
      store,
      clock,
      log: silentLog,
      emit,
      registry,
      dispatch,
      line,
      outbox: createOutbox({ instant: new Set(), emit: () => undefined }),
      channels: new Set(),
      safeRepeat: new Map(),
      leaseMs: LEASE_MS,
      retentionMs: WEEK_MS,
      sweep: () => sweeper.sweepOnce(),
      wakeDelivery: () => undefined,
    });
  });

  async function fixed(): Promise<string[]> {
    expect((await audit.find()).findings).toMatchObject([{ code: 'stuck_needs', fix: 'settle_needs' }]);
    const { fixed: done, left } = await audit.fix('eva');
    expect(left).toEqual([]);
    const rows = await core.store.fetch(core.store.dialect.build.selectFrom('audit').selectAll());
    expect(rows).toMatchObject([{ actor: 'eva', action: 'tasks.audit_fixed' }]);
    return done.map(({ did }) => did);
  }

  it('is no finding while a need is under way', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }, {}])) as [number, number];
    expect((await audit.find()).findings).toEqual([]);
    await fail(core, a);
    expect((await audit.find()).findings.map(({ code }) => code)).toEqual([]);
    expect(await statuses(core, [b])).toEqual(['cancelled']);
  });

  it('a task whose needs are all met is queued by the fix', async () => {
    const [, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await change(sql`update need set met = 1`);
    expect(await fixed()).toEqual(['queued: everything that it needs has ended as it should']);
    expect(await core.task(b)).toMatchObject({ status: 'queued', reason: null });
  });

  it('a task whose need succeeded without a word is queued by the fix', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await change(
      sql`update task set status = 'succeeded', ended_at = created_at, cleanup_after = created_at + 1 where id = ${a}`,
    );
    await fixed();
    expect(await statuses(core, [b])).toEqual(['queued']);
    expect(await storedNeeds(core)).toEqual([[b, a, 'success', 1]]);
  });

  it('a task whose need failed without a word is skipped by the fix', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await change(
      sql`update task set status = 'failed', ended_at = created_at, cleanup_after = created_at + 1 where id = ${a}`,
    );
    expect(await fixed()).toEqual(['skipped: a task that it needs has ended without success, or is gone']);
    expect(await core.task(b)).toMatchObject({ status: 'cancelled', reason: 'dependency_failed' });
  });

  it('a task whose need is gone is skipped by the fix', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }])) as [number, number];
    await change(sql`delete from task where id = ${a}`);
    await fixed();
    expect(await core.task(b)).toMatchObject({ status: 'cancelled', error: 'a task that it needs is gone' });
  });

  it('a graph that nobody ended is ended by the worst of its tasks', async () => {
    const [a, b] = (await makeGraph(core, [{}, {}])) as [number, number];
    await fail(core, a);
    await succeed(core, b);
    await change(sql`update flow set status = 'active', ended_at = null`);
    await change(sql`delete from dead_letter`);
    expect((await audit.find()).findings).toMatchObject([{ code: 'orphaned_flow', fix: 'end_flow' }]);
    await audit.fix('eva');
    expect(await core.flowOf(a)).toMatchObject({ status: 'failed' });
  });
});
