import {
  type Compilable,
  type CompiledQuery,
  DummyDriver,
  Kysely,
  type RawBuilder,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  sql,
} from 'kysely';
import type { Tables } from './tables.ts';

export type ColumnType = 'int' | 'real' | 'text' | 'json';
export type Columns = Readonly<Record<string, ColumnType>>;

/** What differs between databases, for statements that take arrays. */
export interface Dialect {
  /** Builds and compiles statements; it cannot run any (running is the store's). */
  readonly build: Kysely<Tables>;
  /**
   * The rows of an array parameter as a table expression: `… from ${d.rows(p.rows, columns)} as r`, one column per key in order.
   * The parameter is an array of arrays; `json` columns arrive as JSON text.
   */
  rows(param: Param, columns: Columns): RawBuilder<unknown>;
  /**
   * A column that the planner must not drive the statement from, for guards beside a primary key: with `update … from rows` it
   * would otherwise walk the whole table by the status index, ever longer as the table grows.
   */
  guard(column: string): RawBuilder<unknown>;
  /** The last touch on a statement's text. */
  finish(text: string): string;
  /** Two JSON objects (text or null) as one; keys of `b` win; null where both are null. */
  merge(a: string, b: string): RawBuilder<unknown>;
}

/** A place in a hot statement that gets its value at every call. */
export class Param {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

/** A statement that is compiled once and run often. `P` names its parameters; arrays are sent as JSON. */
export interface HotQuery<P extends Record<string, unknown>, R> {
  readonly name: string;
  readonly compile: (dialect: Dialect) => CompiledQuery;
  /** Never set; carries the types. */
  readonly types?: { params: P; row: R };
}

type Places<P> = { readonly [K in keyof P]: RawBuilder<never> & { readonly param: Param } };

/**
 * Defines a hot statement: `hot<{ now: number }, { id: number }>('task.due', (d, p) => sql`select id from task where run_at <= ${p.now}`)`.
 * The builder runs once per database; `p.x` may be used in SQL any number of times.
 */
export function hot<P extends Record<string, unknown>, R = never>(
  name: string,
  build: (dialect: Dialect, places: Places<P>) => RawBuilder<unknown> | Compilable,
): HotQuery<P, R> {
  const places = new Proxy({} as Places<P>, {
    get: (_target, key) => {
      const param = new Param(String(key));
      return Object.assign(sql.val(param) as unknown as RawBuilder<never>, { param });
    },
  });
  return { name, compile: (dialect) => compileWith(dialect, build(dialect, places)) };
}

/** Any builder of Kysely, or raw SQL, as a compiled query. */
export function compileWith(dialect: Dialect, query: RawBuilder<unknown> | Compilable): CompiledQuery {
  const compiled = 'isRawBuilder' in query ? query.compile(dialect.build) : query.compile();
  return { ...compiled, sql: dialect.finish(compiled.sql) };
}

export const sqliteDialect: Dialect = {
  build: new Kysely<Tables>({
    dialect: {
      createAdapter: () => new SqliteAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (db) => new SqliteIntrospector(db),
      createQueryCompiler: () => new SqliteQueryCompiler(),
    },
  }),
  // jsonb_each, not json_each: the latter renders every element to text and `->>` parses it again.
  rows(param, columns) {
    const picks = Object.entries(columns).map(
      ([name, type], index) =>
        sql`${sql.raw(type === 'json' ? `nullif(value -> ${index}, 'null')` : `value ->> ${index}`)} as ${sql.ref(name)}`,
    );
    return sql`(select ${sql.join(picks)} from jsonb_each(${sql.val(param)}))`;
  },
  guard: (column) => sql.raw(`+${column}`),
  // SQLite plans by the value of a bare `limit ?`: it would prepare the statement anew at every call. An expression it does not look into.
  finish: (text) => text.replaceAll(/\blimit \?/gi, 'limit cast(? as integer)'),
  merge: (a, b) =>
    sql.raw(`case when ${a} is null then ${b} when ${b} is null then ${a} else json_patch(${a}, ${b}) end`),
};
