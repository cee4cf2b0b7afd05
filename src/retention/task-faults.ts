import type { Finding } from './findings.ts';

/** Faults that the row of a task shows by itself. Pure. */

export interface TaskRow {
  id: number;
  status: string;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  cleanup_after: number | null;
  run_id: number | null;
  /** 1 where `run_id` is a run that is live. */
  run_live: number;
}

/** How far a clock may run ahead of ours before its times are called wrong. */
export const AHEAD_MS = 300_000;

/** What the row of a task alone tells. */
export function taskFaults(rows: readonly TaskRow[], now: number): Finding[] {
  return rows.flatMap((row) => {
    const task = { kind: 'task', id: row.id, taskId: row.id } as const;
    const found: Finding[] = [];
    if (row.run_id !== null && row.run_live === 0) {
      found.push({
        ...task,
        code: 'stale_running',
        since: null,
        problem: `${row.status}, but the run that holds it is over`,
        fix: 'lose_task',
        advice: 'cancel it (errand tasks cancel)',
      });
    }
    if (row.ended_at !== null && row.cleanup_after === null) {
      found.push({
        ...task,
        code: 'missing_cleanup',
        since: row.ended_at,
        problem: 'over, but without a time to be cleaned up: it would be kept for ever',
        fix: 'set_cleanup',
        advice: 'run the audit with --fix',
      });
    }
    const times = wrongTimes(row, now);
    if (times.length > 0) {
      found.push({
        ...task,
        code: 'inconsistent_times',
        since: row.ended_at,
        problem: times.join('; '),
        fix: 'correct_times',
        advice: 'see whether the clock of this machine is right',
      });
    }
    return found;
  });
}

type Times = Pick<TaskRow, 'created_at' | 'started_at' | 'ended_at' | 'cleanup_after'>;

function wrongTimes({ created_at, started_at, ended_at, cleanup_after }: Times, now: number): string[] {
  const wrong: string[] = [];
  if (started_at !== null && started_at < created_at) wrong.push('started before it was created');
  if (ended_at !== null && ended_at < (started_at ?? created_at)) {
    wrong.push(started_at === null ? 'ended before it was created' : 'ended before it started');
  }
  if (ended_at !== null && Math.max(created_at, started_at ?? 0, ended_at) > now + AHEAD_MS)
    wrong.push('over, with a time that has not come yet');
  if (ended_at !== null && cleanup_after !== null && cleanup_after < ended_at)
    wrong.push('to be cleaned up before it ended');
  return wrong;
}

/** Times in order, and none of them ahead of now; for tasks that are over. Those of a live one are only put in order. */
export function correctedTimes(row: Times, now: number, retentionMs: number): Times {
  const notAhead = (at: number) => (row.ended_at === null ? at : Math.min(at, now));
  const created_at = notAhead(row.created_at);
  const started_at = row.started_at === null ? null : Math.max(created_at, notAhead(row.started_at));
  const ended_at = row.ended_at === null ? null : Math.max(started_at ?? created_at, notAhead(row.ended_at));
  const moved = ended_at !== row.ended_at || (row.cleanup_after ?? 0) < (ended_at ?? 0);
  const cleanup_after =
    ended_at !== null && row.cleanup_after !== null && moved ? ended_at + retentionMs : row.cleanup_after;
  return { created_at, started_at, ended_at, cleanup_after };
}
