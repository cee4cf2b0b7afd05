import type { Database } from 'better-sqlite3';
import { type HotQuery, Param, sqliteDialect } from '../../src/store/dialect.ts';

/** The steps by which the database would run a statement, in order; arrays are empty and all other values 1. */
export function planOf<P extends Record<string, unknown>>(connection: Database, query: HotQuery<P, unknown>): string[] {
  const compiled = query.compile(sqliteDialect);
  const values = compiled.parameters.map((value) =>
    value instanceof Param ? (value.name.endsWith('ows') ? '[]' : 1) : value,
  );
  const steps = connection.prepare(`explain query plan ${compiled.sql}`).all(values) as { detail: string }[];
  return steps.map(({ detail }) => detail);
}
