import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Sweeper } from '../../src/agents/sweeper.ts';
import { DEADLINE_MARGIN_MS } from '../../src/tasks/claim-round.ts';
import { pauseTasksVerb, resumeTasksVerb, setPriorityVerb } from '../../src/tasks/controls-tasks.ts';
import { SetBack } from '../../src/tasks/set-back.ts';
import {
  cancelsFromAhead,
  deadlinesFromAhead,
  pausedAhead,
  pullForward,
  queuedAfter,
} from '../../src/tasks/set-back-queries.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, GRACE_MS, LEASE_MS, newTask, START } from '../support/core.ts';
import { makeGraph } from '../support/graphs.ts';
import { planOf } from '../support/plans.ts';

const DAY = 86_400_000;
/** A policy whose pause is known. */
const RETRY = { ...DEFAULT_RETRY, max: 5, baseMs: 20_000, factor: 1, jitter: 0 };
const FAILED = { type: 'failed', error: 'no', errorClass: 'transient' } as const;

let core: Core;
let sweeper: Sweeper;
beforeEach(async () => {
  core = await Core.open();
  sweeper = core.sweeper();
  await sweeper.sweepOnce();
});
afterEach(() => core.close());

/** The clock was a day ahead, and somebody sets it right while the gateway runs. */
async function setBack(): Promise<void> {
  core.clock.set(START);
  await sweeper.sweepOnce();
}

async function runAhead(): Promise<void> {
  core.clock.set(START + DAY);
  await sweeper.sweepOnce();
}

const startable = async () => (await core.claimAll('a1', { max: 100 })).map(({ taskId }) => taskId);

describe('a clock that was a day ahead and is set right', () => {
  beforeEach(runAhead);

  it('a task that was to start at once may start at once', async () => {
    const id = await core.create({ ttlMs: 60_000 });
    await setBack();
    expect(await core.task(id)).toMatchObject({ run_at: START, expires_at: START + 60_000 });
    expect(await startable()).toEqual([id]);
  });

  it('an agent that waits is served by the sweep that finds it', async () => {
    const id = await core.create();
    core.clock.set(START);
    const pull = core.dispatch.pull(core.claimOf('a1'), 60_000, new AbortController().signal);
    await sweeper.sweepOnce();
    expect((await pull).map(({ taskId }) => taskId)).toEqual([id]);
  });

  it('the pause before a retry is as long as it was to be, and not a day longer', async () => {
    const id = await core.create({ retry: RETRY });
    await core.tell(await core.run(), FAILED);
    expect((await core.task(id)).run_at).toBe(START + DAY + 20_000);
    await setBack();
    expect((await core.task(id)).run_at).toBe(START + 20_000);
    core.clock.set(START + 19_999);
    expect(await startable()).toEqual([]);
    core.clock.set(START + 20_000);
    expect(await startable()).toEqual([id]);
  });

  it('the time that a rate limit asked for is kept as a duration', async () => {
    const id = await core.create();
    await core.tell(await core.run(), { ...FAILED, errorClass: 'rate_limited', retryAfterMs: 45_000 });
    await setBack();
    expect((await core.task(id)).run_at).toBe(START + 45_000);
  });

  it('a time that somebody has asked for by name stays', async () => {
    const named = START + DAY + 3_600_000;
    const id = await core.create({ runAt: named });
    await setBack();
    expect((await core.task(id)).run_at).toBe(named);
    expect(await startable()).toEqual([]);
  });

  it('tasks go on first come, first served', async () => {
    const ids: number[] = [];
    for (let n = 0; n < 5; n += 1) {
      ids.push(await core.create());
      core.clock.advance(1_000);
    }
    await setBack();
    expect(await startable()).toEqual(ids);
  });

  it('a paused task is due when it is resumed, and a raised one at once', async () => {
    const [paused, raised] = [await core.create(), await core.create()];
    await core.store.write(pauseTasksVerb(core.emit), [{ id: paused, by: 'x' }]);
    await core.store.write(setPriorityVerb(core.emit), [{ id: raised, by: 'x', priority: 'high' }]);
    await setBack();
    expect(await startable()).toEqual([raised]);
    await core.store.write(resumeTasksVerb(core.emit), [{ id: paused, by: 'x' }]);
    expect(await startable()).toEqual([paused]);
  });

  it('what waits for others starts when they have ended', async () => {
    const [first, second] = await makeGraph(core, [{}, { needs: [0] }]);
    await setBack();
    await core.tell(await core.run(), { type: 'succeeded', summary: 'ok' });
    expect((await core.task(first!)).status).toBe('succeeded');
    expect(await startable()).toEqual([second]);
  });

  it('a cancel that was asked for then is enforced after its grace, and a run has its time limit and no more', async () => {
    const called = await core.create();
    await core.run();
    await core.cancel(called);
    const long = await core.create({ timeoutMs: 100_000 });
    await core.run();
    await setBack();
    expect((await core.runs(long))[0]!.deadline_at).toBe(START + 100_000 + DEADLINE_MARGIN_MS);
    for (let passed = 0; passed < GRACE_MS; passed += 1_000) {
      core.pass(1_000);
      await sweeper.sweepOnce();
    }
    expect((await core.task(called)).status).toBe('cancelled');
  });

  it('a gateway that starts under the right clock does the same', async () => {
    const id = await core.create();
    core.clock.set(START);
    core = await core.reopen();
    sweeper = core.sweeper();
    await sweeper.sweepOnce();
    expect(await startable()).toEqual([id]);
  });
});

it('where nothing was set back, no row is touched: pauses and named times stay', async () => {
  const [delayed, named] = [await core.create({ retry: RETRY }), await core.create({ runAt: START + DAY })];
  await core.tell(await core.run(), FAILED);
  const before = [await core.task(delayed), await core.task(named)];
  core.clock.advance(LEASE_MS);
  core = await core.reopen();
  await core.sweeper().sweepOnce();
  expect([await core.task(delayed), await core.task(named)]).toEqual(before);
});

it('a long line is gone through in slices, each task once, and a roll back repeats its slice', async () => {
  await runAhead();
  await core.createAll(Array.from({ length: 5_500 }, (_, n) => newTask({ priority: n % 2 ? 'low' : 'high' })));
  core.clock.set(START);
  const back = new SetBack(core.emit);
  await core.store.transact('begin', (tx) => back.begin(tx));
  const failing = core.store.transact('step', async (tx) => {
    await back.step(tx);
    throw new Error('the disk is full');
  });
  await expect(failing).rejects.toThrow('the disk is full');
  const step = () => core.store.transact('step', (tx) => back.step(tx));
  expect([await step(), await step(), await step()]).toEqual([5_000, 500, 0]);
});

it('its statements go along indexes and walk through no table', async () => {
  await core.createAll(Array.from({ length: 500 }, () => newTask()));
  const grants = await core.claimAll('a1', { max: 400 });
  await Promise.all(grants.slice(5).map((grant) => core.tell(grant, { type: 'succeeded', summary: 'ok' })));
  const connection = new Database(core.path);
  connection.exec('analyze');
  const plan = (query: never) => planOf(connection, query).filter((detail) => /^(SCAN|SEARCH|USE TEMP)/.test(detail));
  expect(plan(queuedAfter as never)).toEqual([
    expect.stringMatching(/^SEARCH task USING COVERING INDEX task_claim \(.*stream_id.*\)/),
  ]);
  expect(plan(pausedAhead as never)).toEqual([
    expect.stringMatching(/^SEARCH task USING INDEX task_status \(status=\?/),
  ]);
  expect(plan(pullForward as never)).toEqual([
    expect.stringMatching(/^SCAN jsonb_each/),
    expect.stringMatching(/^SEARCH task USING INTEGER PRIMARY KEY/),
    expect.stringMatching(/^SEARCH run USING COVERING INDEX run_task/),
  ]);
  expect(plan(cancelsFromAhead as never)).toEqual([expect.stringMatching(/^SEARCH task USING INDEX task_cancel/)]);
  expect(plan(deadlinesFromAhead as never)).toEqual([expect.stringMatching(/^SEARCH run USING INDEX run_live/)]);
  connection.close();
});
