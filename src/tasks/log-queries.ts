import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** What runs printed, and what their agents said of them; by the primary key of the events, so a page costs what it holds. */

export interface LogRow {
  run_id: number;
  seq: number;
  type: string;
  at: number;
  data: string;
  attempt: number;
  generation: number;
  agent_id: string;
}

/** The next ones after a place, oldest first. */
export const logsAfter = hot<{ task: number; run: number; seq: number; limit: number }, LogRow>(
  'log.after',
  (_d, p) => sql`
  select event.run_id, event.seq, event.type, event.at, event.data, run.attempt, run.generation, run.agent_id
  from event cross join run on run.id = event.run_id
  where event.task_id = ${p.task} and (event.run_id, event.seq) > (${p.run}, ${p.seq})
    and (event.type = 'log' or event.type = 'snapshot')
  order by event.run_id, event.seq limit ${p.limit}`,
);

/** The last ones, newest first. */
export const logsAtEnd = hot<{ task: number; limit: number }, LogRow>(
  'log.at_end',
  (_d, p) => sql`
  select event.run_id, event.seq, event.type, event.at, event.data, run.attempt, run.generation, run.agent_id
  from event cross join run on run.id = event.run_id
  where event.task_id = ${p.task} and (event.type = 'log' or event.type = 'snapshot')
  order by event.run_id desc, event.seq desc limit ${p.limit}`,
);

export const logTaskState = hot<{ task: number }, { status: string }>(
  'log.task_state',
  (_d, p) => sql`select status from task where id = ${p.task}`,
);
