import type { Database as Connection, Statement } from 'better-sqlite3';
import type { Compilable, CompiledQuery, RawBuilder } from 'kysely';
import { compileWith, type HotQuery, Param, sqliteDialect } from './dialect.ts';

/** Prepared statements of one connection, cached by query (hot) and by text (cold). */
export class Statements {
  readonly connection: Connection;
  readonly begin: Statement;
  readonly commit: Statement;
  readonly #hot = new Map<HotQuery<never, unknown>, Prepared>();
  readonly #cold = new Map<string, Runner>();

  constructor(connection: Connection) {
    this.connection = connection;
    this.begin = connection.prepare('begin immediate');
    this.commit = connection.prepare('commit');
  }

  hot<P extends Record<string, unknown>>(query: HotQuery<P, unknown>, params: P): Bound {
    const key = query as unknown as HotQuery<never, unknown>;
    let prepared = this.#hot.get(key);
    if (!prepared) {
      const compiled = query.compile(sqliteDialect);
      prepared = { run: runnerOf(this.connection.prepare(compiled.sql)), slots: compiled.parameters };
      this.#hot.set(key, prepared);
    }
    return prepared.run(bindHot(prepared.slots, params));
  }

  cold(query: Compilable | RawBuilder<unknown>): Bound {
    const compiled: CompiledQuery = compileWith(sqliteDialect, query);
    let statement: Runner | undefined = this.#cold.get(compiled.sql);
    if (!statement) {
      statement = runnerOf(this.connection.prepare(compiled.sql));
      if (this.#cold.size > 500) this.#cold.clear();
      this.#cold.set(compiled.sql, statement);
    }
    return statement(compiled.parameters.map(encode));
  }
}

interface Prepared {
  readonly run: Runner;
  readonly slots: readonly unknown[];
}

/** Puts values into a statement. */
type Runner = (values: unknown[]) => Bound;

interface Bound {
  all(): unknown[];
  run(): number;
}

function runnerOf(statement: Statement): Runner {
  if (!statement.reader) {
    return (values) => ({
      all: () => {
        statement.run(values);
        return [];
      },
      run: () => statement.run(values).changes,
    });
  }
  const rowOf = rowMaker(statement.columns().map((column) => column.name));
  statement.raw(true);
  return (values) => ({
    all: () => (statement.all(values) as unknown[][]).map(rowOf),
    run: () => statement.all(values).length,
  });
}

/**
 * Makes a row object of the row's values. Written as one literal per statement, which the engine builds faster than the driver sets
 * named properties one after another; the names are those of our own statements.
 */
function rowMaker(names: readonly string[]): (values: unknown[]) => unknown {
  const fields = names.map((name, index) => `${JSON.stringify(name)}: v[${index}]`);
  return new Function('v', `return { ${fields.join(', ')} };`) as (values: unknown[]) => unknown;
}

function bindHot(slots: readonly unknown[], params: Record<string, unknown>): unknown[] {
  let lastArray: unknown;
  let lastText = '';
  return slots.map((slot) => {
    const value = slot instanceof Param ? params[slot.name] : slot;
    if (!Array.isArray(value)) return encode(value);
    if (value !== lastArray) {
      lastArray = value;
      lastText = JSON.stringify(value);
    }
    return lastText;
  });
}

/** Booleans become 0 and 1; `undefined` is a mistake that would silently become null. */
function encode(value: unknown): unknown {
  if (typeof value === 'boolean') return value ? 1 : 0;
  if (value === undefined) throw new TypeError('a statement parameter is undefined; write null on purpose');
  if (value !== null && typeof value === 'object' && !Buffer.isBuffer(value)) return JSON.stringify(value);
  return value;
}
