import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/log.ts';
import { Controls, type GateOrder, listGates } from '../../src/tasks/controls.ts';
import { type PlaceAnswer, pauseTasksVerb, resumeTasksVerb, setPriorityVerb } from '../../src/tasks/controls-tasks.ts';
import type { GateKind } from '../../src/tasks/gate-settings.ts';
import type { Priority } from '../../src/tasks/states.ts';
import { sweep } from '../../src/tasks/sweep.ts';
import { Core, GRACE_MS, newTask, SESSION, START } from '../support/core.ts';
import { until } from '../support/until.ts';

let core: Core;
let controls: Controls;
/** How often waiting agents were told to look again. */
let freed: number;
beforeEach(async () => {
  core = await Core.open();
  open();
});
afterEach(() => core.close());

function open(): void {
  freed = 0;
  controls = new Controls({
    line: core.line,
    log: silentLog,
    onFreed: () => {
      freed += 1;
      void core.store.transact('test.freed', (tx) => core.dispatch.serveDue(tx));
    },
  });
}

const order = (kind: GateKind, name: string, more: Partial<GateOrder> = {}) =>
  core.store.transact('test.gate', (tx) => controls.change(tx, { kind, name, by: 'test', why: null, ...more }));
const audit = async () => {
  const rows = await core.store.fetch(
    core.store.dialect.build.selectFrom('audit').select(['actor', 'action', 'target', 'data']).orderBy('id'),
  );
  return rows.map((row) => ({ ...row, data: JSON.parse(row.data!) as unknown }));
};

describe('a pause', () => {
  it.each([
    ['template', 't'],
    ['pool', 'default'],
    ['lane', 'main'],
    ['owner', SESSION],
    ['gateway', '*'],
  ] as const)(
    'of a %s holds its tasks back, and lets them go in their order when it is over; others go on',
    async (kind, name) => {
      const first = await core.ask();
      const second = await core.ask();
      await order(kind, name, { paused: true });
      expect(await core.claimAll('a1', { max: 9 })).toEqual([]);
      const third = await core.ask();
      expect(await core.claimAll('a1', { max: 9 })).toEqual([]);
      const other = await core.create({ template: 'u', pool: 'other', lane: 'own', sessionKey: 'other' });
      const free = await core.claimAll('a1', { queues: ['other/shell'], max: 9 });
      expect(free.map(({ taskId }) => taskId)).toEqual(kind === 'gateway' ? [] : [other]);
      await order(kind, name, { paused: false });
      expect((await core.claimAll('a1', { max: 9 })).map(({ taskId }) => taskId)).toEqual([first, second, third]);
    },
  );

  it('lets what runs go on to its end, and only then holds the next', async () => {
    const id = await core.create();
    await core.create();
    const grant = await core.run();
    await order('template', 't', { paused: true });
    expect(await core.tell(grant, { type: 'succeeded', summary: 'ok' })).toMatchObject({ result: 'accepted' });
    expect((await core.task(id)).status).toBe('succeeded');
    expect(await core.claimAll('a1')).toEqual([]);
  });

  it('keeps a task back that is tried again', async () => {
    await core.create();
    await order('template', 't', { paused: false });
    const grant = await core.run();
    await order('template', 't', { paused: true });
    await core.tell(grant, { type: 'released' });
    expect(await core.claimAll('a1')).toEqual([]);
  });

  it('survives a restart, with who set it, when and why', async () => {
    await core.create();
    await order('pool', 'default', { paused: true, why: 'the shop is closed' });
    await order('gateway', '*', { paused: true });
    core = await core.reopen();
    open();
    expect(controls.drain).toBeNull();
    await controls.load(core.store);
    expect(controls.drain).toEqual({ at: START, by: 'test', why: null });
    expect(await core.claimAll('a1')).toEqual([]);
    expect(await listGates(core.store)).toEqual([
      { kind: 'gateway', name: '*', concurrency: null, pause: { at: START, by: 'test', why: null } },
      { kind: 'pool', name: 'default', concurrency: null, pause: { at: START, by: 'test', why: 'the shop is closed' } },
    ]);
  });

  it('gives waiting agents their tasks at once when it is over', async () => {
    const agent = core.agent();
    await agent.register();
    await order('template', 't', { paused: true });
    const id = await core.create();
    const pull = agent.pull(1, { waitMs: 600_000 });
    await until(() => core.dispatch.waiting === 1);
    await order('template', 't', { paused: false });
    expect((await pull).tasks).toMatchObject([{ taskId: core.store.ids.encode(id) }]);
  });
});

describe('every change', () => {
  it('is an audit entry with who and why; a repeated order writes nothing and frees nobody', async () => {
    await order('lane', 'cron', { concurrency: 2, paused: true, why: 'night' });
    await order('lane', 'cron', { concurrency: 2, paused: true });
    await order('lane', 'cron', { paused: true, why: 'night' });
    core.clock.advance(5_000);
    await order('lane', 'cron', { concurrency: null });
    await order('lane', 'cron', { paused: false, why: 'morning' });
    await order('lane', 'cron', { paused: false });
    await order('gateway', '*', { paused: true });
    await order('gateway', '*', { paused: false });
    const lane = { actor: 'test', target: 'lane/cron' };
    expect(await audit()).toEqual([
      { ...lane, action: 'gate.paused', data: { why: 'night' } },
      { ...lane, action: 'gate.limited', data: { from: null, to: 2, why: 'night' } },
      { ...lane, action: 'gate.limited', data: { from: 2, to: null } },
      { ...lane, action: 'gate.resumed', data: { pausedAt: START, pausedBy: 'test', why: 'morning' } },
      { actor: 'test', action: 'gateway.draining', target: 'gateway', data: {} },
      {
        actor: 'test',
        action: 'gateway.reopened',
        target: 'gateway',
        data: { pausedAt: START + 5_000, pausedBy: 'test' },
      },
    ]);
    expect(freed).toBe(4);
    // Nothing is left of what is neither limited nor paused.
    expect(await listGates(core.store)).toEqual([]);
  });

  it('with another reason keeps the time and says the new reason', async () => {
    await order('pool', 'p', { paused: true, why: 'a' });
    core.clock.advance(1_000);
    expect(await order('pool', 'p', { paused: true, why: 'b' })).toMatchObject({ pause: { at: START, why: 'b' } });
    expect(await audit()).toHaveLength(2);
  });

  it('that is rolled back changes neither the rows nor what claims go by', async () => {
    const id = await core.create();
    const failed = core.store.transact('test.gate', async (tx) => {
      await controls.change(tx, { kind: 'gateway', name: '*', paused: true, by: 'test', why: null });
      throw new Error('lost');
    });
    await expect(failed).rejects.toThrow('lost');
    expect([controls.drain, await audit()]).toEqual([null, []]);
    expect((await core.claim()).taskId).toBe(id);
  });
});

describe('one task', () => {
  const verbs = () => ({
    pause: pauseTasksVerb(core.emit),
    resume: resumeTasksVerb(core.emit),
    priority: setPriorityVerb(core.emit),
  });
  const pause = async (id: number, why?: string): Promise<PlaceAnswer> =>
    (await core.store.write(verbs().pause, [{ id, by: 'test', ...(why === undefined ? {} : { why }) }]))[0]!;
  const resume = async (id: number): Promise<PlaceAnswer> =>
    (await core.store.write(verbs().resume, [{ id, by: 'test' }]))[0]!;
  const setPriority = async (id: number, priority: Priority): Promise<PlaceAnswer> =>
    (await core.store.write(verbs().priority, [{ id, by: 'test', priority }]))[0]!;

  it('is set aside and goes on in its old place', async () => {
    const first = await core.create();
    const second = await core.create();
    expect(await pause(first, 'wait')).toEqual({ result: 'changed' });
    expect(await core.task(first)).toMatchObject({ status: 'paused', run_at: START, ended_at: null });
    core.clock.advance(1_000);
    expect(await resume(first)).toEqual({ result: 'changed' });
    expect((await core.claimAll('a1', { max: 9 })).map(({ taskId }) => taskId)).toEqual([first, second]);
    expect((await core.history(first)).map(({ type, data }) => [type, JSON.parse(data!)])).toEqual([
      ['paused', { by: 'test' }],
      ['resumed', { by: 'test' }],
    ]);
    expect(await audit()).toEqual([
      { actor: 'test', action: 'task.paused', target: `task#${first}`, data: { why: 'wait' } },
      { actor: 'test', action: 'task.resumed', target: `task#${first}`, data: {} },
    ]);
  });

  it('keeps what is known of it: why it was queued again, what its last try said', async () => {
    const id = await core.create();
    await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'refused' });
    const before = await core.task(id);
    await pause(id);
    await resume(id);
    expect(await core.task(id)).toEqual(before);
  });

  it('is not taken while it is paused, is given to a waiting agent when it goes on, and tells its flow and person', async () => {
    const agent = core.agent();
    await agent.register();
    const id = await core.ask({ notifyPolicy: 'state_changes', runAt: START + 1_000 });
    await pause(id);
    core.clock.advance(5_000);
    const pull = agent.pull(1, { waitMs: 600_000 });
    await until(() => core.dispatch.waiting === 1);
    await resume(id);
    expect((await pull).tasks).toMatchObject([{ taskId: core.store.ids.encode(id) }]);
    const changes = core.events.filter((event) => event.type === 'task.state').map(({ from, to }) => [from, to]);
    expect(changes).toEqual([
      ['queued', 'paused'],
      ['paused', 'queued'],
    ]);
    expect((await core.flowOf(id)).status).toBe('active');
  });

  it('does not grow old while it is paused', async () => {
    const id = await core.create({ ttlMs: 10_000 });
    core.clock.advance(4_000);
    await pause(id);
    core.clock.advance(3_600_000);
    expect((await core.sweep()).expired).toBe(0);
    await resume(id);
    core.clock.advance(5_999);
    expect((await core.sweep()).expired).toBe(0);
    core.clock.advance(1);
    expect((await core.sweep()).expired).toBe(1);
    expect(await core.task(id)).toMatchObject({ status: 'failed', reason: 'expired' });
  });

  it('is cancelled while it is paused, once', async () => {
    const id = await core.ask();
    await pause(id);
    expect(await core.cancel(id)).toEqual({ result: 'cancelled' });
    expect(core.endings(id)).toHaveLength(1);
    expect(await resume(id)).toEqual({ result: 'refused', status: 'cancelled' });
  });

  it('answers a repeated call as the first, in one turn and later, and writes it down once', async () => {
    const id = await core.create();
    expect(await Promise.all([pause(id), pause(id)])).toEqual([{ result: 'changed' }, { result: 'unchanged' }]);
    expect(await pause(id)).toEqual({ result: 'unchanged' });
    expect(await Promise.all([resume(id), resume(id)])).toEqual([{ result: 'changed' }, { result: 'unchanged' }]);
    expect(await Promise.all([setPriority(id, 'high'), setPriority(id, 'low')])).toEqual([
      { result: 'changed' },
      { result: 'changed' },
    ]);
    expect((await core.task(id)).priority).toBe(2);
    expect((await audit()).map(({ action }) => action)).toEqual([
      'task.paused',
      'task.resumed',
      'task.priority',
      'task.priority',
    ]);
    expect(await pause(987_654)).toEqual({ result: 'unknown' });
  });

  it('is refused by the table of states in every other state, and nothing changes', async () => {
    const waiting = await core.create();
    await core.tell(await core.run(), { type: 'blocked', summary: 'help' });
    const over = await core.create();
    await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
    const running = await core.create();
    await core.run();
    const leased = await core.create();
    await core.claim();
    for (const [id, status] of [
      [waiting, 'waiting'],
      [over, 'succeeded'],
      [running, 'running'],
      [leased, 'leased'],
    ] as const) {
      const before = await core.task(id);
      expect([await pause(id), await resume(id)]).toEqual([
        { result: 'refused', status },
        { result: 'refused', status },
      ]);
      if (status !== 'waiting') expect(await setPriority(id, 'high')).toEqual({ result: 'refused', status });
      expect(await core.task(id)).toEqual(before);
    }
    expect(await setPriority(waiting, 'high')).toEqual({ result: 'changed' });
    expect(await audit()).toHaveLength(1);
  });

  it('that is raised is next, one that is lowered last, and a waiting agent gets neither twice', async () => {
    const ids = (await core.createAll(Array.from({ length: 4 }, () => newTask()))).map(({ id }) => id);
    await setPriority(ids[2]!, 'high');
    await setPriority(ids[0]!, 'low');
    const taken = (await core.claimAll('a1', { max: 9 })).map(({ taskId }) => taskId);
    expect(taken).toEqual([ids[2], ids[1], ids[3], ids[0]]);
    expect(await audit()).toMatchObject([
      { action: 'task.priority', data: { from: 'normal', to: 'high' } },
      { action: 'task.priority', data: { from: 'normal', to: 'low' } },
    ]);
  });

  it('keeps its new priority when it is tried again', async () => {
    const id = await core.create();
    await setPriority(id, 'low');
    await core.tell(await core.run(), { type: 'released' });
    expect(await core.task(id)).toMatchObject({ status: 'queued', priority: 2 });
  });
});

describe('a task whose time to live ends while it is held back', () => {
  const swept = () =>
    core.store.transact('test.sweep', (tx) =>
      sweep(tx, { cancelGraceMs: GRACE_MS, agentsSpeakSince: 0, line: core.line }, core.emit),
    );

  const HOLDS: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
    ['a pause', () => order('template', 't', { paused: true, why: 'inventory' }), /was over: .*inventory/],
    ['a drain', () => order('gateway', '*', { paused: true }), /was over: .*new/],
    ['a limit', () => order('pool', 'default', { concurrency: 0 }), /was over: .*pool default/i],
    ['a full lane', () => order('lane', 'main', { concurrency: 1 }), /was over: .*lane main/i],
    ['nothing', async () => undefined, /was over$/],
  ];

  it.each(HOLDS)('by %s is failed as expired, and its error says so', async (_why, hold, error) => {
    await core.create({ timeoutMs: 1e9 });
    await core.claimAll('a1', { leaseMs: 1e9 });
    const id = await core.ask({ ttlMs: 1_000 });
    await hold();
    core.clock.advance(1_000);
    expect((await swept()).expired).toBe(1);
    expect(await core.task(id)).toMatchObject({
      status: 'failed',
      reason: 'expired',
      error: expect.stringMatching(error),
    });
  });
});

it('what holds a stream back is told from the rows, and telling it writes nothing', async () => {
  await core.create({ lane: 'cron', serialKey: 'k' });
  await core.create({ lane: 'cron', serialKey: 'k' });
  await core.claim();
  await order('lane', 'cron', { paused: true });
  await order('owner', '*', { concurrency: 0 });
  const rows = () => core.store.fetch(sql<{ n: number }>`select count(*) as n from slot`);
  const before = await rows();
  const streams = await core.store.fetch(core.store.dialect.build.selectFrom('stream').selectAll());
  const facts = { all: core.store.all.bind(core.store), now: core.clock.now() };
  const holds = await core.line.holdsOf(facts, streams);
  expect(holds.get(streams[0]!)).toEqual([
    { type: 'paused', kind: 'lane', name: 'cron', reason: null },
    { type: 'full', kind: 'owner', name: 'serial:t:k', limit: 0 },
    { type: 'full', kind: 'lane', name: 'cron', limit: 1 },
    { type: 'full', kind: 'serial', name: 't:k', limit: 1 },
  ]);
  expect(await rows()).toEqual(before);
});
