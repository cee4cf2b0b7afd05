import { sql } from 'kysely';
import { hot } from '../store/dialect.ts';

/** Who asked for the errand that began this flow; none for flows that were made through the API. */
export const askerOfFlow = hot<{ flow: number }, { user_id: string }>(
  'command.asker',
  (_d, p) => sql`select user_id from followup where flow_id = ${p.flow} order by id limit 1`,
);
