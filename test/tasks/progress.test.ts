import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Assignment } from '../../src/agents/protocol.ts';
import type { Sweeper } from '../../src/agents/sweeper.ts';
import { PROGRESS_MS } from '../../src/tasks/progress.ts';
import { newestProgress } from '../../src/tasks/queries.ts';
import type { TaskEvent } from '../../src/tasks/task.ts';
import { Core, LEASE_MS, type TestAgent } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
let agent: TestAgent;
let sweeper: Sweeper;
beforeEach(async () => {
  core = await Core.open();
  agent = core.agent();
  await agent.register();
  sweeper = core.sweeper();
});
afterEach(() => core.close());

type Run = Pick<Assignment, 'runId' | 'leaseToken'>;
/** A task whose program runs. */
async function begun(): Promise<{ id: number; run: Run }> {
  const id = await core.create();
  const [task] = (await agent.pull()).tasks;
  const run = { runId: task!.runId, leaseToken: task!.leaseToken };
  await agent.report({ ...run, type: 'started' });
  return { id, run };
}
const says = async (run: Run, message: string, seq?: number) =>
  (await agent.report({ ...run, type: 'progress', message, ...(seq === undefined ? {} : { seq }) })).results[0]!.result;
const ends = (run: Run) => agent.report({ ...run, type: 'succeeded', summary: 'ok' });
const shown = async (id: number) =>
  (JSON.parse((await core.task(id)).progress ?? '{}') as { message?: string }).message;
const written = async (id: number) =>
  (await core.history(id))
    .filter(({ type }) => type === 'progress')
    .map(({ data }) => (JSON.parse(data!) as { message: string }).message);
const told = () => core.events.flatMap((event) => (event.type === 'task.progress' ? [event.message] : []));
const tick = async (ms: number) => {
  core.pass(ms);
  await sweeper.sweepOnce();
};

describe('progress', () => {
  it('of one run is written once a second, the newest, however much of it comes', async () => {
    const { id, run } = await begun();
    for (let n = 0; n < 2_000; n += 1) {
      expect(await says(run, `line ${n}`)).toBe('accepted');
      core.pass(5);
    }
    expect(await written(id)).toEqual(Array.from({ length: 10 }, (_, second) => `line ${second * 200}`));
    expect(told()).toEqual(await written(id));
    await tick(0);
    expect(await shown(id)).toBe('line 1999');
    expect((await written(id)).length).toBe(11);
  });

  it('in one batch is its newest', async () => {
    const { id, run } = await begun();
    const lines = Array.from({ length: 10_000 }, (_, n) => ({ ...run, type: 'progress' as const, message: `${n}` }));
    for (let from = 0; from < lines.length; from += 1_000) {
      const { results } = await agent.report(...lines.slice(from, from + 1_000));
      expect(results.every(({ result }) => result === 'accepted')).toBe(true);
    }
    await tick(PROGRESS_MS);
    expect(await written(id)).toEqual(['999', '9999']);
  });

  it('waits for its second and is then written by the sweep, once', async () => {
    const { id, run } = await begun();
    await says(run, 'first');
    await says(run, 'second');
    await tick(PROGRESS_MS - 1);
    expect(await shown(id)).toBe('first');
    await tick(1);
    expect(await shown(id)).toBe('second');
    await tick(PROGRESS_MS);
    expect([await written(id), told()]).toEqual([
      ['first', 'second'],
      ['first', 'second'],
    ]);
  });

  it('of one run does not wait for that of another', async () => {
    const [one, two] = [await begun(), await begun()];
    await says(one.run, 'a');
    await says(two.run, 'b');
    expect([await shown(one.id), await shown(two.id)]).toEqual(['a', 'b']);
  });

  it.each([
    ['succeeds', 'succeeded', (run: Run) => ends(run)],
    ['fails', 'failed', (run: Run) => agent.report({ ...run, type: 'failed', errorClass: 'permanent', error: 'x' })],
    ['asks', 'waiting', (run: Run) => agent.report({ ...run, type: 'needs_input', prompt: '?' })],
    ['is handed back', 'queued', (run: Run) => agent.report({ ...run, type: 'released' })],
    [
      'is replaced',
      'queued',
      async () => {
        await agent.clone('a1-2').register();
      },
    ],
    [
      'is lost',
      'queued',
      async () => {
        core.clock.advance(LEASE_MS);
        await core.sweep();
      },
    ],
  ] as [string, string, (run: Run) => Promise<unknown>][])(
    'that waits lands when its run %s',
    async (_what, status, end) => {
      const { id, run } = await begun();
      await says(run, 'half');
      await says(run, 'almost');
      await end(run);
      expect([await shown(id), (await core.task(id)).status]).toEqual(['almost', status]);
      expect(await written(id)).toEqual(['half', 'almost']);
      // People are told the end and not, after it, the figure before.
      expect(told()).toEqual(['half']);
      await tick(10 * PROGRESS_MS);
      expect(await written(id)).toEqual(['half', 'almost']);
    },
  );

  it('in the batch of the end lands before it, and what waited is not written over it', async () => {
    const { id, run } = await begun();
    await says(run, 'half');
    await says(run, 'almost');
    await agent.report({ ...run, type: 'progress', message: 'all' }, { ...run, type: 'succeeded', summary: 'ok' });
    expect([await shown(id), await written(id), told()]).toEqual(['all', ['half', 'all'], ['half', 'all']]);
  });

  it('of the next run does not wait for the last one’s second', async () => {
    const { id, run } = await begun();
    await says(run, 'of the first run');
    await says(run, 'last of the first run');
    await agent.report({ ...run, type: 'released' });
    const [again] = (await agent.pull()).tasks;
    await says(again!, 'of the second run');
    expect(await shown(id)).toBe('of the second run');
  });

  it('that comes twice or too late by its number changes nothing', async () => {
    const { run, id } = await begun();
    expect(await says(run, 'ten', 10)).toBe('accepted');
    expect(await says(run, 'ten', 10)).toBe('duplicate');
    expect(await says(run, 'nine', 9)).toBe('accepted');
    expect(await says(run, 'twelve', 12)).toBe('accepted');
    expect(await says(run, 'twelve', 12)).toBe('duplicate');
    expect(await says(run, 'eleven', 11)).toBe('accepted');
    await tick(PROGRESS_MS);
    expect(await written(id)).toEqual(['ten', 'twelve']);
    expect(await says(run, 'nine', 9)).toBe('accepted');
    expect(await shown(id)).toBe('twelve');
  });

  it('that waited while the process died is lost, and the next one is not', async () => {
    const { id, run } = await begun();
    await says(run, 'half');
    await says(run, 'almost');
    core = await core.reopen();
    const later = core.agent();
    await later.report({ ...run, type: 'progress', message: 'after', seq: 900 });
    expect(await written(id)).toEqual(['half', 'after']);
  });

  it('that is older than what the rows show is not shown again after a restart, and the next one is', async () => {
    const { id, run } = await begun();
    await says(run, 'tenth', 910);
    core = await core.reopen();
    agent = core.agent();
    expect(await says(run, 'ninth', 909)).toBe('accepted');
    expect(await says(run, 'tenth', 910)).toBe('duplicate');
    expect([await shown(id), await written(id), told()]).toEqual(['tenth', ['tenth'], []]);
    expect(await says(run, 'eleventh', 911)).toBe('accepted');
    expect([await shown(id), told()]).toEqual(['eleventh', ['eleventh']]);
  });

  it('of a run is not measured by that of an earlier run of its task, whose numbers were higher', async () => {
    const { id, run } = await begun();
    await says(run, 'of the first run', 990);
    await agent.report({ ...run, type: 'released' });
    const [again] = (await agent.pull()).tasks;
    core = await core.reopen();
    agent = core.agent();
    await says(again!, 'of the second run', 3);
    expect(await shown(id)).toBe('of the second run');
  });

  it('of a run is found without walking through what it has printed', () => {
    const connection = new Database(core.path, { readonly: true });
    const steps = planOf(connection, newestProgress);
    connection.close();
    expect(steps.filter((step) => /^SCAN (event|newest)/.test(step))).toEqual([]);
    expect(steps.join('\n')).toMatch(/SEARCH newest USING PRIMARY KEY \(task_id=\? AND run_id=\?\)/);
  });

  it('of a run that is over is an event, and writes nothing', async () => {
    const { id, run } = await begun();
    await says(run, 'half');
    await agent.report({ ...run, type: 'released' });
    expect(await says(run, 'late')).toBe('lease_lost');
    await tick(PROGRESS_MS);
    expect(await shown(id)).toBe('half');
  });

  it('is not held back by a clock that was set back', async () => {
    const { id, run } = await begun();
    await says(run, 'before');
    core.clock.advance(-3_600_000);
    await says(run, 'after');
    expect(await shown(id)).toBe('after');
  });

  it('A05: is paced by the gateway’s clock, whatever the agent’s says', async () => {
    const { id, run } = await begun();
    const now = core.clock.now();
    for (const at of [now + 600_000, now - 600_000, 0, -1, Number.MAX_SAFE_INTEGER])
      await agent.report({ ...run, type: 'progress', message: `at ${at}`, at });
    expect(await written(id)).toHaveLength(1);
    await agent.report({ ...run, type: 'checkpoint', data: 1, at: now + 600_000 });
    expect(await core.checkpoint(id)).toMatchObject({ at: now });
  });

  it('that a failed transaction would have written is not taken for written', async () => {
    await core.close();
    let broken = false;
    const fails = async (_tx: unknown, events: readonly TaskEvent[]) => {
      if (broken && events.some(({ type }) => type === 'task.progress')) throw new Error('broken');
    };
    core = await Core.open({ subscriber: () => fails });
    agent = core.agent();
    await agent.register();
    const { id, run } = await begun();
    broken = true;
    await expect(says(run, 'first', 50)).rejects.toThrow('broken');
    broken = false;
    expect(await says(run, 'first', 50)).toBe('accepted');
    expect(await shown(id)).toBe('first');
  });
});
