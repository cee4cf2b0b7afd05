import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { sql } from 'kysely';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { AppError } from '../../src/errors.ts';
import { openSqlite, type SqliteOptions } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import type { Tx } from '../../src/store/tx.ts';
import { compiledSrc } from '../support/compiled.ts';

let folder: string;
let path: string;
const open: Store[] = [];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-sqlite-'));
  path = join(folder, 'errand.db');
});
afterEach(async () => {
  for (const store of open.splice(0)) await store.close();
  await rm(folder, { recursive: true, force: true });
});

function opened(more: Partial<SqliteOptions> = {}): Store {
  const store = openSqlite({ path, ...more });
  open.push(store);
  return store;
}
async function reopened(store: Store, more: Partial<SqliteOptions> = {}): Promise<Store> {
  await store.close();
  open.splice(open.indexOf(store), 1);
  return opened(more);
}
const row = (key: string, bytes = 1) => ({ channel: 'c', account: 'a', key, value: 'x'.repeat(bytes) });
const put = (store: Store, key: string, bytes?: number) =>
  store.transact('test.put', (tx) => tx.exec(tx.dialect.build.insertInto('channel_state').values(row(key, bytes))));
const keys = async (store: Store) =>
  (await store.fetch(store.dialect.build.selectFrom('channel_state').select('key').orderBy('key'))).map(
    ({ key }) => key,
  );
const codeOf = (work: () => unknown): unknown => {
  try {
    work();
    return 'no error';
  } catch (error) {
    return error instanceof AppError ? error.code : error;
  }
};

it('the file is written as it must be: WAL, FULL, foreign keys', async () => {
  const store = opened();
  const pragma = (name: string) => sql<Record<string, unknown>>`${sql.raw(`pragma ${name}`)}`;
  const rows = await store.transact('test.pragma', async (tx) => [
    await tx.fetch(pragma('journal_mode')),
    await tx.fetch(pragma('synchronous')),
    await tx.fetch(pragma('foreign_keys')),
  ]);
  expect(rows).toEqual([[{ journal_mode: 'wal' }], [{ synchronous: 2 }], [{ foreign_keys: 1 }]]);
  const orphan = store.transact('test.orphan', (tx) =>
    tx.exec(
      tx.dialect.build.insertInto('followup').values({
        id: 1,
        inbox_id: 99,
        session_key: 's',
        route: '{}',
        user_id: 'u',
        template: 't',
        args: '{}',
        status: 'queued',
        reason: null,
        flow_id: null,
        created_at: 1,
        done_at: null,
      }),
    ),
  );
  await expect(orphan).rejects.toThrow(/FOREIGN KEY/);
});

it('a second gateway on one file is refused, also under another name of it, and readers are not', async () => {
  const store = opened();
  expect(codeOf(() => openSqlite({ path }))).toBe('store_locked');
  expect(codeOf(() => openSqlite({ path: join(folder, '..', folder.split('/').at(-1)!, 'errand.db') }))).toBe(
    'store_locked',
  );
  await put(store, 'a');
  const reader = new Database(path, { readonly: true });
  expect(reader.prepare('select count(*) from channel_state').pluck().get()).toBe(1);
  reader.close();
  const next = await reopened(store);
  expect(await keys(next)).toEqual(['a']);
});

it('the lock is gone after kill -9 of its holder, and what it was told is stored is there', async () => {
  const script = join(folder, 'holder.mjs');
  const module = join(await compiledSrc(), 'store', 'sqlite.js');
  await writeFile(
    script,
    `
    import { openSqlite } from ${JSON.stringify(module)};
    const store = openSqlite({ path: process.argv[2] });
    const put = (key) => store.transact('put', (tx) => tx.exec(tx.dialect.build.insertInto('channel_state').values({ channel: 'c', account: 'a', key, value: '1' })));
    for (let n = 0; ; n += 1) { await put('k' + n); process.send(n); await new Promise((resolve) => setTimeout(resolve, 1)); }
  `,
  );
  const child = fork(script, [path]);
  let acknowledged = -1;
  const enough = new Promise<void>((resolve, reject) => {
    child.on('message', (n) => {
      acknowledged = n as number;
      if (acknowledged === 20) resolve();
    });
    child.once('exit', (code) => reject(new Error(`the holder ended early with ${code}`)));
  });
  await enough;
  expect(codeOf(() => openSqlite({ path }))).toBe('store_locked');
  child.removeAllListeners('exit');
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
  const store = opened();
  const found = await keys(store);
  expect(found.length).toBeGreaterThan(acknowledged);
  await put(store, 'mine');
});

it('what is no database of ours is refused with a clear message and left as it is', async () => {
  await writeFile(path, 'this is a letter, not a database. '.repeat(200));
  expect(codeOf(() => openSqlite({ path }))).toBe('invalid_config');
  expect((await stat(path)).size).toBe(34 * 200);
  await rm(path);
  // Nothing of the failed try holds the lock.
  await put(opened(), 'a');
});

it('a folder that cannot be written is a matter of configuration, not of another gateway', async () => {
  await writeFile(join(folder, 'file'), '');
  expect(codeOf(() => openSqlite({ path: join(folder, 'file', 'errand.db') }))).toBe('invalid_config');
});

it('on a full disk everybody of the turn is told so, nothing is half stored, and room helps at once', async () => {
  const store = opened({ maxPages: 400 });
  let filled = 0;
  const fill = async () => {
    for (;;) {
      await put(store, `fill${filled}`, 100_000);
      filled += 1;
    }
  };
  await expect(fill()).rejects.toMatchObject({ code: 'storage_full' });
  const before = await keys(store);
  expect(before).toHaveLength(filled);
  const pair = store.transact('test.pair', async (tx: Tx) => {
    await tx.exec(tx.dialect.build.insertInto('channel_state').values(row('small')));
    await tx.exec(tx.dialect.build.insertInto('channel_state').values(row('big', 300_000)));
  });
  const together = await Promise.allSettled([put(store, 'neighbour'), pair, put(store, 'other', 300_000)]);
  expect(
    together.map((result) => (result.status === 'rejected' ? (result.reason as AppError).code : 'stored')),
  ).toEqual(['storage_full', 'storage_full', 'storage_full']);
  expect(await keys(store)).toEqual(before);
  // Making room is a write too, and must work on a full disk.
  await store.transact('test.free', (tx) =>
    tx.exec(tx.dialect.build.deleteFrom('channel_state').where('key', '=', 'fill0')),
  );
  await put(store, 'fits', 50_000);
  expect(await keys(store)).toContain('fits');
});

it('a larger disk goes on where the small one stopped', async () => {
  let store = opened({ maxPages: 300 });
  await expect(put(store, 'big', 2_000_000)).rejects.toMatchObject({ code: 'storage_full', status: 507 });
  await put(store, 'small');
  store = await reopened(store, { maxPages: 3_000 });
  await put(store, 'big', 2_000_000);
  expect(await keys(store)).toEqual(['big', 'small']);
});

it('ids never repeat: not over rollbacks, not over restarts, not after a large reservation', async () => {
  const given = new Set<number>();
  const take = async (store: Store, count: number) => {
    const first = await store.transact('test.ids', (tx) => tx.ids(count));
    for (let id = first; id < first + count; id += 1) {
      expect(given.has(id)).toBe(false);
      given.add(id);
    }
  };
  let store = opened();
  for (const count of [1, 3, 996, 1, 2_500, 1, 1_000, 1]) {
    await take(store, count);
    await store
      .transact('test.rollback', async (tx) => {
        await tx.ids(700);
        throw new Error('no');
      })
      .catch(() => undefined);
    if (count > 990) store = await reopened(store);
  }
  await take(store, 1);
  expect(Math.min(...given)).toBeGreaterThan(0);
});

it('public ids keep their text for ever, and differ between installations', async () => {
  let store = opened();
  const text = store.ids.encode(12_345);
  store = await reopened(store);
  expect(store.ids.encode(12_345)).toBe(text);
  const other = openSqlite({ path: join(folder, 'elsewhere', 'errand.db') });
  open.push(other);
  expect(Array.from({ length: 20 }, (_, n) => other.ids.encode(n + 1))).not.toEqual(
    Array.from({ length: 20 }, (_, n) => store.ids.encode(n + 1)),
  );
});

it('the log stays bounded under 3,000 writes while others read', async () => {
  const store = opened();
  let largest = 0;
  let reads = 0;
  for (let batch = 0; batch < 100; batch += 1) {
    const writes = Array.from({ length: 30 }, (_, n) => put(store, `k${batch}.${n}`, 4_000));
    const page = store.fetch(store.dialect.build.selectFrom('channel_state').selectAll().limit(50));
    await Promise.all(writes);
    reads += (await page).length > 0 ? 1 : 0;
    largest = Math.max(largest, store.stats().walBytes);
  }
  expect(reads).toBeGreaterThan(50);
  expect(largest).toBeGreaterThan(0);
  expect(largest).toBeLessThan(64 * 1024 ** 2);
  expect(await keys(store)).toHaveLength(3_000);
});

it('another process that reads for long makes the log larger, and it is small again when that one ends', async () => {
  const store = opened();
  await put(store, 'first');
  const other = new Database(path, { readonly: true });
  const rows = other.prepare('select * from channel_state').iterate();
  rows.next();
  for (let n = 0; n < 600; n += 1) await put(store, `k${n}`, 20_000);
  const held = store.stats().walBytes;
  rows.return?.();
  other.close();
  for (let n = 0; n < 300; n += 1) await put(store, `more${n}`, 4_000);
  // Used again from its start: it did not grow by the megabytes that were written since.
  expect(store.stats().walBytes).toBeLessThan(held + 100_000);
  expect(held).toBeLessThan(64 * 1024 ** 2);
});

it('a closed store leaves no log and no open file behind', async () => {
  const store = opened();
  await put(store, 'a');
  await reopened(store).then((again) => again.close());
  open.length = 0;
  expect((await readdir(folder)).filter((name) => name.endsWith('-wal') || name.endsWith('-shm'))).toEqual([]);
});
