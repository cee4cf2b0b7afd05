import { randomBytes } from 'node:crypto';
import { mkdirSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import Database, { type Database as Connection } from 'better-sqlite3';
import type { Compilable, RawBuilder } from 'kysely';
import { type Clock, systemClock } from '../clock.ts';
import { AppError, messageOf } from '../errors.ts';
import { type IdCodec, idCodec } from '../ids.ts';
import { type Dialect, type HotQuery, sqliteDialect } from './dialect.ts';
import { type CommitEngine, foreignAwait, GroupCommit, groupByVerb, runCalls, type Unit } from './group-commit.ts';
import { migrate } from './migrate.ts';
import { reserveLog } from './reserve-log.ts';
import { Statements } from './statements.ts';
import { type BeforeCommit, insideTransaction, type Store, type StoreStats } from './store.ts';
import type { Tx, Verb } from './tx.ts';

export interface SqliteOptions {
  /** Path of the database file; its folder is made. `<path>.lock` is the lock of the one gateway that may have it open. */
  path: string;
  clock?: Clock;
  /** How long what is over is kept, milliseconds; told to every transaction. Default: a week. */
  retentionMs?: number;
  /** Bound of the file's size, in pages of 4 KiB; beyond it writes fail with `storage_full`. Default: SQLite's own, far away. */
  maxPages?: number;
  /** Writes the log's whole length once, at the start; see `reserveLog`. */
  reserveLog?: boolean;
}

/** 4,000 pages of 4 KiB, 16 MB: bounds the log; smaller and larger bounds made no difference that could be told from noise. */
const WAL_PAGES = 4_000;
const WAL_LIMIT_BYTES = 64 * 1024 ** 2;
const ID_BLOCK = 1_000;
const RETENTION_MS = 7 * 86_400_000;
/** How long a statement waits for another process, such as a backup. */
const BUSY_MS = 5_000;
/** Pages in memory, KiB. Writes touch what is new; reads wander through lists, where 8 MB cost a third of a page's time more. */
const WRITER_CACHE = 'cache_size = -8192';
const READER_CACHE = 'cache_size = -32768';

/**
 * Opens (and migrates) a SQLite store.
 * @throws AppError store_locked when another process has it open; invalid_config when the file is no database of ours.
 */
export function openSqlite(options: SqliteOptions): Store {
  const lock = takeLock(`${options.path}.lock`);
  try {
    return new SqliteStore(options, lock);
  } catch (error) {
    lock.close();
    throw error instanceof AppError ? error : unusable(options.path, error);
  }
}

function unusable(path: string, error: unknown): AppError {
  return (
    storageError(error) ??
    new AppError('invalid_config', `${path} cannot be used as a database: ${messageOf(error)}`, { cause: error })
  );
}

/**
 * An open exclusive transaction on a file of its own: the operating system drops it with the process, however that ends,
 * and readers of the database itself are not locked out.
 */
function takeLock(path: string): Connection {
  let lock: Connection | undefined;
  try {
    mkdirSync(dirname(path), { recursive: true });
    lock = new Database(path, { timeout: 0 });
    lock.exec('begin exclusive');
    return lock;
  } catch (error) {
    lock?.close();
    if (!codeOf(error).startsWith('SQLITE_BUSY')) throw unusable(path, error);
    throw new AppError('store_locked', `another gateway has this database open (${path})`, { cause: error });
  }
}

class SqliteStore implements Store, CommitEngine {
  readonly dialect: Dialect = sqliteDialect;
  readonly ids: IdCodec;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #retentionMs: number;
  readonly #lock: Connection;
  readonly #writer: Statements;
  readonly #reader: Statements;
  readonly #commits = new GroupCommit(this);
  readonly #block = { next: 1, end: 1 };
  #hook: BeforeCommit = async () => undefined;
  #open: SqliteTx | undefined;
  #counts = { transactions: 0, units: 0, rollbacks: 0 };

  constructor(options: SqliteOptions, lock: Connection) {
    const { path, clock = systemClock, retentionMs = RETENTION_MS, maxPages, reserveLog: reserve } = options;
    this.#path = path;
    this.#clock = clock;
    this.#retentionMs = retentionMs;
    this.#lock = lock;
    const writer = openWriter(path, maxPages);
    if (reserve) reserveLog(writer, `${path}-wal`, WAL_PAGES);
    this.#writer = new Statements(writer);
    this.#reader = new Statements(openReader(path));
    this.ids = idCodec(idKey(writer));
  }

  write<I, O>(verb: Verb<I, O>, items: readonly I[], patienceMs = 0): Promise<O[]> {
    if (this.#open) return Promise.reject(insideTransaction(verb.name));
    return this.#commits.submit(verb, items, patienceMs);
  }

  async transact<T>(name: string, work: (tx: Tx) => Promise<T>): Promise<T> {
    const verb: Verb<null, T> = { name, rank: 40, run: async (tx) => [await work(tx)] };
    return (await this.write(verb, [null]))[0]!;
  }

  async all<P extends Record<string, unknown>, R>(query: HotQuery<P, R>, params: P): Promise<R[]> {
    if (this.#open) throw insideTransaction(query.name);
    return this.#reader.hot(query, params).all() as R[];
  }

  async fetch<R>(query: Compilable<R> | RawBuilder<R>): Promise<R[]> {
    if (this.#open) throw insideTransaction('fetch');
    return this.#reader.cold(query).all() as R[];
  }

  onBeforeCommit(hook: BeforeCommit): void {
    this.#hook = hook;
  }

  stats(): StoreStats {
    return { ...this.#counts, walBytes: fileBytes(`${this.#path}-wal`) };
  }

  async close(): Promise<void> {
    await this.#commits.close();
    this.#reader.connection.close();
    this.#writer.connection.close();
    this.#lock.close();
  }

  isStorageFault(error: unknown): boolean {
    return error instanceof AppError && (error.code === 'storage_full' || error.code === 'unavailable');
  }

  async commit(units: readonly Unit[]): Promise<unknown[][]> {
    const block = { ...this.#block };
    const tx = new SqliteTx(this.#writer, this.#clock.now(), this.#retentionMs, this.#block);
    try {
      this.#writer.begin.run();
      this.#open = tx;
      const answers = await this.#guarded(units, tx);
      tx.over = true;
      this.#writer.commit.run();
      this.#open = undefined;
      this.#counts.transactions += 1;
      this.#counts.units += units.length;
      for (const action of tx.afterwards) action();
      return answers;
    } catch (error) {
      tx.over = true;
      this.#open = undefined;
      Object.assign(this.#block, block);
      this.#counts.rollbacks += 1;
      throw this.#afterError(error);
    }
  }

  /**
   * Everything a verb may await is answered within this turn of the event loop. If the loop turns while the transaction is open,
   * a verb waits for something else, perhaps for this very transaction: fail instead of hanging.
   */
  async #guarded(units: readonly Unit[], tx: SqliteTx): Promise<unknown[][]> {
    const calls = groupByVerb(units);
    let alarm: NodeJS.Immediate | undefined;
    const turned = new Promise<never>((_resolve, reject) => {
      alarm = setImmediate(() => reject(foreignAwait(calls.map((call) => call.verb.name).join(', '))));
    });
    try {
      return await Promise.race([this.#run(calls, units.length, tx), turned]);
    } finally {
      clearImmediate(alarm);
    }
  }

  async #run(calls: ReturnType<typeof groupByVerb>, unitCount: number, tx: SqliteTx): Promise<unknown[][]> {
    const answers = await runCalls(calls, unitCount, (call) => call.verb.run(tx, call.items));
    await this.#hook(tx);
    return answers;
  }

  /** SQLite rolls back by itself on some errors, such as a full disk; whoever shared the transaction must then be told the same. */
  #afterError(error: unknown): unknown {
    const connection = this.#writer.connection;
    const rolledBackByItself = !connection.inTransaction;
    if (!rolledBackByItself) connection.exec('rollback');
    const translated = storageError(error);
    if (translated) return translated;
    if (rolledBackByItself)
      return new AppError('unavailable', 'the database ended the transaction by itself', { cause: error });
    return error;
  }
}

class SqliteTx implements Tx {
  readonly dialect = sqliteDialect;
  readonly now: number;
  readonly retentionMs: number;
  readonly afterwards: (() => void)[] = [];
  over = false;
  readonly #statements: Statements;
  readonly #block: { next: number; end: number };

  constructor(statements: Statements, now: number, retentionMs: number, block: { next: number; end: number }) {
    this.#statements = statements;
    this.now = now;
    this.retentionMs = retentionMs;
    this.#block = block;
  }

  async all<P extends Record<string, unknown>, R>(query: HotQuery<P, R>, params: P): Promise<R[]> {
    this.#check();
    return this.#statements.hot(query, params).all() as R[];
  }

  async run<P extends Record<string, unknown>>(query: HotQuery<P, unknown>, params: P): Promise<number> {
    this.#check();
    return this.#statements.hot(query, params).run();
  }

  async fetch<R>(query: Compilable<R> | RawBuilder<R>): Promise<R[]> {
    this.#check();
    return this.#statements.cold(query).all() as R[];
  }

  async exec(query: Compilable | RawBuilder<unknown>): Promise<number> {
    this.#check();
    return this.#statements.cold(query).run();
  }

  async ids(count: number): Promise<number> {
    this.#check();
    if (this.#block.next + count > this.#block.end) {
      const size = Math.max(ID_BLOCK, count);
      const row = this.#statements.connection
        .prepare('update id_block set next = next + ? where name = ? returning next - ? as first')
        .get(size, 'all', size) as { first: number };
      this.#block.next = row.first;
      this.#block.end = row.first + size;
    }
    const first = this.#block.next;
    this.#block.next += count;
    return first;
  }

  afterCommit(action: () => void): void {
    this.afterwards.push(action);
  }

  #check(): void {
    if (this.over) throw new Error('the transaction is over');
  }
}

function openWriter(path: string, maxPages: number | undefined): Connection {
  const connection = new Database(path, { timeout: BUSY_MS });
  try {
    connection.pragma('journal_mode = WAL');
    connection.pragma('synchronous = FULL');
    connection.pragma(`wal_autocheckpoint = ${WAL_PAGES}`);
    connection.pragma(`journal_size_limit = ${WAL_LIMIT_BYTES}`);
    connection.pragma('foreign_keys = on');
    connection.pragma(WRITER_CACHE);
    if (maxPages !== undefined) connection.pragma(`max_page_count = ${maxPages}`);
    migrate(connection);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

function openReader(path: string): Connection {
  const connection = new Database(path, { readonly: true, timeout: BUSY_MS });
  connection.pragma(READER_CACHE);
  return connection;
}

function idKey(connection: Connection): Buffer {
  connection
    .prepare('insert into meta (key, value) values (?, ?) on conflict do nothing')
    .run('id_key', randomBytes(16).toString('hex'));
  const row = connection.prepare('select value from meta where key = ?').get('id_key') as { value: string };
  return Buffer.from(row.value, 'hex');
}

function storageError(error: unknown): AppError | undefined {
  const code = codeOf(error);
  if (code === 'SQLITE_FULL')
    return new AppError('storage_full', 'the disk is full: nothing was stored', { cause: error });
  if (code.startsWith('SQLITE_IOERR') || code.startsWith('SQLITE_BUSY') || code === 'SQLITE_READONLY') {
    return new AppError('unavailable', `the database cannot be written right now (${code})`, { cause: error });
  }
  return undefined;
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

function fileBytes(path: string): number {
  try {
    return statSync(path).size;
  } catch {
    return 0;
  }
}
