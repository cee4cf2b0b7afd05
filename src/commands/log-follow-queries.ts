import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';
import type { LogFollowTable } from '../store/health-tables.ts';

/** Logs that are followed in chats: few rows, each as long as its task runs. */

export const insertLogFollow = hot<{ rows: unknown[][] }>(
  'log_follow.insert',
  (d, p) => sql`
  insert into log_follow (id, task_id, session_key, route, lang, run_id, seq, sent, next_at, give_up_at)
  select id, task_id, session_key, route, lang, run_id, seq, 0, next_at, give_up_at
  from ${d.rows(p.rows.param, {
    id: 'int',
    task_id: 'int',
    session_key: 'text',
    route: 'json',
    lang: 'text',
    run_id: 'int',
    seq: 'int',
    next_at: 'int',
    give_up_at: 'int',
  })} as r`,
);

export const followsOfSession = hot<{ session: string }, Pick<LogFollowTable, 'id' | 'task_id'>>(
  'log_follow.of_session',
  (_d, p) => sql`select id, task_id from log_follow where session_key = ${p.session}`,
);

export const dueLogFollows = hot<{ now: number; limit: number }, LogFollowTable>(
  'log_follow.due',
  (_d, p) => sql`select * from log_follow where next_at <= ${p.now} order by next_at limit ${p.limit}`,
);

export const logFollowById = hot<{ id: number }, LogFollowTable>(
  'log_follow.by_id',
  (_d, p) => sql`select * from log_follow where id = ${p.id}`,
);

export const advanceLogFollow = hot<{ id: number; run: number; seq: number; sent: number; next: number }>(
  'log_follow.advance',
  (_d, p) => sql`
  update log_follow set run_id = ${p.run}, seq = ${p.seq}, sent = ${p.sent}, next_at = ${p.next} where id = ${p.id}`,
);

export const deleteLogFollow = hot<{ id: number }>(
  'log_follow.delete',
  (_d, p) => sql`delete from log_follow where id = ${p.id}`,
);
