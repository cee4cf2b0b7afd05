import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { DeadLetterTable } from '../store/retry-tables.ts';
import type { Reader } from '../store/tx.ts';
import type { LetterState } from './states.ts';

/** Statements of dead letters. Only tasks that end without success, and people, run them. */

/** One letter per task: a task that dies again gets its letter back, renewed. Once per generation. */
export const buryTasks = hot<{ rows: unknown[][]; now: number }>(
  'dead.bury',
  (d, p) => sql`
  insert into dead_letter (task_id, seq, template, session_key, state, status, generation, attempt, deaths, error, error_class,
    reason, first_died_at, died_at)
  select task_id, seq, template, session_key, 'dead', status, generation, attempt, 1, error, error_class, reason, ${p.now}, ${p.now}
  from ${d.rows(p.rows.param, {
    task_id: 'int',
    seq: 'int',
    template: 'text',
    session_key: 'text',
    status: 'text',
    generation: 'int',
    attempt: 'int',
    error: 'text',
    error_class: 'text',
    reason: 'text',
  })} as r
  where true
  on conflict (task_id) do update set seq = excluded.seq, state = 'dead', status = excluded.status,
    generation = excluded.generation, attempt = excluded.attempt, deaths = dead_letter.deaths + 1, error = excluded.error,
    error_class = excluded.error_class, reason = excluded.reason, died_at = excluded.died_at, decided_at = null,
    decided_by = null, note = null
  where excluded.generation > dead_letter.generation`,
);

/** Letters of tasks that were started again, by whatever way; answers those that were not yet marked. */
export const markReplayed = hot<{ rows: unknown[][]; now: number }, { task_id: number }>(
  'dead.replayed',
  (d, p) => sql`
  update dead_letter set state = 'replayed', decided_at = ${p.now}, decided_by = r.actor, note = r.note
  from ${d.rows(p.rows.param, { id: 'int', actor: 'text', note: 'text' })} as r
  where dead_letter.task_id = r.id and ${d.guard('dead_letter.state')} <> 'replayed'
  returning task_id`,
);

export const markDiscarded = hot<{ rows: unknown[][]; now: number }, { task_id: number }>(
  'dead.discarded',
  (d, p) => sql`
  update dead_letter set state = 'discarded', decided_at = ${p.now}, decided_by = r.actor, note = r.note
  from ${d.rows(p.rows.param, { id: 'int', actor: 'text', note: 'text' })} as r
  where dead_letter.task_id = r.id and ${d.guard('dead_letter.state')} = 'dead'
  returning task_id`,
);

/** A letter with what its task is by now. */
export type LetterRow = DeadLetterTable & {
  task_status: string;
  label: string | null;
  args: string;
  errorZh: string | null;
};

const letterColumns = sql`dead_letter.*, task.status as task_status, task.label, task.args, task.error_zh as "errorZh"`;

export const lettersOfTasks = hot<{ rows: unknown[][] }, LetterRow>(
  'dead.of_tasks',
  (d, p) => sql`
  select ${letterColumns} from ${d.rows(p.rows.param, { id: 'int' })} as r
  cross join dead_letter on dead_letter.task_id = r.id cross join task on task.id = r.id`,
);

export interface LetterFilter {
  state?: LetterState;
  template?: string;
  sessionKey?: string;
  /** Only letters before this one in the list; for pages. */
  beforeSeq?: number;
  /** Only those that died before this moment, epoch milliseconds. */
  diedBefore?: number;
  /** Default: the last to die first. */
  oldestFirst?: boolean;
  limit: number;
}

export async function selectLetters(reader: Reader, filter: LetterFilter): Promise<LetterRow[]> {
  let query = reader.dialect.build
    .selectFrom('dead_letter')
    .innerJoin('task', 'task.id', 'dead_letter.task_id')
    .selectAll('dead_letter')
    .select(['task.status as task_status', 'task.label', 'task.args', 'task.error_zh as errorZh'])
    .orderBy('dead_letter.seq', filter.oldestFirst ? 'asc' : 'desc')
    .limit(filter.limit);
  const { state, template, sessionKey, beforeSeq, diedBefore } = filter;
  if (state !== undefined) query = query.where('dead_letter.state', '=', state === 'recovered' ? 'replayed' : state);
  if (state === 'recovered') query = query.where('task.status', '=', 'succeeded');
  if (state === 'replayed') query = query.where('task.status', '<>', 'succeeded');
  if (template !== undefined) query = query.where('dead_letter.template', '=', template);
  if (sessionKey !== undefined) query = query.where('dead_letter.session_key', '=', sessionKey);
  if (beforeSeq !== undefined) query = query.where('dead_letter.seq', '<', beforeSeq);
  if (diedBefore !== undefined) query = query.where('dead_letter.died_at', '<', diedBefore);
  return reader.fetch(query);
}
