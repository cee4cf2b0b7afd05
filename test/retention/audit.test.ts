import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/log.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import { TaskAudit } from '../../src/retention/audit.ts';
import { FINDING_CODES } from '../../src/retention/findings.ts';
import { Core, LEASE_MS, newTask, ROUTE, START } from '../support/core.ts';
import { until } from '../support/until.ts';

const MINUTE = 60_000;
const WEEK = 7 * 86_400_000;

let core: Core;
let audit: TaskAudit;
/** What waking the delivery does, for tests. */
let deliver: () => void;
beforeEach(async () => {
  core = await Core.open();
  deliver = () => undefined;
  audit = auditOf(core);
});
afterEach(() => core.close());

const outbox = createOutbox({ instant: new Set(), emit: () => undefined });

function auditOf({ store, clock, emit, registry, dispatch, line }: Core, sweeper = core.sweeper()): TaskAudit {
  return new TaskAudit({
    store,
    clock,
    log: silentLog,
    emit,
    registry,
    dispatch,
    line,
    outbox,
    channels: new Set(['telegram/default']),
    safeRepeat: new Map(),
    leaseMs: LEASE_MS,
    retentionMs: WEEK,
    sweep: () => sweeper.sweepOnce(),
    wakeDelivery: () => deliver(),
  });
}

const change = (statement: ReturnType<typeof sql>) => core.store.transact('test.fault', (tx) => tx.exec(statement));
const codes = async () => (await audit.find()).findings.map(({ code, fix }) => [code, fix]);

/** One finding of this code, which the fix removes; answers what it did. */
async function foundAndFixed(code: string): Promise<string> {
  expect((await audit.find()).findings.map((finding) => finding.code)).toEqual([code]);
  const { fixed, left, more } = await audit.fix('test');
  expect([fixed.map((finding) => finding.code), left, more]).toEqual([[code], [], false]);
  expect((await audit.find()).findings).toEqual([]);
  const written = await core.store.fetch(core.store.dialect.build.selectFrom('audit').selectAll());
  expect(written).toMatchObject([{ actor: 'test', action: 'tasks.audit_fixed' }]);
  expect(JSON.parse(written[0]!.data!)).toEqual({ code, did: fixed[0]!.did });
  return fixed[0]!.did;
}

/** One finding of this code that is a person's to decide: the fix changes nothing about it. */
async function foundAndLeft(code: string): Promise<void> {
  expect((await audit.find()).findings).toMatchObject([{ code, fix: null }]);
  const { fixed, left } = await audit.fix('test');
  expect([fixed, left.map((finding) => finding.code)]).toEqual([[], [code]]);
  expect(await core.store.fetch(core.store.dialect.build.selectFrom('audit').selectAll())).toEqual([]);
}

async function message(state: string, more: { kind?: 'final' | 'notice'; taskId?: number } = {}): Promise<void> {
  await core.store.transact('test.message', async (tx) => {
    await outbox.enqueue(tx, [{ route: ROUTE, kind: more.kind ?? 'final', text: 'x', ...more }]);
    await tx.exec(
      sql`update outbox set status = ${state}, lease_until = case when ${state} = 'sending' then ${tx.now} end, attempts = 1`,
    );
  });
}

async function finished(): Promise<number> {
  const id = await core.ask();
  await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
  return id;
}

it('a healthy store has no findings, whatever is under way', async () => {
  await core.agent().register();
  await finished();
  await core.ask();
  await core.run();
  await core.ask({ runAt: START + 100 * MINUTE });
  await core.create({ pool: 'nobody' });
  await core.ask();
  await core.tell(await core.run(), { type: 'blocked', summary: 'help' });
  expect(
    (await core.store.fetch(core.store.dialect.build.selectFrom('flow').select('status'))).map((row) => row.status),
  ).toContain('blocked');
  await message('pending');
  core.pass(5_000);
  expect(await audit.find()).toEqual({ findings: [], more: false });
  expect(await audit.fix('test')).toEqual({ fixed: [], left: [], more: false });
});

describe('stale_queued', () => {
  it('an agent that waits for work is given the task that nobody told it of', async () => {
    const agent = core.agent();
    await agent.register();
    const pull = agent.pull(1, { waitMs: 600_000 });
    await until(() => core.dispatch.waiting === 1);
    const id = await core.create({ pool: 'nobody' });
    await change(
      sql`update stream set queue = 'default/shell' where id = (select stream_id from task where id = ${id})`,
    );
    core.pass(10 * MINUTE);
    await agent.beat([]);
    expect(await foundAndFixed('stale_queued')).toMatch(/offered/);
    expect((await pull).tasks).toMatchObject([{ taskId: core.store.ids.encode(id) }]);
  });

  it('an agent that does not ask for work is named, and left to a person', async () => {
    const agent = core.agent();
    await agent.register();
    await core.create();
    core.pass(10 * MINUTE);
    await agent.beat([]);
    const { left } = await audit.fix('test');
    expect(left).toMatchObject([{ code: 'stale_queued', problem: expect.stringMatching(/agent a1 is online/) }]);
  });

  it.each(['offline', 'busy', 'other pool', 'not yet'])('is no finding: %s', async (why) => {
    const agent = core.agent();
    await agent.register();
    if (why === 'busy') for (let n = 0; n < 4; n += 1) await core.create();
    if (why === 'busy') await core.claimAll('a1', { max: 4, leaseMs: 1e9 });
    await core.create(why === 'other pool' ? { pool: 'elsewhere' } : {});
    core.pass(why === 'not yet' ? 10 * MINUTE - 1 : 10 * MINUTE);
    if (why !== 'offline') await agent.beat([]);
    expect(await codes()).toEqual([]);
  });

  it.each([
    ['a pause', 'template', 't', null, 1],
    ['a pause of the gateway', 'gateway', '*', null, 1],
    ['a limit of 0', 'pool', 'default', 0, null],
    ['a full lane', 'lane', 'main', 1, null],
  ] as const)(
    'is no finding of a task that is held back by %s; one that is not held back is found all the same',
    async (_why, kind, name, concurrency, pausedAt) => {
      await core.agent().register();
      await core.create();
      await core.claimAll('a1', { leaseMs: 1e9 });
      await change(
        sql`insert into gate (kind, name, concurrency, paused_at) values (${kind}, ${name}, ${concurrency}, ${pausedAt})`,
      );
      for (let n = 0; n < 3; n += 1) await core.create();
      core.pass(10 * MINUTE);
      await core.agent().beat([]);
      expect(await codes()).toEqual([]);
      if (kind === 'gateway') return;
      const free = await core.create({ template: 'u', agent: 'a1', lane: 'own' });
      core.pass(10 * MINUTE);
      await core.agent().beat([]);
      expect((await audit.find()).findings.map(({ code, id }) => [code, id])).toEqual([['stale_queued', free]]);
    },
  );

  it('goes from queue to queue, and finds the oldest of each priority', async () => {
    await core.agent('a1', { pools: ['default', 'p1', 'p2'] }).register();
    for (const pool of ['default', 'p1', 'p2', 'nobody'])
      for (const priority of ['high', 'low'] as const) await core.create({ pool, priority });
    core.pass(10 * MINUTE);
    await core.agent('a1', { pools: ['default', 'p1', 'p2'] }).beat([]);
    expect((await audit.find()).findings).toHaveLength(6);
  });
});

describe('stale_running', () => {
  it('a run whose lease is long over is swept, and its task is queued again', async () => {
    const id = await core.create();
    await core.run();
    // The sweeper has looked a moment ago: nobody was kept from speaking.
    const sweeper = core.sweeper();
    await sweeper.sweepOnce();
    audit = auditOf(core, sweeper);
    await change(sql`update run set lease_until = ${core.clock.now() - LEASE_MS}`);
    expect(await foundAndFixed('stale_running')).toMatch(/swept/);
    expect(await core.task(id)).toMatchObject({ status: 'queued', reason: 'lease_expired' });
  });

  it('after a start its agent gets one more lease time', async () => {
    const id = await core.create();
    await core.run();
    core.pass(2 * LEASE_MS);
    expect(await foundAndFixed('stale_running')).toMatch(/swept/);
    expect(await core.task(id)).toMatchObject({ status: 'running' });
  });

  it('a run that counts as live while its task has moved on is ended', async () => {
    const id = await finished();
    await change(sql`update run set lease_until = ${core.clock.now() + LEASE_MS}, ended_at = null, outcome = null`);
    expect(await foundAndFixed('stale_running')).toMatch(/ended as lost/);
    expect(await core.runs(id)).toMatchObject([{ lease_until: null, outcome: 'lost' }]);
    expect(await core.task(id)).toMatchObject({ status: 'succeeded' });
  });

  it('a task whose run is over is queued again, and the end of the run stays as it was written', async () => {
    const id = await core.create();
    const grant = await core.run();
    await change(sql`update run set lease_until = null, ended_at = 5, outcome = 'failed' where id = ${grant.runId}`);
    expect(await foundAndFixed('stale_running')).toMatch(/queued again/);
    expect(await core.task(id)).toMatchObject({ status: 'queued', run_id: null });
    expect(await core.runs(id)).toMatchObject([{ outcome: 'failed', ended_at: 5 }]);
  });
});

it('lost: is a person’s to decide; a decided one is no finding', async () => {
  const id = await core.create({ retry: { max: 1, baseMs: 1, factor: 1, capMs: 1, jitter: 0 } });
  await core.run();
  core.clock.advance(LEASE_MS);
  await core.sweep();
  expect(await core.task(id)).toMatchObject({ status: 'lost' });
  await foundAndLeft('lost');
  await change(sql`
    insert into dead_letter (task_id, seq, template, state, status, generation, attempt, deaths, first_died_at, died_at)
    values (${id}, 1, 't', 'discarded', 'lost', 1, 1, 1, 1, 1) on conflict (task_id) do update set state = 'discarded'`);
  expect(await codes()).toEqual([]);
});

describe('delivery_failed', () => {
  it.each(['dead', 'expired'])('a result that is %s is sent again', async (state) => {
    await message(state, { taskId: await finished() });
    expect(await foundAndFixed('delivery_failed')).toBe('to be sent again');
    const [row] = await core.store.fetch(core.store.dialect.build.selectFrom('outbox').selectAll());
    expect(row).toMatchObject({ status: 'pending' });
  });

  it('a result that may have arrived is a person’s to decide', async () => {
    await message('unknown', { taskId: await finished() });
    await foundAndLeft('delivery_failed');
  });

  it('an update that did not arrive is no finding', async () => {
    await message('dead', { taskId: await finished(), kind: 'notice' });
    expect(await codes()).toEqual([]);
  });
});

it('missing_cleanup: gets its time', async () => {
  const id = await finished();
  await change(sql`update task set cleanup_after = null`);
  await foundAndFixed('missing_cleanup');
  expect(await core.task(id)).toMatchObject({ cleanup_after: core.clock.now() + WEEK });
});

describe('inconsistent_times', () => {
  it.each([
    ['ended before it started', sql`started_at = ended_at + 5`],
    ['started before it was created', sql`started_at = created_at - 5`],
    [
      'over, with a time that has not come yet',
      sql`ended_at = ended_at + 1000000000, cleanup_after = ended_at + 2000000000`,
    ],
    ['to be cleaned up before it ended', sql`cleanup_after = ended_at - 1`],
  ])('%s: is put in order', async (problem, times) => {
    const id = await finished();
    await change(sql`update task set ${times}`);
    expect((await audit.find()).findings[0]!.problem).toContain(problem);
    expect(await foundAndFixed('inconsistent_times')).toMatch(/they were \{/);
    const task = await core.task(id);
    expect(task.created_at).toBeLessThanOrEqual(task.started_at!);
    expect(task.started_at).toBeLessThanOrEqual(task.ended_at!);
    expect(task.ended_at).toBeLessThanOrEqual(core.clock.now() + 5);
    expect(task.cleanup_after).toBe(task.ended_at! + WEEK);
  });

  it('a live task keeps its times ahead, which are plans', async () => {
    await core.create({ runAt: START + 1e9 });
    expect(await codes()).toEqual([]);
  });
});

describe('orphaned_flow', () => {
  it('a live flow whose tasks are all over ends as its last task did', async () => {
    const id = await finished();
    await change(sql`update flow set status = 'active', ended_at = null`);
    expect(await foundAndFixed('orphaned_flow')).toBe('the flow was ended as finished');
    expect(await core.flowOf(id)).toMatchObject({ status: 'finished', ended_at: core.clock.now() });
  });

  it('a flow that is over while its task goes on is opened again', async () => {
    const id = await core.ask();
    await change(sql`update flow set status = 'finished', ended_at = 5`);
    await foundAndFixed('orphaned_flow');
    expect(await core.flowOf(id)).toMatchObject({ status: 'active', ended_at: null });
  });

  it('a flow that was cancelled takes its task with it', async () => {
    const id = await core.ask();
    await change(sql`update flow set status = 'cancelled', ended_at = 5`);
    await foundAndFixed('orphaned_flow');
    expect(await core.task(id)).toMatchObject({ status: 'cancelled' });
  });

  it('a flow that waits for something other than a task is no finding', async () => {
    await finished();
    await change(sql`update flow set status = 'waiting', wait_target = 'time', ended_at = null`);
    expect(await codes()).toEqual([]);
  });
});

it('stuck_effect: of a run that is over is a person’s to decide; of one that is at it, none', async () => {
  const id = await core.create();
  const grant = await core.run();
  await change(sql`
    insert into effect (id, type, key, state, policy, first_task_id, first_run_id, task_id, run_id, created_at, updated_at)
    values (900001, 'pay', 'k', 'init', 'ask', ${id}, ${grant.runId}, ${id}, ${grant.runId}, ${START}, ${START})`);
  core.clock.advance(10 * MINUTE);
  await change(sql`update run set lease_until = ${core.clock.now() + LEASE_MS}`);
  expect(await codes()).toEqual([]);
  await core.tell(grant, { type: 'succeeded', summary: 'ok' });
  await foundAndLeft('stuck_effect');
});

describe('stuck_outbox', () => {
  it('a message whose sender fell silent is taken from it, once', async () => {
    await message('sending');
    core.clock.advance(10 * MINUTE);
    expect(await foundAndFixed('stuck_outbox')).toMatch(/sent once more/);
    const [row] = await core.store.fetch(core.store.dialect.build.selectFrom('outbox').selectAll());
    expect(row).toMatchObject({ status: 'pending', maybe_repeat: 1 });
  });

  it('a message that should have gone wakes the delivery', async () => {
    await message('pending');
    core.clock.advance(10 * MINUTE);
    deliver = () => void change(sql`update outbox set status = 'sent', sent_at = 1`);
    await foundAndFixed('stuck_outbox');
  });

  it('one whose channel is gone is left to a person; one in a chat that is held is no finding', async () => {
    await message('pending');
    await change(sql`update outbox set channel = 'wecom'`);
    core.clock.advance(10 * MINUTE);
    await foundAndLeft('stuck_outbox');
    await change(
      sql`insert into chat_hold (channel, account, chat, unreachable_since) values ('wecom', 'default', '7', 1)`,
    );
    expect(await codes()).toEqual([]);
  });

  it('only the first of a chat counts: the others wait for it', async () => {
    for (let n = 0; n < 3; n += 1) {
      await core.store.transact('test.message', (tx) =>
        outbox.enqueue(tx, [{ route: ROUTE, kind: 'final', text: `${n}` }]),
      );
    }
    core.clock.advance(10 * MINUTE);
    expect(await codes()).toEqual([['stuck_outbox', 'wake_delivery']]);
  });
});

it('every fault at once: all that can be fixed is, what fails alone is left, and the codes are all known', async () => {
  const ids = await Promise.all([finished(), finished(), finished()]);
  await change(sql`update task set cleanup_after = null where id = ${ids[0]}`);
  await change(sql`update task set started_at = created_at - 1 where id = ${ids[1]}`);
  await change(
    sql`update flow set status = 'active', ended_at = null where id = (select flow_id from task where id = ${ids[2]})`,
  );
  await message('dead', { taskId: ids[0]! });
  const lost = await core.create();
  await change(
    sql`update task set status = 'lost', ended_at = ${START}, cleanup_after = ${START + WEEK} where id = ${lost}`,
  );
  const found = (await audit.find()).findings.map((finding) => finding.code);
  expect(found.sort()).toEqual(['delivery_failed', 'inconsistent_times', 'lost', 'missing_cleanup', 'orphaned_flow']);
  const { fixed, left } = await audit.fix('test');
  expect([fixed.length, left.map((finding) => finding.code)]).toEqual([4, ['lost']]);
  expect(found.every((code) => (FINDING_CODES as readonly string[]).includes(code))).toBe(true);
});

it('a fix that fails changes nothing and keeps nobody else from being fixed', async () => {
  const id = await finished();
  await change(sql`update task set cleanup_after = null, started_at = created_at - 1 where id = ${id}`);
  core.store.onBeforeCommit(async (tx) => {
    const [row] = await tx.fetch(sql<{ n: number }>`select count(*) as n from task where cleanup_after is not null`);
    if (row!.n > 0) throw new Error('not this one');
  });
  const { fixed, left } = await audit.fix('test');
  expect(fixed.map((finding) => finding.code)).toEqual(['inconsistent_times']);
  expect(left.map((finding) => finding.code)).toEqual(['missing_cleanup']);
  expect(await core.store.fetch(core.store.dialect.build.selectFrom('audit').select('target'))).toHaveLength(1);
});

it('walks tables of any size in bounded steps, and says where there is more than it lists', async () => {
  await core.createAll(Array.from({ length: 1_500 }, () => newTask({ pool: 'nobody' })));
  await change(sql`update task set started_at = created_at - 1`);
  const report = await audit.find();
  expect([report.findings.length, report.more]).toEqual([1_000, true]);
  const after = await audit.fix('test');
  expect([after.fixed.length, after.left.length]).toEqual([1_000, 500]);
  expect((await audit.fix('test')).left).toEqual([]);
});
