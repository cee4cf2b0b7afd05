import { sql } from 'kysely';
import type { ArtifactTable } from '../store/artifact-tables.ts';
import { hot } from '../store/dialect.ts';

/** Statements of artifacts; only runs that bring files home run them. */

/** The task of a run that this agent still holds; no row where the fence has moved on. */
export const heldRun = hot<{ run_id: number; agent_id: string; lease_token: string }, { task_id: number }>(
  'artifact.held_run',
  (_d, p) => sql`
  select task_id from run where id = ${p.run_id} and agent_id = ${p.agent_id} and lease_token = ${p.lease_token}
    and ended_at is null`,
);

/** The template of a run that this agent still holds. */
export const heldTemplate = hot<{ run_id: number; agent_id: string; lease_token: string }, { template: string }>(
  'artifact.held_template',
  (_d, p) => sql`
  select task.template from run cross join task on task.id = run.task_id where run.id = ${p.run_id}
    and run.agent_id = ${p.agent_id} and run.lease_token = ${p.lease_token} and run.ended_at is null`,
);

export const artifactsOfRun = hot<{ run_id: number }, Pick<ArtifactTable, 'name' | 'bytes' | 'sha256'>>(
  'artifact.of_run',
  (_d, p) => sql`select name, bytes, sha256 from artifact where run_id = ${p.run_id}`,
);

/** Only for runs that are held in this very transaction; the same name twice is one row, the first. */
export const insertArtifacts = hot<{ rows: unknown[][]; now: number }, { id: number }>(
  'artifact.insert',
  (d, p) => sql`
  insert into artifact (id, task_id, run_id, name, bytes, sha256, file, created_at)
  select r.id, run.task_id, r.run_id, r.name, r.bytes, r.sha256, r.file, ${p.now}
  from ${d.rows(p.rows.param, {
    id: 'int',
    run_id: 'int',
    agent_id: 'text',
    lease_token: 'text',
    name: 'text',
    bytes: 'int',
    sha256: 'text',
    file: 'text',
  })} as r cross join run on run.id = r.run_id
  where run.agent_id = r.agent_id and run.lease_token = r.lease_token and run.ended_at is null
  on conflict (run_id, name) do nothing
  returning id`,
);

export const artifactsOfTasks = hot<{ rows: number[][] }, ArtifactTable>(
  'artifact.of_tasks',
  (d, p) => sql`
  select artifact.* from ${d.rows(p.rows.param, { id: 'int' })} as r cross join artifact on artifact.task_id = r.id`,
);

/** With the conversation that its task belongs to. */
export const artifactById = hot<{ id: number }, ArtifactTable & { session_key: string | null }>(
  'artifact.by_id',
  (_d, p) => sql`
  select artifact.*, task.session_key from artifact cross join task on task.id = artifact.task_id where artifact.id = ${p.id}`,
);

/** Which of these files belong to a row. */
export const knownFiles = hot<{ rows: string[][] }, { file: string }>(
  'artifact.known_files',
  (d, p) => sql`
  select artifact.file from ${d.rows(p.rows.param, { file: 'text' })} as r cross join artifact on artifact.file = r.file`,
);
