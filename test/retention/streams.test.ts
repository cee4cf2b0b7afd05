import { join } from 'node:path';
import Database from 'better-sqlite3';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { silentLog } from '../../src/log.ts';
import type { Archive } from '../../src/retention/archive.ts';
import { FEW_STREAMS, STREAMS_PAUSE_MS } from '../../src/retention/prune-streams.ts';
import { removeStreams, streamRows, streamsAfter, streamsOfTasks } from '../../src/retention/prune-streams-queries.ts';
import { Retention } from '../../src/retention/retention.ts';
import { Core, newTask } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

const WEEK = 7 * 86_400_000;
const MANY = FEW_STREAMS + 100;

let core: Core;
let uptime = 0;
let lines: string[] = [];
/** What happens while a batch is being archived. */
let meanwhile: (batch: readonly string[]) => Promise<void>;
beforeEach(async () => {
  core = await Core.open();
  lines = [];
  meanwhile = async () => undefined;
});
afterEach(() => core.close());

function retention(): Retention {
  const { store, clock } = core;
  const archive: Archive = {
    append: async (batch) => {
      lines.push(...batch);
      await meanwhile(batch);
    },
  };
  return new Retention({
    ...{ store, clock, archive, log: silentLog, retentionMs: WEEK, pauseMs: 0 },
    monotonic: () => uptime,
  });
}

function pass(ms: number): void {
  core.pass(ms);
  uptime += ms;
}

const keyed = (n: number) => newTask({ serialKey: `order-${n}` });
const streams = () => core.store.fetch(sql<{ id: number; serial: string }>`select id, serial from stream order by id`);
const dangling = () => core.store.fetch(sql`select id from task where stream_id not in (select id from stream)`);

/** So many tasks with a serial key each, all of them over. */
async function finished(count: number): Promise<void> {
  await core.createAll(Array.from({ length: count }, (_, n) => keyed(n)));
  const grants = await core.claimAll('a1', { max: count });
  await Promise.all(grants.map((grant) => core.tell(grant, { type: 'succeeded', summary: 'ok' })));
}

it('streams go after the last of their tasks, archived; a stream with a task of any state stays', async () => {
  await finished(MANY);
  const waits = await core.createAll([keyed(3), newTask({ serialKey: 'later', runAt: core.clock.now() + 2 * WEEK })]);
  const service = retention();
  await service.runOnce();
  expect(await streams()).toHaveLength(MANY + 1);
  pass(WEEK + 1_000);
  const report = await service.runOnce();
  expect(report.pruned).toMatchObject({ task: MANY, stream: MANY - 1 });
  expect((await streams()).map(({ serial }) => serial)).toEqual(['t:order-3', 't:later']);
  expect(lines.filter((line) => line.includes('"table":"stream"'))).toHaveLength(MANY - 1);
  expect(await dangling()).toEqual([]);
  expect((await core.claimAll('a1', { max: 5 })).map(({ taskId }) => taskId)).toEqual([waits[0]!.id]);
});

it('a key that comes back after its stream was removed has a new one, and a gateway that knew the old one gives it out', async () => {
  await finished(MANY);
  const before = new Map((await streams()).map(({ serial, id }) => [serial, id]));
  pass(WEEK + 1_000);
  await retention().runOnce();
  expect(await streams()).toEqual([]);
  const id = await core.create({ serialKey: 'order-7' });
  const [stream] = await streams();
  expect(stream).toMatchObject({ serial: 't:order-7' });
  expect(stream!.id).toBeGreaterThan(Math.max(...before.values()));
  expect((await core.claim()).taskId).toBe(id);
});

it('a task that comes while its stream is being archived keeps it', async () => {
  await finished(MANY);
  pass(WEEK + 1_000);
  const made: number[] = [];
  meanwhile = async (batch) => {
    if (made.length === 0 && batch.some((line) => line.includes('t:order-5"') && line.includes('"table":"stream"')))
      made.push(await core.create({ serialKey: 'order-5' }));
  };
  await retention().runOnce();
  expect(made).toHaveLength(1);
  expect((await streams()).map(({ serial }) => serial)).toEqual(['t:order-5']);
  expect(await dangling()).toEqual([]);
  expect((await core.claim()).taskId).toBe(made[0]);
});

it('where few are, nothing is walked through; where the disk is full, nothing is removed', async () => {
  await finished(FEW_STREAMS - 1);
  pass(WEEK + 1_000);
  expect((await retention().runOnce()).pruned).toEqual({ task: FEW_STREAMS - 1 });
  expect(await streams()).toHaveLength(FEW_STREAMS - 1);
  await core.create({ serialKey: 'one-more' });
  meanwhile = async () => {
    throw new Error('no room');
  };
  await expect(retention().runOnce()).rejects.toThrow('no room');
  expect(await streams()).toHaveLength(FEW_STREAMS);
});

it('after a pass the next one is six hours later', async () => {
  await finished(MANY);
  const service = retention();
  await service.runOnce();
  pass(WEEK - 1_000);
  expect((await service.runOnce()).pruned).toEqual({});
  pass(1_000);
  expect((await service.runOnce()).pruned).toEqual({ task: MANY });
  pass(STREAMS_PAUSE_MS - 1_001);
  expect((await service.runOnce()).pruned).toEqual({});
  pass(1);
  expect((await service.runOnce()).pruned).toEqual({ stream: MANY });
});

it('the statements go along keys and walk through no table', async () => {
  await finished(50);
  const connection = new Database(join(core.folder, 'errand.db'));
  const plan = (query: never) => planOf(connection, query).join('\n');
  expect(plan(streamsAfter as never)).toMatch(/^SEARCH stream USING INTEGER PRIMARY KEY \(rowid>\?\)$/);
  expect(plan(streamsOfTasks as never)).toContain('SEARCH task USING INTEGER PRIMARY KEY (rowid>?)');
  expect(plan(streamRows as never)).toContain('SEARCH stream USING INTEGER PRIMARY KEY (rowid=?)');
  expect(plan(removeStreams as never)).toContain('SEARCH stream USING INTEGER PRIMARY KEY (rowid=?)');
  connection.close();
});
