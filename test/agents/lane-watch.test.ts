import { Writable } from 'node:stream';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LaneWatch } from '../../src/agents/lane-watch.ts';
import { createLog } from '../../src/log.ts';
import { Core, newTask, START } from '../support/core.ts';

const WARN_MS = 2_000;

let core: Core;
let watch: LaneWatch;
let lines: Record<string, unknown>[];
beforeEach(async () => {
  core = await Core.open();
  lines = [];
  const destination = new Writable({
    write: (line: Buffer, _encoding, done) => {
      lines.push(JSON.parse(String(line)) as Record<string, unknown>);
      done();
    },
  });
  watch = new LaneWatch({ ...core, log: createLog({ level: 'debug', destination }), warnMs: WARN_MS });
});
afterEach(() => core.close());

/** What was logged since the last look. */
async function look(): Promise<Record<string, unknown>[]> {
  lines.length = 0;
  await watch.lookOnce();
  return lines.map(({ level: _level, time: _time, ...line }) => line);
}

/** The line knows what waits once somebody has asked for work. */
const ask = (queues = ['none/shell']) => core.claimAll('a9', { queues });

describe('a lane in which tasks wait', () => {
  it('is told of when the first has waited for so long, and not before; once a minute; by lane', async () => {
    await core.createAll(Array.from({ length: 3 }, () => newTask({ lane: 'cron' })));
    await core.create({ lane: 'own', runAt: START + 1_500 });
    await core.claim();
    core.clock.set(START + WARN_MS - 1);
    expect(await look()).toEqual([]);
    core.clock.set(START + WARN_MS);
    expect(await look()).toEqual([
      {
        msg: 'lane.waiting',
        lane: 'cron',
        tasks: 2,
        waitedMs: WARN_MS,
        why: expect.stringMatching(/lane cron/i),
      },
    ]);
    expect(await look()).toEqual([]);
    core.clock.set(START + 1_500 + WARN_MS);
    expect(await look()).toMatchObject([{ lane: 'own', tasks: 1, waitedMs: WARN_MS }]);
    core.clock.set(START + WARN_MS + 59_999);
    expect(await look()).toEqual([]);
    core.clock.set(START + WARN_MS + 60_000);
    expect(await look()).toMatchObject([{ lane: 'cron', tasks: 2, waitedMs: WARN_MS + 60_000 }]);
  });

  const REASONS: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
    ['nobody is there', async () => undefined, /No agent/],
    [
      'all are busy',
      async () => {
        const agent = core.agent();
        await agent.register();
        await core.createAll(Array.from({ length: 4 }, () => newTask({ timeoutMs: 1e9, priority: 'high' })));
        expect((await agent.pull(4)).tasks).toHaveLength(4);
      },
      /busy/,
    ],
    ['somebody does not ask', () => core.agent().register(), /does not ask/],
  ];

  it.each(REASONS)('says why: %s', async (_name, prepare, why) => {
    await prepare();
    await core.create();
    await ask();
    core.clock.advance(WARN_MS);
    expect(await look()).toMatchObject([{ lane: 'main', tasks: 1, why: expect.stringMatching(why) }]);
  });
});

describe('is no news:', () => {
  it('what a person has paused, task, template or gateway', async () => {
    await core.create({ template: 'held' });
    await core.store.transact('test.gate', (tx) =>
      tx.exec(sql`insert into gate (kind, name, paused_at) values ('template', 'held', 1)`),
    );
    await ask();
    core.clock.advance(WARN_MS);
    expect(await look()).toEqual([]);
    const other = await core.create();
    core.clock.advance(WARN_MS);
    expect(await look()).toMatchObject([{ tasks: 1, waitedMs: WARN_MS }]);
    expect(other).toBeGreaterThan(0);
  });

  it('what has ended without a claim: memory is put right, and the rows are not asked again', async () => {
    const id = await core.create();
    await ask();
    await core.cancel(id);
    core.clock.advance(WARN_MS);
    expect([...core.line.waitingLanes(core.clock.now()).keys()]).toEqual(['main']);
    expect(await look()).toEqual([]);
    expect([...core.line.waitingLanes(core.clock.now()).keys()]).toEqual([]);
  });

  it('what is delayed', async () => {
    await core.create({ runAt: START + 1e6 });
    await ask();
    core.clock.advance(WARN_MS);
    expect(await look()).toEqual([]);
  });
});

it('a clock that jumps back does not silence it for longer than a minute', async () => {
  await core.create({ runAt: START - 1e9 });
  await ask();
  expect(await look()).toHaveLength(1);
  core.clock.set(START - 1e6);
  expect(await look()).toHaveLength(1);
});
