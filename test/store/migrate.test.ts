import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { MIGRATIONS, type Migration, migrate } from '../../src/store/migrate.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import { compiledSrc } from '../support/compiled.ts';

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-migrate-'));
  path = join(folder, 'errand.db');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

function withConnection<T>(work: (connection: Database.Database) => T): T {
  const connection = new Database(path);
  try {
    return work(connection);
  } finally {
    connection.close();
  }
}
const schema = () =>
  withConnection((connection) =>
    connection.prepare("select type, name, sql from sqlite_master where name not like 'sqlite_%' order by name").all(),
  );
const versions = () =>
  withConnection((connection) => connection.prepare('select version from migration order by version').pluck().all());

/** A next step that adds columns, an index and rows: none of it may be done twice. */
const SECOND: Migration = {
  version: MIGRATIONS.at(-1)!.version + 1,
  name: 'second',
  statements: [
    'alter table task add column colour text',
    'alter table task add column shape text',
    'create index task_colour on task (colour)',
    "insert into meta (key, value) values ('second', 'done')",
  ],
};
const FAULT = 'this is no sql';

it('A45: a failing statement at any place of any migration leaves nothing of its step, and the next start completes', async () => {
  for (const [index, migration] of [...MIGRATIONS, SECOND].entries()) {
    const before = [...MIGRATIONS, SECOND].slice(0, index);
    for (let place = 0; place <= migration.statements.length; place += 1) {
      await rm(path, { force: true });
      withConnection((connection) => migrate(connection, before));
      const untouched = schema();
      const broken = { ...migration, statements: migration.statements.toSpliced(place, 0, FAULT) };
      expect(() => withConnection((connection) => migrate(connection, [...before, broken])), `place ${place}`).toThrow(
        /nothing of it was applied/,
      );
      expect(schema()).toEqual(untouched);
      withConnection((connection) => migrate(connection, [...before, migration]));
      expect(versions()).toEqual([...before, migration].map(({ version }) => version));
    }
  }
});

it('A45: kill -9 between any two statements leaves no half step, and the next start completes', async () => {
  const script = join(folder, 'migrating.mjs');
  const module = join(await compiledSrc(), 'store', 'migrate.js');
  await writeFile(
    script,
    `
    import { createRequire } from 'node:module';
    import { migrate, MIGRATIONS } from ${JSON.stringify(module)};
    const Database = createRequire(${JSON.stringify(module)})('better-sqlite3');
    const [path, second, victim, place] = [process.argv[2], JSON.parse(process.argv[3]), Number(process.argv[4]), Number(process.argv[5])];
    const connection = new Database(path);
    // Dies in the middle of the transaction, as the machine might.
    connection.function('die', () => process.kill(process.pid, 'SIGKILL'));
    const steps = [...MIGRATIONS, second];
    migrate(connection, steps.map((step, n) => n === victim ? { ...step, statements: step.statements.toSpliced(place, 0, 'select die()') } : step));
  `,
  );
  const all = [...MIGRATIONS, SECOND];
  const die = async (victim: number, place: number) => {
    const child = fork(script, [path, JSON.stringify(SECOND), String(victim), String(place)]);
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
    expect([code, signal]).toEqual([null, 'SIGKILL']);
  };
  // First, in the middle and last of the initial schema; the middle of every later step; every place of the small one.
  const last = MIGRATIONS[0]!.statements.length;
  const places = [
    [0, 0],
    [0, Math.floor(last / 2)],
    [0, last],
    ...MIGRATIONS.slice(1).map(({ statements }, n) => [n + 1, Math.ceil(statements.length / 2)]),
    ...[...SECOND.statements, ''].map((_, place) => [MIGRATIONS.length, place]),
  ] as [number, number][];
  for (const [victim, place] of places) {
    await rm(path, { force: true });
    await die(victim, place);
    expect(versions()).toEqual(all.slice(0, victim).map(({ version }) => version));
    withConnection((connection) => migrate(connection, all));
    expect(versions()).toEqual(all.map(({ version }) => version));
    expect(
      withConnection((connection) => connection.prepare("select value from meta where key = 'second'").pluck().all()),
    ).toEqual(['done']);
    expect(withConnection((connection) => connection.pragma('integrity_check', { simple: true }))).toBe('ok');
  }
});

it('a schema that is up to date is left alone', () => {
  withConnection((connection) => migrate(connection));
  const before = schema();
  withConnection((connection) => migrate(connection));
  expect([schema(), versions()]).toEqual([before, MIGRATIONS.map(({ version }) => version)]);
});

it('a newer schema is refused by name and left alone, and the lock is free again', async () => {
  await openSqlite({ path }).close();
  withConnection((connection) => migrate(connection, [...MIGRATIONS, SECOND]));
  const before = schema();
  for (let n = 0; n < 2; n += 1) {
    expect(() => openSqlite({ path })).toThrow(
      expect.objectContaining({
        code: 'invalid_config',
        message: expect.stringMatching(new RegExp(`version ${SECOND.version}.*upgrade Errand`)),
      }),
    );
  }
  expect(schema()).toEqual(before);
});

it('migrations are numbered from 1 without a gap', () => {
  expect(MIGRATIONS.map(({ version }) => version)).toEqual(MIGRATIONS.map((_, index) => index + 1));
});
