import { type RawBuilder, sql } from 'kysely';
import type { EventTable, RunTable, TaskTable } from '../store/tables.ts';
import type { Reader } from '../store/tx.ts';
import { isFinal, type TaskState } from './states.ts';

/** What people look at; built on the spot, unlike the hot statements of the verbs. */

export interface TaskFilter {
  status?: TaskState;
  template?: string;
  sessionKey?: string;
  agentId?: string;
  flowId?: number;
  /** Only tasks with a smaller id; for pages. */
  before?: number;
  limit: number;
}

/** Newest first. */
export async function selectTasks(reader: Reader, filter: TaskFilter): Promise<TaskTable[]> {
  const build = reader.dialect.build;
  let query = build.selectFrom('task').selectAll('task').orderBy('task.id', 'desc').limit(filter.limit);
  if (filter.status !== undefined)
    // A literal: SQLite plans by what a partial index says of a bound value, and would prepare the statement anew at every call.
    query = query.where('task.status', '=', sql.lit(filter.status)).where(partOfIndex(filter.status));
  if (filter.template !== undefined) query = query.where('task.template', '=', filter.template);
  if (filter.sessionKey !== undefined) {
    query = query.where('task.session_key', '=', filter.sessionKey);
    // Says nothing new, and leads to the index of what is not over in a conversation.
    if (filter.status !== undefined && !isFinal(filter.status))
      query = query.where('task.session_key', 'is not', null).where('task.ended_at', 'is', null);
  }
  if (filter.flowId !== undefined) query = query.where('task.flow_id', '=', filter.flowId);
  if (filter.before !== undefined) query = query.where('task.id', '<', filter.before);
  if (filter.agentId !== undefined) {
    query = query.where(
      'task.id',
      'in',
      // By the task and not by its run: the run of a task has no index, and a live run is that of its task.
      build
        .selectFrom('run')
        .select('run.task_id')
        .where('run.agent_id', '=', filter.agentId)
        .where('run.lease_until', 'is not', null),
    );
  }
  return reader.fetch(query);
}

/** What leads to the index that knows tasks of this state: most by the partial one of their states, those on an agent by their runs. */
function partOfIndex(status: string): RawBuilder<boolean> {
  if (status === 'succeeded') return sql<boolean>`task.status = 'succeeded'`;
  if (status === 'leased' || status === 'running') {
    return sql<boolean>`task.id in (select run.task_id from run where run.lease_until is not null)`;
  }
  return sql<boolean>`(task.status <> 'leased' and task.status <> 'running' and task.status <> 'succeeded')`;
}

export async function selectTasksById(reader: Reader, ids: readonly number[]): Promise<TaskTable[]> {
  return reader.fetch(
    reader.dialect.build
      .selectFrom('task')
      .selectAll()
      .where('id', 'in', [...ids]),
  );
}

export async function selectRuns(reader: Reader, taskIds: readonly number[]): Promise<RunTable[]> {
  if (taskIds.length === 0) return [];
  return reader.fetch(
    reader.dialect.build
      .selectFrom('run')
      .selectAll()
      .where('task_id', 'in', [...taskIds])
      .orderBy('id'),
  );
}

/** In the order in which they were stored: time first, the server's own before an agent's. */
export async function selectEvents(
  reader: Reader,
  taskId: number,
  types: readonly string[] | null,
): Promise<EventTable[]> {
  let query = reader.dialect.build
    .selectFrom('event')
    .selectAll()
    .where('task_id', '=', taskId)
    .orderBy('at')
    .orderBy('run_id')
    .orderBy('seq');
  if (types !== null) query = query.where('type', 'in', [...types]);
  return reader.fetch(query);
}
