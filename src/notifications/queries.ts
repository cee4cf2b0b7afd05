import { sql } from 'kysely';
import type { Lang } from '../sessions/lang.ts';
import { hot } from '../store/dialect.ts';

/** Where the messages of a flow go, and what decides their language. */
export interface FlowHome {
  id: number;
  /** JSON of the route; null: nobody can be told. */
  route: string | null;
  owner_session_key: string;
  goal: string;
  lang: Lang | null;
}

/** The homes of all flows of a batch. */
export const flowHomes = hot<{ rows: unknown[][] }, FlowHome>(
  'notify.homes',
  (d, p) => sql`
  select flow.id, flow.route, flow.owner_session_key, flow.goal, session.lang
  from ${d.rows(p.rows.param, { id: 'int' })} as r cross join flow on flow.id = r.id
  left join session on session.session_key = flow.owner_session_key`,
);
