import type { Store } from '../store/store.ts';
import type { Verb } from '../store/tx.ts';
import type { ReportOutcome, RunReport } from '../tasks/report.ts';
import { insertLateEnds } from './late-ends-queries.ts';
import { type Report, TERMINAL_REPORTS } from './protocol.ts';

/**
 * An end that comes so much later than it was, by the agent's clock, has waited for the gateway; milliseconds. Of reports that come by
 * the usual way more is asked, so that a clock that is a little slow does not cost a write with every one of them.
 */
export const LATE_MS = { registration: 1_000, report: 60_000 } as const;
/** Reports of agents count from 0. */
const SEQ = -20;

interface LateEnd {
  runId: number;
  /** By the agent's clock: information, nothing is decided by it. */
  endedAt: number;
}

const noteVerb: Verb<LateEnd, null> = {
  name: 'agents.late_ends',
  rank: 90,
  async run(tx, items) {
    const rows = items.map(({ runId, endedAt }) => [runId, { endedAt }]);
    await tx.run(insertLateEnds, { rows, now: tx.now, seq: SEQ });
    return items.map(() => null);
  },
};

interface Batch {
  /** What ended later is not late. */
  before: number;
  reports: readonly Report[];
  /** One for each report, null where it names no run. */
  valid: readonly (RunReport | null)[];
  /** Of the others, in their order. */
  outcomes: readonly ReportOutcome[];
}

/**
 * When the gateway was away, a run counts as ended when it came back: the time at which the program did end is kept as an event.
 * Undefined, and nothing to wait for, where no report of the batch has waited.
 */
export function noteLateEnds(store: Store, { before, reports, valid, outcomes }: Batch): Promise<null[]> | undefined {
  const late: LateEnd[] = [];
  let next = 0;
  for (const [index, { at, type }] of reports.entries()) {
    const report = valid[index];
    if (!report) continue;
    const outcome = outcomes[next++]!;
    if (at === undefined || at > before || at <= 0 || !TERMINAL_REPORTS.has(type)) continue;
    if (outcome.result === 'accepted' || outcome.result === 'duplicate')
      late.push({ runId: report.runId, endedAt: Math.round(at) });
  }
  return late.length === 0 ? undefined : store.write(noteVerb, late);
}
