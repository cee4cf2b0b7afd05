import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import type { HotQuery } from '../../src/store/dialect.ts';
import type { Tx } from '../../src/store/tx.ts';
import { failBehindBreakers, sweepBreakers, watchBreakers } from '../../src/tasks/breaker-watch.ts';
import { BreakerCore } from '../support/breakers.ts';
import { LEASE_MS, START } from '../support/core.ts';

let psb: BreakerCore;
beforeEach(async () => {
  psb = await BreakerCore.open();
});
afterEach(() => psb.core.close());

const COOLDOWN_MS = 30_000;
const transient = { type: 'failed', errorClass: 'transient', error: 'refused' } as const;
const notFound = { type: 'failed', errorClass: 'permanent', error: 'HTTP 404' } as const;
const success = { type: 'succeeded', summary: 'ok' } as const;

describe('a breaker', () => {
  it('opens when too many runs fail, keeps their tasks queued, and tells the audit and the log', async () => {
    const ids = [await psb.create(), await psb.create(), await psb.create(), await psb.create()];
    for (const grant of await psb.claimAll('a1', { max: 3 })) await psb.core.tell(grant, transient);
    expect(await psb.state()).toBe('open');
    psb.core.clock.advance(20_000);
    expect(await psb.claimAll()).toEqual([]);
    for (const id of ids) expect((await psb.core.task(id)).status).toBe('queued');
    expect(await psb.audit()).toEqual([
      {
        actor: 'gateway',
        action: 'breaker.opened',
        target: 'psb',
        data: { from: 'closed', reason: 'failure_rate', untilAt: START + COOLDOWN_MS, calls: 3, failures: 3 },
      },
    ]);
    expect(psb.lines).toMatchObject([{ msg: 'breaker.opened', breaker: 'psb', reason: 'failure_rate' }]);
  });

  it('is shared: successes and failures of all templates that name it count together', async () => {
    for (const template of ['psb', 'psb-quick', 'psb', 'psb-quick']) await psb.create(template);
    const grants = await psb.claimAll('a1', { max: 4 });
    await psb.core.tell(grants[0]!, success);
    await psb.core.tell(grants[1]!, success);
    await psb.core.tell(grants[2]!, { type: 'timed_out' });
    expect(await psb.view()).toMatchObject({ state: 'closed', calls: 3, failures: 1 });
    await psb.core.tell(grants[3]!, transient);
    expect(await psb.state()).toBe('open');
  });

  it('counts neither permanent errors, rate limits, questions, hand-backs, lost agents nor cancels', async () => {
    const news = [
      notFound,
      { type: 'failed', errorClass: 'rate_limited', error: 'slow down' },
      { type: 'needs_input', prompt: 'which room?' },
      { type: 'blocked', summary: 'log in first' },
      { type: 'released' },
    ] as const;
    for (const end of news) {
      const id = await psb.create();
      await psb.core.tell(await psb.run(), end);
      await psb.core.cancel(id);
    }
    const cancelled = await psb.create();
    const grant = await psb.run();
    await psb.core.cancel(cancelled);
    await psb.core.tell(grant, transient);
    await psb.create();
    await psb.run();
    psb.core.clock.advance(LEASE_MS);
    expect(await psb.core.sweep()).toMatchObject({ lost: 1 });
    expect(await psb.view()).toMatchObject({ state: 'closed', calls: 0, failures: 0 });
  });

  it('counts each end once: repeated and late reports say nothing', async () => {
    await psb.create();
    const grant = await psb.run();
    for (let n = 0; n < 3; n += 1) await psb.core.tell(grant, transient, { seq: 7 });
    for (let n = 0; n < 3; n += 1) await psb.core.tell(grant, transient);
    expect(await psb.view()).toMatchObject({ calls: 1, failures: 1 });
  });

  it('counts both ends of a task that ends twice within a millisecond', async () => {
    const id = await psb.core.create({
      template: 'psb',
      pool: 'psb',
      retry: { max: 9, baseMs: 0, factor: 1, capMs: 0, jitter: 0 },
    });
    await psb.core.tell(await psb.run(), transient);
    await psb.core.tell(await psb.run(), success);
    expect((await psb.core.task(id)).status).toBe('succeeded');
    expect(await psb.view()).toMatchObject({ calls: 2, failures: 1 });
  });

  it('hears of the end of a run whose task is claimed again in the same transaction', async () => {
    await psb.core.create({
      template: 'psb',
      pool: 'psb',
      retry: { max: 9, baseMs: 0, factor: 1, capMs: 0, jitter: 0 },
    });
    const grant = await psb.run();
    const report = { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq: 3, news: transient };
    const claim = psb.core.claimOf('a1', { queues: ['psb/shell'] });
    const [outcomes, grants] = await Promise.all([
      psb.core.store.write(psb.core.verbs.report, [report]),
      psb.core.store.write(psb.core.line.claim, [claim]),
    ]);
    expect([outcomes[0]!.result, grants[0]!.length]).toEqual(['accepted', 1]);
    expect(await psb.view()).toMatchObject({ calls: 1, failures: 1 });
  });
});

test('tasks behind an open breaker use up no attempt, keep their order, and are looked at again when it may be tried', async () => {
  await psb.trip();
  const ids = [await psb.create(), await psb.create(), await psb.create()];
  for (let n = 0; n < 5; n += 1) {
    expect(await psb.claimAll('a1', { max: 3 })).toEqual([]);
    psb.core.clock.advance(5_000);
  }
  for (const id of ids) {
    expect(await psb.core.task(id)).toMatchObject({ status: 'queued', attempt: 0, run_id: null });
    expect(await psb.core.runs(id)).toEqual([]);
  }
  const admission = await psb.core.store.transact('test', (tx) => psb.breakers.admit(tx, ['psb', 'unheard of']));
  expect(Object.fromEntries(admission)).toEqual({
    psb: { state: 'open', untilAt: START + COOLDOWN_MS, reason: 'failure_rate' },
    'unheard of': { state: 'closed' },
  });
  psb.core.clock.set(START + COOLDOWN_MS);
  const probe = await psb.claimAll('a1', { max: 3 });
  expect(probe.map(({ taskId }) => taskId)).toEqual([ids[0]]);
  expect(await psb.claimAll('a2', { max: 3 })).toEqual([]);
  await psb.core.tell(probe[0]!, success);
  expect((await psb.claimAll('a2', { max: 3 })).map(({ taskId }) => taskId)).toEqual(ids.slice(1));
});

describe('A69: the probe of a half-open breaker', () => {
  let id: number;
  beforeEach(async () => {
    await psb.trip();
    psb.core.clock.advance(COOLDOWN_MS);
    id = await psb.create();
    await psb.create();
  });

  it('closes it with a success, and the agents that wait look again', async () => {
    await psb.core.tell(await psb.run(), success);
    expect([await psb.state(), psb.freed]).toEqual(['closed', 1]);
    expect((await psb.audit()).map(({ action }) => action)).toEqual([
      'breaker.opened',
      'breaker.half_open',
      'breaker.closed',
    ]);
    expect(psb.lines.map(({ msg }) => msg)).toEqual(['breaker.opened', 'breaker.half_open', 'breaker.closed']);
  });

  it('closes it with a 404: the service is up', async () => {
    await psb.core.tell(await psb.run(), notFound);
    expect((await psb.core.task(id)).status).toBe('failed');
    expect(await psb.state()).toBe('closed');
    expect(await psb.claimAll()).toHaveLength(1);
  });

  it('opens it again with a failure, and the next probe is due after one more cooldown', async () => {
    await psb.core.tell(await psb.run(), transient);
    expect(await psb.view()).toMatchObject({
      state: 'open',
      breaker: { reason: 'probe_failed', lastError: 'refused' },
    });
    psb.core.clock.advance(COOLDOWN_MS - 1);
    expect(await psb.claimAll()).toEqual([]);
    psb.core.clock.advance(1);
    expect(await psb.claimAll()).toHaveLength(1);
  });

  it('is not followed by another one in the very transaction in which it fails', async () => {
    const { runId, leaseToken } = await psb.run();
    const report = { agentId: 'a1', runId, leaseToken, seq: 3, news: transient };
    const [outcomes, grants] = await Promise.all([
      psb.core.store.write(psb.core.verbs.report, [report]),
      psb.claimAll('a1'),
    ]);
    expect([outcomes[0]!.result, grants]).toEqual(['accepted', []]);
    expect(await psb.state()).toBe('open');
  });

  it('opens it again with a rate limit, so that nobody asks at once', async () => {
    await psb.core.tell(await psb.run(), { type: 'failed', errorClass: 'rate_limited', error: 'HTTP 429' });
    expect(await psb.view()).toMatchObject({ state: 'open', breaker: { reason: 'probe_rate_limited' } });
    expect(await psb.claimAll()).toEqual([]);
  });

  it('loses its place when it hangs, and its late success still counts', async () => {
    const hanging = await psb.run();
    expect(await psb.claimAll('a2')).toEqual([]);
    psb.core.clock.advance(60_000);
    const second = await psb.run('a2');
    expect(await psb.view()).toMatchObject({ state: 'half_open', breaker: { probeRun: second.runId } });
    await psb.core.tell(hanging, success);
    expect(await psb.state()).toBe('closed');
  });

  it('leaves its place when its task is cancelled', async () => {
    const grant = await psb.run();
    await psb.core.cancel(id);
    expect(await psb.claimAll('a2')).toEqual([]);
    await psb.core.tell(grant, { type: 'cancelled' });
    expect([await psb.state(), psb.freed]).toEqual(['half_open', 1]);
    expect(await psb.claimAll('a2')).toHaveLength(1);
  });

  it('leaves its place when its agent dies, when it is handed back, and when it asks a person', async () => {
    await psb.run();
    psb.core.clock.advance(LEASE_MS);
    expect(await psb.core.sweep()).toMatchObject({ lost: 1 });
    for (const end of [{ type: 'released' }, { type: 'needs_input', prompt: '?' }] as const)
      await psb.core.tell(await psb.run(), end);
    expect(await psb.state()).toBe('half_open');
    await psb.core.tell(await psb.run(), success);
    expect(await psb.state()).toBe('closed');
  });

  it('is still the probe after a restart, and the breaker is not wedged', async () => {
    const grant = await psb.run();
    psb = await psb.reopen();
    expect([await psb.state(), await psb.claimAll('a2')]).toEqual(['half_open', []]);
    psb = await psb.reopen();
    psb.core.clock.advance(60_000);
    const second = await psb.run('a2');
    await psb.core.tell(second, success, { agentId: 'a2' });
    expect(await psb.state()).toBe('closed');
    expect(await psb.core.tell(grant, success)).toEqual({ result: 'accepted' });
  });

  it('leaves its place also where nobody told the breaker of its end', async () => {
    const grant = await psb.run();
    await psb.core.store.transact('test.end', (tx) =>
      tx.exec(tx.dialect.build.updateTable('run').set({ ended_at: tx.now }).where('id', '=', grant.runId)),
    );
    expect(await psb.claimAll('a2')).toEqual([]);
    psb.core.clock.advance(1);
    expect(await psb.claimAll('a2')).toHaveLength(1);
  });

  it('is one, whoever claims at the same time', async () => {
    const grants = await Promise.all(['a1', 'a2', 'a3', 'a4'].map((agentId) => psb.claimAll(agentId)));
    expect(grants.flat()).toHaveLength(1);
    const taken = await psb.core.store.transact('test', (tx) =>
      psb.breakers.takeProbes(tx, [
        { name: 'psb', runId: 991 },
        { name: 'unheard of', runId: 992 },
      ]),
    );
    expect(taken).toEqual([false, false]);
  });

  it('is the first of those that ask in one call', async () => {
    const taken = await psb.core.store.transact('test', (tx) =>
      psb.breakers.takeProbes(tx, [
        { name: 'psb', runId: 991 },
        { name: 'psb', runId: 992 },
      ]),
    );
    expect(taken).toEqual([true, false]);
    expect((await psb.view()).breaker.probeRun).toBe(991);
  });
});

describe('onOpen: fail', () => {
  it('fails a task at once that is queued behind the open breaker, with no attempt used up', async () => {
    await psb.trip();
    const quick = await psb.create('psb-quick');
    const patient = await psb.create('psb');
    expect(await psb.core.task(quick)).toMatchObject({
      status: 'failed',
      reason: 'breaker_open',
      attempt: 0,
      error: 'the breaker psb is open: the service behind it has failed too often',
    });
    expect(psb.core.endings(quick)).toHaveLength(1);
    expect(await psb.core.history(quick)).toMatchObject([
      { type: 'breaker_open', data: JSON.stringify({ breaker: 'psb', untilAt: START + COOLDOWN_MS }) },
    ]);
    expect((await psb.core.task(patient)).status).toBe('queued');
  });

  it('lets it wait while the breaker is closed or a probe is under way', async () => {
    const before = await psb.create('psb-quick');
    expect((await psb.core.task(before)).status).toBe('queued');
    await psb.core.cancel(before);
    await psb.trip();
    psb.core.clock.advance(COOLDOWN_MS);
    await psb.create();
    await psb.run();
    const id = await psb.create('psb-quick');
    expect((await psb.core.task(id)).status).toBe('queued');
  });

  it('fails those that were queued before it opened in the transaction in which it opens', async () => {
    const id = await psb.core.create({ template: 'psb-quick', priority: 'low' });
    const delayed = await psb.core.create({ template: 'psb-quick', runAt: START + 10_000 });
    const plain = await psb.core.create({ template: 'plain' });
    await psb.trip();
    expect(await psb.core.task(id)).toMatchObject({ status: 'failed', reason: 'breaker_open' });
    expect((await psb.core.task(delayed)).status).toBe('queued');
    psb.core.clock.advance(10_000);
    const sweep = () => psb.core.store.transact('test', (tx) => sweepBreakers(tx, psb.breakers, psb.core.emit));
    expect([await sweep(), await sweep()]).toEqual([1, 0]);
    expect(await psb.core.task(delayed)).toMatchObject({ status: 'failed', reason: 'breaker_open' });
    expect((await psb.core.task(plain)).status).toBe('queued');
  });

  it('fails a task whose own last failure opened it, when it would be tried again', async () => {
    await psb.create();
    await psb.create();
    const id = await psb.create('psb-quick');
    for (const grant of await psb.claimAll('a1', { max: 3 })) await psb.core.tell(grant, transient);
    expect(await psb.core.task(id)).toMatchObject({ status: 'queued', attempt: 1 });
    psb.core.clock.advance(2_000);
    await psb.core.store.transact('test', (tx) => sweepBreakers(tx, psb.breakers, psb.core.emit));
    expect(await psb.core.task(id)).toMatchObject({ status: 'failed', reason: 'breaker_open', attempt: 1 });
  });

  it('is answered the same way when a person retries it too early, and runs when it is retried later', async () => {
    await psb.trip();
    const id = await psb.create('psb-quick');
    await psb.core.retry(id);
    expect(await psb.core.task(id)).toMatchObject({ status: 'failed', generation: 2 });
    psb.core.clock.advance(COOLDOWN_MS);
    await psb.core.retry(id);
    expect(await psb.core.task(id)).toMatchObject({ status: 'queued', generation: 3 });
    expect(psb.core.endings(id)).toHaveLength(2);
  });

  it('does not touch tasks that an agent holds or that have no such breaker', async () => {
    const held = await psb.create('psb-quick');
    await psb.run();
    await psb.trip();
    const tasks = [
      { id: held, template: 'psb-quick' },
      { id: await psb.create('psb'), template: 'psb' },
      { id: await psb.core.create({ template: 'plain' }), template: 'plain' },
      { id: 987_654, template: 'psb-quick' },
    ];
    const count = await psb.core.store.transact('test', (tx) =>
      failBehindBreakers(tx, tasks, psb.breakers, psb.core.emit),
    );
    expect(count).toBe(0);
    expect((await psb.core.task(held)).status).toBe('running');
  });
});

describe('by hand', () => {
  const order = { name: 'psb', by: 'test', why: 'maintenance' };
  const open = (forMs: number) => psb.core.store.transact('test', (tx) => psb.breakers.open(tx, order, forMs));
  const reset = (name = 'psb') =>
    psb.core.store.transact('test', (tx) => psb.breakers.reset(tx, { name, by: 'test', why: null }));

  it('it is opened for a time, whatever runs that began before say, and a probe follows', async () => {
    await psb.create();
    await psb.create();
    const grant = await psb.run();
    expect(await open(7_200_000)).toBe(true);
    await psb.core.tell(grant, success);
    expect(await psb.view()).toMatchObject({
      state: 'open',
      breaker: { reason: 'operator', untilAt: START + 7_200_000 },
    });
    expect(await psb.claimAll()).toEqual([]);
    psb.core.clock.advance(7_200_000);
    expect(await psb.claimAll()).toHaveLength(1);
    expect((await psb.audit())[0]).toEqual({
      actor: 'test',
      action: 'breaker.opened',
      target: 'psb',
      data: { untilAt: START + 7_200_000, why: 'maintenance' },
    });
  });

  it('it is closed with nothing counted, and the agents that wait look again', async () => {
    await psb.trip();
    expect([await reset(), psb.freed]).toEqual([true, 1]);
    expect(await psb.view()).toMatchObject({ state: 'closed', calls: 0, failures: 0 });
    expect((await psb.audit()).at(-1)).toEqual({ actor: 'test', action: 'breaker.reset', target: 'psb', data: {} });
    await psb.create();
    expect(await psb.claimAll()).toHaveLength(1);
  });

  it('one that nobody has heard of stays unheard of', async () => {
    expect(await reset('other')).toBe(false);
    expect(await psb.audit()).toEqual([]);
    expect(await psb.core.store.fetch(psb.core.store.dialect.build.selectFrom('breaker').selectAll())).toEqual([]);
  });
});

describe('the verbs', () => {
  /** Counts statements, and lets another writer in before the first save. */
  function watched(tx: Tx, calls: string[], before: () => Promise<unknown> = async () => undefined): Tx {
    let isFirst = true;
    const all = async <P extends Record<string, unknown>, R>(query: HotQuery<P, R>, params: P): Promise<R[]> => {
      calls.push(query.name);
      if (query.name === 'breaker.save' && isFirst) {
        isFirst = false;
        await before();
      }
      return tx.all(query, params);
    };
    return {
      ...{ now: tx.now, retentionMs: tx.retentionMs, dialect: tx.dialect, all },
      run: (query, params) => tx.run(query, params),
      fetch: (query) => tx.fetch(query),
      exec: (query) => tx.exec(query),
      ids: (count) => tx.ids(count),
      afterCommit: (action) => tx.afterCommit(action),
    };
  }

  it('ask the database nothing about templates without a breaker', async () => {
    const calls: string[] = [];
    const ref = { id: 1, template: 'plain', label: null, flowId: null, sessionKey: null, generation: 1 } as const;
    const events = [
      { type: 'task.queued', streamId: 1, priority: 1, runAt: 0, notifyPolicy: 'silent', ...ref },
      { type: 'task.state', from: 'running', to: 'succeeded', reason: null, notifyPolicy: 'silent', ...ref },
    ] as const;
    const watch = watchBreakers(psb.breakers, psb.core.emit);
    await psb.core.store.transact('test', (tx) => watch(watched(tx, calls), events));
    expect(calls).toEqual([]);
    const mine = events.map((event) => ({ ...event, template: 'psb' }));
    await psb.core.store.transact('test', (tx) => watch(watched(tx, calls), mine));
    expect(calls).toEqual(['breaker.ended_runs']);
  });

  it('count on top of what another replica has written meanwhile', async () => {
    const report = (runId: number) => ({
      settings: psb.breakers.policies.of('psb')!,
      runId,
      claimedAt: START,
      outcome: 'failure' as const,
      error: null,
    });
    const calls: string[] = [];
    await psb.core.store.transact('test', async (tx) => {
      await psb.breakers.recordOutcomes(tx, [report(1)]);
      const other = () => psb.breakers.recordOutcomes(tx, [report(2)]);
      await psb.breakers.recordOutcomes(watched(tx, calls, other), [report(3)]);
    });
    expect(calls.filter((name) => name === 'breaker.save')).toHaveLength(2);
    expect((await psb.view()).state).toBe('open');
  });

  it('leave nothing behind where their transaction is rolled back', async () => {
    await psb.create();
    const grant = await psb.run();
    const report = { agentId: 'a1', runId: grant.runId, leaseToken: grant.leaseToken, seq: 3, news: transient };
    const fails = psb.core.store.transact('test', async (tx) => {
      await psb.core.verbs.report.run(tx, [report]);
      await watchBreakers(psb.breakers, psb.core.emit)(tx, [
        {
          type: 'task.state',
          from: 'running',
          to: 'queued',
          reason: null,
          id: grant.taskId,
          template: 'psb',
          label: null,
          flowId: null,
          sessionKey: null,
          notifyPolicy: 'silent',
          generation: 1,
        },
      ]);
      throw new Error('no');
    });
    await expect(fails).rejects.toThrow('no');
    expect(await psb.view()).toMatchObject({ calls: 0 });
  });
});
