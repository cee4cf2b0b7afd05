import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import Database from 'better-sqlite3';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { IncomingMessage } from '../../src/channels/channel.ts';
import { createChannelPort } from '../../src/intake/inbox.ts';
import { createLog, silentLog } from '../../src/log.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import { createArchive } from '../../src/retention/archive.ts';
import { AUDIT_MS, Retention, type RetentionOptions, SETTLE_MS } from '../../src/retention/retention.ts';
import { audit } from '../../src/sessions/audit.ts';
import type { Tables } from '../../src/store/tables.ts';
import { Core, newTask, ROUTE, SESSION } from '../support/core.ts';
import { until } from '../support/until.ts';

const DAY = 86_400_000;
const WEEK = 7 * DAY;

let core: Core;
let uptime = 0;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

function retention(more: Partial<RetentionOptions> = {}): Retention {
  const { store, clock } = core;
  const archive = createArchive({ folder: join(core.folder, 'archive'), clock });
  return new Retention({
    store,
    clock,
    log: silentLog,
    archive,
    retentionMs: WEEK,
    pauseMs: 0,
    monotonic: () => uptime,
    ...more,
  });
}

/** Time passes on all clocks. */
function pass(ms: number): void {
  core.pass(ms);
  uptime += ms;
}

const count = async (table: keyof Tables) =>
  Number((await core.store.fetch(sql<{ n: number }>`select count(*) as n from ${sql.table(table)}`))[0]!.n);

async function insert<T extends keyof Tables>(table: T, ...rows: Partial<Tables[T]>[]): Promise<void> {
  await core.store.transact('test.insert', async (tx) => {
    for (const row of rows) await tx.exec(tx.dialect.build.insertInto(table).values(row as never));
  });
}

interface Line {
  table: string;
  id?: string;
  row: Record<string, unknown>;
}

async function archived(): Promise<Line[]> {
  const folder = join(core.folder, 'archive');
  const names = (await readdir(folder).catch(() => [])).sort();
  const texts = await Promise.all(names.map(async (name) => gunzipSync(await readFile(join(folder, name))).toString()));
  return texts.flatMap((text) => text.split('\n').filter(Boolean)).map((line) => JSON.parse(line) as Line);
}

/** A task of a conversation, from its question to its end. */
async function finished(summary = 'ok'): Promise<number> {
  const id = await core.ask();
  const grant = await core.run();
  await core.tell(grant, { type: 'log', stream: 'stdout', text: 'hello\n' } as never);
  await core.tell(grant, { type: 'succeeded', summary });
  return id;
}

function inboxRow(id: number, more: Record<string, unknown> = {}) {
  return {
    id,
    channel: 'telegram',
    account: 'default',
    identity: `m${id}`,
    kind: 'text',
    route: '{}',
    text: 't',
    addressed: 1,
    received_at: core.clock.now(),
    status: 'done',
    attempts: 0,
    done_at: core.clock.now(),
    ...more,
  };
}

function followupRow(id: number, inboxId: number, more: Record<string, unknown> = {}) {
  return {
    id,
    inbox_id: inboxId,
    session_key: SESSION,
    route: '{}',
    user_id: 'u',
    template: 't',
    args: '{}',
    status: 'started',
    created_at: core.clock.now(),
    done_at: core.clock.now(),
    ...more,
  };
}

async function messages(...states: string[]): Promise<void> {
  const outbox = createOutbox({ instant: new Set(), emit: () => undefined });
  for (const state of states) {
    await core.store.transact('test.message', async (tx) => {
      await outbox.enqueue(tx, [{ route: ROUTE, kind: 'notice', text: state, dedupeKey: `${state}-${tx.now}` }]);
      await tx.exec(
        sql`update outbox set status = ${state}, sent_at = case when ${state} = 'sent' then ${tx.now} end,
          lease_until = case when ${state} = 'sending' then ${tx.now} end where text = ${state}`,
      );
    });
  }
}

describe('what is old and over', () => {
  it('is kept until its last moment, then archived whole and removed, with its run, its events and its flow', async () => {
    const id = await finished();
    const flow = (await core.task(id)).flow_id!;
    const service = retention();
    pass(WEEK - 1);
    expect(await service.runOnce()).toMatchObject({ pruned: {}, ran: true });
    expect(await archived()).toEqual([]);
    const [task, run] = [await core.task(id), (await core.runs(id))[0]!];
    pass(1);
    expect(await service.runOnce()).toMatchObject({ pruned: { task: 1, flow: 1 } });
    expect(await Promise.all((['task', 'run', 'event', 'flow'] as const).map(count))).toEqual([0, 0, 0, 0]);
    const lines = await archived();
    expect(lines.map((line) => line.table)).toEqual(['task', 'run', 'event', 'flow']);
    expect(lines[0]).toEqual({ table: 'task', id: core.store.ids.encode(id), row: { ...task } });
    const { lease_token: secret, ...shown } = run;
    expect(lines[1]!.row).toEqual(shown);
    expect(JSON.stringify(lines)).not.toContain(secret);
    expect(lines[2]!.row).toMatchObject({ task_id: id, type: 'log' });
    expect(lines[3]!.row).toMatchObject({ id: flow, owner_session_key: SESSION, status: 'finished' });
  });

  it('follows the setting, also for tasks that ended under another one', async () => {
    await finished();
    pass(2 * DAY);
    expect((await retention({ retentionMs: 3 * DAY }).runOnce()).pruned).toEqual({});
    expect((await retention({ retentionMs: 2 * DAY }).runOnce()).pruned).toMatchObject({ task: 1 });
    await finished();
    pass(WEEK);
    expect((await retention({ retentionMs: 30 * DAY }).runOnce()).pruned).toEqual({});
  });

  it('messages that found their end go, by when they were sent', async () => {
    await messages('sent', 'dead', 'superseded', 'expired');
    pass(WEEK - 1);
    const service = retention();
    expect((await service.runOnce()).pruned).toEqual({});
    pass(1);
    expect((await service.runOnce()).pruned).toEqual({ outbox: 4 });
    expect((await archived()).map((line) => line.row.text)).toEqual(['sent', 'dead', 'superseded', 'expired']);
  });

  it('incoming messages and their errands go together, after seven days however short the setting is', async () => {
    await insert('inbox', inboxRow(1), inboxRow(2, { status: 'refused' }), inboxRow(3, { status: 'failed' }));
    await insert('followup', followupRow(4, 1), followupRow(5, 3, { status: 'failed' }));
    const service = retention({ retentionMs: DAY });
    pass(WEEK - 1);
    expect((await service.runOnce()).pruned).toEqual({});
    pass(1);
    expect((await service.runOnce()).pruned).toEqual({ followup: 2, inbox: 3 });
  });

  it('A21: a message that comes again is known for seven days, whatever came after it', async () => {
    const port = () =>
      createChannelPort({ store: core.store, channel: 'telegram', account: 'default', onStored: () => undefined });
    const incoming = (identity: string): IncomingMessage => ({
      identity,
      kind: 'text',
      route: ROUTE,
      sender: { id: '7' },
      text: 'report',
      addressed: true,
    });
    const workedOff = () =>
      core.store.transact('test.done', (tx) => tx.exec(sql`update inbox set status = 'done', done_at = ${tx.now}`));
    const service = retention({ retentionMs: DAY });
    await port().accept([incoming('m')]);
    await workedOff();
    pass(WEEK - 1);
    await service.runOnce();
    expect(await port().accept([incoming('m'), incoming('same words, new message')])).toEqual(['duplicate', 'stored']);
    pass(1);
    await service.runOnce();
    // docs/retention.md: longer than any platform delivers again.
    expect(await port().accept([incoming('m')])).toEqual(['stored']);
  });

  it('logins and pairing requests that are over go without the digest of their secret; audit entries after 90 days', async () => {
    const at = core.clock.now();
    const login = { kind: 'cookie', user_id: 'u', name: 'n', created_at: at };
    await insert('login', { ...login, token_hash: 'digest-of-a', expires_at: at + DAY });
    await insert('login', { ...login, token_hash: 'digest-of-b', expires_at: at + AUDIT_MS });
    const pairing = { channel: 'telegram', account: 'default', route: '{}', created_at: at };
    await insert('pairing', { ...pairing, id: 1, user_id: 'u', code_hash: 'digest-of-c', expires_at: at + DAY });
    await core.store.transact('test.audit', (tx) => audit(tx, { actor: 'a', action: 'b', target: 'c' }));
    const service = retention();
    pass(DAY);
    expect((await service.runOnce()).pruned).toEqual({ login: 1, pairing: 1 });
    pass(AUDIT_MS - DAY - 1);
    expect((await service.runOnce()).pruned).toEqual({});
    pass(1);
    expect((await service.runOnce()).pruned).toEqual({ login: 1, audit: 1 });
    expect(JSON.stringify(await archived())).not.toContain('digest');
    expect((await archived()).map((line) => line.table)).toEqual(['login', 'pairing', 'login', 'audit']);
  });

  it('is found behind rows that stay, however many', async () => {
    await core.createAll(Array.from({ length: 1_200 }, () => newTask({ pool: 'nobody' })));
    await finished();
    pass(WEEK);
    expect((await retention().runOnce()).pruned).toMatchObject({ task: 1, flow: 1 });
    expect(await count('task')).toBe(1_200);
  });

  it('is found behind rows that a wrong clock dated ahead', async () => {
    const right = core.clock.now();
    core.clock.advance(5_000 * DAY);
    await core.createAll(Array.from({ length: 1_200 }, () => newTask({ pool: 'nobody' })));
    core.clock.set(right);
    await finished();
    pass(WEEK);
    expect((await retention().runOnce()).pruned).toEqual({ task: 1, flow: 1 });
    expect(await count('task')).toBe(1_200);
  });
});

describe('what is live, undecided or undelivered stays', () => {
  const MANY_WEEKS = 10 * WEEK;

  async function nothingIsPruned(): Promise<void> {
    pass(MANY_WEEKS);
    expect((await retention().runOnce()).pruned).toEqual({});
  }

  it.each(['active', 'waiting', 'blocked'])('a flow that is %s with all its tasks', async (status) => {
    const id = await finished();
    await core.store.transact('test.flow', (tx) => tx.exec(sql`update flow set status = ${status}, ended_at = null`));
    await nothingIsPruned();
    expect(await core.task(id)).toMatchObject({ status: 'succeeded' });
    expect(await core.runs(id)).toHaveLength(1);
  });

  it('a task that is the parent of a live one, until that is over too', async () => {
    const parent = await finished();
    const child = await core.create({ parentTaskId: parent });
    const service = retention();
    pass(MANY_WEEKS);
    expect((await service.runOnce()).pruned).toEqual({});
    await core.cancel(child);
    expect((await service.runOnce()).pruned).toMatchObject({ task: 1 });
    expect(await core.task(child)).toMatchObject({ status: 'cancelled' });
  });

  it('a dead letter that nobody has decided, with its task; a decided one goes', async () => {
    const id = await core.create();
    await core.tell(await core.run(), { type: 'failed', error: 'no', errorClass: 'permanent' } as never);
    const letter = { seq: 1, template: 't', status: 'failed', generation: 1, attempt: 1, deaths: 1 };
    await core.store.transact('test.letter', (tx) => tx.exec(sql`delete from dead_letter`));
    await insert('dead_letter', {
      ...letter,
      task_id: id,
      state: 'dead',
      first_died_at: core.clock.now(),
      died_at: core.clock.now(),
    } as never);
    await nothingIsPruned();
    await core.store.transact('test.decide', (tx) => tx.exec(sql`update dead_letter set state = 'discarded'`));
    expect((await retention().runOnce()).pruned).toEqual({ task: 1 });
    expect((await archived()).map((line) => line.table)).toEqual(
      expect.arrayContaining(['task', 'run', 'dead_letter']),
    );
  });

  it('an effect of unknown fate with its task; a settled one goes after its task', async () => {
    const id = await finished();
    const effect = { id: 900_001, type: 'pay', key: 'k', state: 'init', policy: 'ask', first_task_id: id, task_id: id };
    const run = (await core.runs(id))[0]!.id;
    const at = core.clock.now();
    await insert('effect', { ...effect, first_run_id: run, run_id: run, created_at: at, updated_at: at } as never);
    await nothingIsPruned();
    await core.store.transact('test.resolve', (tx) => tx.exec(sql`update effect set state = 'success'`));
    expect((await retention().runOnce()).pruned).toEqual({ task: 1, effect: 1, flow: 1 });
  });

  it('an effect that was given back keeps its task no longer than it might be begun again', async () => {
    const id = await finished();
    const run = (await core.runs(id))[0]!.id;
    const at = core.clock.now();
    const effect = { id: 900_001, type: 'pay', key: 'k', state: 'init', policy: 'ask', first_task_id: id, task_id: id };
    await insert('effect', { ...effect, first_run_id: run, run_id: run, created_at: at, updated_at: at } as never);
    await nothingIsPruned();
    const given = core.clock.now();
    await core.store.transact('test.again', (tx) =>
      tx.exec(sql`update effect set run_id = null, updated_at = ${given}`),
    );
    pass(WEEK - 1);
    expect((await retention().runOnce()).pruned).toEqual({});
    pass(1);
    expect((await retention().runOnce()).pruned).toEqual({ task: 1, effect: 1, flow: 1 });
  });

  it('messages on their way, and of unknown fate, and the tasks that they are about', async () => {
    await messages('pending', 'sending', 'unknown');
    const [a, b, c] = [await finished(), await finished(), await finished()];
    await core.store.transact('test.about', async (tx) => {
      for (const [id, text] of [
        [a, 'pending'],
        [b, 'sending'],
        [c, 'unknown'],
      ] as const)
        await tx.exec(
          sql`update outbox set task_id = ${id}, dedupe_key = ${`task:${id}:1:final`} where text = ${text}`,
        );
    });
    await nothingIsPruned();
    expect([await count('task'), await count('outbox')]).toEqual([3, 3]);
  });

  it('messages that nobody has worked off, errands that wait, and what led to a flow that goes on', async () => {
    const live = (await core.task(await core.ask())).flow_id!;
    await insert('inbox', inboxRow(800_001, { status: 'new', done_at: null }), inboxRow(800_002), inboxRow(800_003));
    await insert(
      'followup',
      followupRow(800_004, 800_002, { status: 'queued', done_at: null }),
      followupRow(800_005, 800_003, { flow_id: live }),
    );
    await nothingIsPruned();
  });

  it('a task without a time to be cleaned up', async () => {
    await finished();
    await core.store.transact('test.cleanup', (tx) => tx.exec(sql`update task set cleanup_after = null`));
    await nothingIsPruned();
  });
});

describe('nothing is lost', () => {
  it('where the archive cannot be written, nothing is pruned, and all of it later', async () => {
    await finished();
    await messages('sent');
    await writeFile(join(core.folder, 'archive'), 'in the way');
    pass(WEEK);
    const service = retention();
    await expect(service.runOnce()).rejects.toMatchObject({ code: 'unavailable' });
    expect([await count('task'), await count('event'), await count('outbox')]).toEqual([1, 1, 1]);
    await rm(join(core.folder, 'archive'));
    expect((await service.runOnce()).pruned).toEqual({ task: 1, outbox: 1, flow: 1 });
  });

  it('A44: a full disk under the archive deletes nothing and is told as such', async () => {
    await finished();
    pass(WEEK);
    const full = {
      append: () =>
        Promise.reject(Object.assign(new Error('ENOSPC: no space left on device'), { code: 'storage_full' })),
    };
    await expect(retention({ archive: full }).runOnce()).rejects.toMatchObject({ code: 'storage_full' });
    expect([await count('task'), await count('run'), await count('event'), await count('flow')]).toEqual([1, 1, 1, 1]);
  });

  it('a crash between archive and removal archives twice, and removes once', async () => {
    const id = await finished();
    pass(WEEK);
    const { store, clock } = core;
    const real = createArchive({ folder: join(core.folder, 'archive'), clock });
    const dying = {
      append: async (lines: readonly string[]) => {
        await real.append(lines);
        throw new Error('killed');
      },
    };
    await expect(retention({ archive: dying }).runOnce()).rejects.toThrow('killed');
    expect(await core.task(id)).toBeDefined();
    expect((await retention().runOnce()).pruned).toMatchObject({ task: 1 });
    const tasks = (await archived()).filter((line) => line.table === 'task').map((line) => line.id);
    expect(tasks).toEqual([store.ids.encode(id), store.ids.encode(id)]);
  });

  it.each([
    [
      'a late report',
      (id: number) => sql`insert into event (task_id, run_id, seq, type, at) values (${id}, 1, 99, 'late_log', 1)`,
    ],
    ['a receipt', (id: number) => sql`update task set delivery_status = 'delivered' where id = ${id}`],
    ['a flow that was opened again', () => sql`update flow set status = 'active', ended_at = null`],
    ['a new child', (id: number) => sql`update task set parent_id = ${id} where status = 'queued'`],
  ])('%s between archive and removal keeps the task', async (_what, change) => {
    const id = await finished();
    await core.create({ pool: 'nobody' });
    pass(WEEK);
    const { clock, store } = core;
    const real = createArchive({ folder: join(core.folder, 'archive'), clock });
    const meddling = {
      append: async (lines: readonly string[]) => {
        await real.append(lines);
        await store.transact('test.meddle', (tx) => tx.exec(change(id)));
      },
    };
    expect((await retention({ archive: meddling }).runOnce()).pruned).not.toHaveProperty('task');
    expect(await core.task(id)).toBeDefined();
    expect(await core.runs(id)).toHaveLength(1);
  });

  it('a person who retries the task in between keeps it', async () => {
    const id = await core.ask();
    await core.tell(await core.run(), { type: 'failed', error: 'no', errorClass: 'permanent' } as never);
    await core.store.transact('test.letter', (tx) => tx.exec(sql`delete from dead_letter`));
    pass(WEEK);
    const meddling = { append: async () => void (await core.retry(id)) };
    expect((await retention({ archive: meddling }).runOnce()).pruned).toEqual({});
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2 });
  });
});

describe('loops', () => {
  it('two over one store do each thing once', async () => {
    for (let n = 0; n < 30; n += 1) await finished();
    pass(WEEK);
    const [one, two] = [retention(), retention()];
    const reports = await Promise.all([one.runOnce(), two.runOnce()]);
    reports.push(...(await Promise.all([two.runOnce(), one.runOnce()])));
    expect(reports.map(({ pruned }) => pruned.task ?? 0).reduce((a, b) => a + b)).toBe(30);
    const ids = (await archived()).filter((line) => line.table === 'task').map((line) => line.id);
    expect([ids.length, new Set(ids).size]).toEqual([30, 30]);
    expect(await count('task')).toBe(0);
    // Given back: neither waits for the other.
    expect([(await one.runOnce()).ran, (await two.runOnce()).ran]).toEqual([true, true]);
  });

  it('one that died holds the others up for a minute, also after a clock that was years ahead', async () => {
    const stuck = { append: () => Promise.reject(new Error('killed')) };
    await finished();
    pass(WEEK);
    const dead = retention({ archive: stuck });
    // Killed: it gives nothing back.
    core.store.onBeforeCommit(async () => undefined);
    const { store } = core;
    await store.transact('test.hold', (tx) =>
      tx.exec(
        sql`insert into named_lease (name, holder, until, epoch) values ('retention', 'dead', ${tx.now + 60_000}, 1)`,
      ),
    );
    expect((await dead.runOnce()).ran).toBe(false);
    pass(60_000);
    expect(await retention().runOnce()).toMatchObject({ ran: true, pruned: { task: 1 } });
    await store.transact('test.hold', (tx) =>
      tx.exec(sql`update named_lease set holder = 'dead', until = ${tx.now + 5_000 * DAY} where name = 'retention'`),
    );
    expect((await retention().runOnce()).ran).toBe(true);
  });

  it('the service works by itself, outlives failures, and stops in the middle of a pass', async () => {
    await finished();
    pass(WEEK);
    const service = retention({ archive: createArchive({ folder: join(core.folder, 'archive'), clock: core.clock }) });
    await service.start();
    await until(async () => (await count('task')) === 0, 'the pruning');
    await service.stop();
    for (let n = 0; n < 5; n += 1) await finished();
    pass(WEEK);
    let calls = 0;
    const slow = retention({
      pauseMs: 60_000,
      archive: {
        append: async () => {
          calls += 1;
        },
      },
    });
    await slow.start();
    await until(() => calls > 0, 'the first batch');
    await slow.stop();
    expect(calls).toBe(1);
  });

  it('transactions are bounded, whatever is due', async () => {
    const sizes: number[] = [];
    await core.createAll(Array.from({ length: 1_000 }, () => newTask({ pool: 'nobody' })));
    await core.store.transact('test.end', (tx) =>
      tx.exec(sql`update task set status = 'cancelled', ended_at = ${tx.now}, cleanup_after = ${tx.now + WEEK}`),
    );
    pass(WEEK);
    let before = 1_000;
    core.store.onBeforeCommit(async (tx) => {
      const [row] = await tx.fetch(sql<{ n: number }>`select count(*) as n from task`);
      if (row!.n !== before) sizes.push(before - row!.n);
      before = row!.n;
    });
    expect((await retention().runOnce()).pruned).toEqual({ task: 1_000 });
    expect(Math.max(...sizes)).toBeLessThanOrEqual(400);
    expect(sizes.reduce((a, b) => a + b)).toBe(1_000);
  });
});

describe('a clock that may be wrong', () => {
  it('after a jump ahead nothing is pruned for an hour, and nothing at all when it is set right', async () => {
    const id = await finished();
    const service = retention();
    await service.runOnce();
    core.clock.advance(5_000 * DAY);
    uptime += 60_000;
    expect(await service.runOnce()).toMatchObject({ ran: false });
    uptime += 1_000;
    core.clock.advance(-5_000 * DAY);
    pass(SETTLE_MS);
    expect(await service.runOnce()).toMatchObject({ ran: true, pruned: {} });
    expect(await core.task(id)).toBeDefined();
  });

  it('nor for an hour after a start that comes long after the last look', async () => {
    await finished();
    await retention().runOnce();
    core.clock.advance(30 * DAY);
    const service = retention();
    expect(await service.runOnce()).toMatchObject({ ran: false });
    pass(SETTLE_MS - 1);
    expect(await service.runOnce()).toMatchObject({ ran: false });
    pass(1);
    expect(await service.runOnce()).toMatchObject({ ran: true, pruned: { task: 1 } });
  });
});

it('the file does not grow when as much is pruned as comes in, and its log stays bounded', async () => {
  const pages = async () => (await core.store.fetch(sql<{ page_count: number }>`pragma page_count`))[0]!.page_count;
  const service = retention();
  const sizes: number[] = [];
  for (let week = 0; week < 6; week += 1) {
    await core.createAll(
      Array.from({ length: 1_000 }, (_, n) => newTask({ pool: 'nobody', args: { text: `${week}:${n} `.repeat(50) } })),
    );
    await core.store.transact('test.end', (tx) =>
      tx.exec(
        sql`update task set status = 'cancelled', ended_at = ${tx.now}, cleanup_after = ${tx.now + WEEK} where ended_at is null`,
      ),
    );
    pass(WEEK);
    await service.runOnce();
    sizes.push(await pages());
  }
  // Freed pages are used again: the mark of the first week is not passed by a tenth.
  expect(Math.max(...sizes)).toBeLessThan(sizes[0]! * 1.1);
  expect(core.store.stats().walBytes).toBeLessThan(64 * 1024 ** 2);
});

it('A43: a log that a reader keeps from starting anew is told, and is used again when the reader ends', async () => {
  const lines: string[] = [];
  const log = createLog({ level: 'warn', destination: { write: (line: string) => void lines.push(line) } });
  const told = () => lines.filter((line) => line.includes('store.log_large')).length;
  const write = async (rows: number) => {
    for (let n = 0; n < rows; n += 1)
      await core.store.transact('test.write', (tx) =>
        tx.exec(sql`insert into channel_state values ('c', 'a', ${String(Math.random())}, ${'x'.repeat(40_000)})`),
      );
  };
  const reader = new Database(core.path, { readonly: true });
  reader.exec('begin');
  reader.prepare('select count(*) from task').get();
  await write(1_900);
  const held = core.store.stats().walBytes;
  expect(held).toBeGreaterThan(64 * 1024 ** 2);
  const service = retention({ log, logWarnBytes: 64 * 1024 ** 2 });
  await service.start();
  await until(() => told() > 0, 'the warning');
  await service.stop();
  reader.exec('commit');
  reader.close();
  await write(100);
  expect(core.store.stats().walBytes).toBeLessThanOrEqual(64 * 1024 ** 2);
}, 60_000);

it('the archive folder is made where it is needed', async () => {
  await mkdir(join(core.folder, 'archive'));
  await finished();
  pass(WEEK);
  await retention().runOnce();
  expect(await readdir(join(core.folder, 'archive'))).toHaveLength(1);
});
