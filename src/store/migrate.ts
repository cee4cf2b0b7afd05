import type { Database as Connection } from 'better-sqlite3';
import { AppError } from '../errors.ts';
import { initialSchema } from './migrations/0001-initial.ts';
import { effectsSchema } from './migrations/0002-effects.ts';
import { retriesSchema } from './migrations/0003-retries.ts';
import { retentionSchema } from './migrations/0004-retention.ts';
import { breakersSchema } from './migrations/0005-breakers.ts';
import { needsSchema } from './migrations/0006-needs.ts';
import { checkpointsSchema } from './migrations/0007-checkpoints.ts';
import { joinTokensSchema } from './migrations/0008-join-tokens.ts';
import { agentDrainsSchema } from './migrations/0009-agent-drains.ts';
import { artifactsSchema } from './migrations/0010-artifacts.ts';
import { healthSchema } from './migrations/0011-health.ts';
import { releasesSchema } from './migrations/0012-releases.ts';
import { boundsSchema } from './migrations/0013-bounds.ts';
import { marksSchema } from './migrations/0014-marks.ts';
import { deliverySchema } from './migrations/0015-delivery.ts';
import { accessSchema } from './migrations/0016-access.ts';

export interface Migration {
  readonly version: number;
  readonly name: string;
  readonly statements: readonly string[];
}

/** Forward only, in order, never edited once released. */
export const MIGRATIONS: readonly Migration[] = [
  initialSchema,
  effectsSchema,
  retriesSchema,
  retentionSchema,
  breakersSchema,
  needsSchema,
  checkpointsSchema,
  joinTokensSchema,
  agentDrainsSchema,
  artifactsSchema,
  healthSchema,
  releasesSchema,
  boundsSchema,
  marksSchema,
  deliverySchema,
  accessSchema,
];

/**
 * Brings the schema up to date. Each migration and its version row are one transaction: a crash or a failing statement leaves no half
 * step. Two processes that start together: the second waits for the first.
 * @throws AppError invalid_config when the database is newer than this program.
 */
export function migrate(connection: Connection, migrations: readonly Migration[] = MIGRATIONS): void {
  connection.exec(
    'create table if not exists migration (version integer primary key, name text not null, applied_at integer not null)',
  );
  for (const migration of migrations) apply(connection, migration);
  const newest = currentVersion(connection);
  if (newest > (migrations.at(-1)?.version ?? 0)) {
    throw new AppError(
      'invalid_config',
      `the database has schema version ${newest}, this program knows ${migrations.at(-1)?.version ?? 0}: upgrade Errand`,
    );
  }
}

function apply(connection: Connection, migration: Migration): void {
  connection.exec('begin immediate');
  try {
    if (currentVersion(connection) < migration.version) {
      for (const statement of migration.statements) connection.exec(statement);
      connection
        .prepare('insert into migration (version, name, applied_at) values (?, ?, ?)')
        .run(migration.version, migration.name, Date.now());
    }
    connection.exec('commit');
  } catch (error) {
    if (connection.inTransaction) connection.exec('rollback');
    throw new AppError(
      'invalid_config',
      `migration ${migration.version} (${migration.name}) failed; nothing of it was applied`,
      { cause: error },
    );
  }
}

function currentVersion(connection: Connection): number {
  const row = connection.prepare('select coalesce(max(version), 0) as version from migration').get() as {
    version: number;
  };
  return row.version;
}
