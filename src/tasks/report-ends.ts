import { ruleFor } from './classify.ts';
import { decide, factsOf, policyOf, type RunEnd } from './decide.ts';
import type { RunNews } from './report.ts';
import type { HeldRun } from './run-queries.ts';
import { NO_RESULT, type RunEnding, type RunResult } from './transition.ts';

/** The last word of a run, and what else the same batch says about it. */
export interface ReportedEnd {
  run: HeldRun;
  started: boolean;
  outputs: Record<string, string> | null;
  /** Of a kind that ends a run. */
  end: RunNews;
}

/** How a run ends by what it said, all of one batch joined; `now` of the transaction. */
export function endingOf({ run, started, outputs, end }: ReportedEnd, now: number): RunEnding {
  const { runEnd, result } = describe(classified(end, run), outputs);
  // A program whose end is reported has run, also where its `started` report was lost.
  const ran = started || run.status === 'running' || (end.type !== 'released' && end.type !== 'cancelled');
  const attempt = run.status === 'leased' && ran ? run.attempt + 1 : run.attempt;
  return { run, decision: decide(runEnd, factsOf(run, attempt, ran, now)), result, started: ran };
}

function classified(end: RunNews, run: HeldRun): RunNews {
  if (end.type !== 'failed' || (end.httpStatus === undefined && end.errorType === undefined)) return end;
  return { ...end, errorClass: ruleFor(end, policyOf(run)?.on ?? {}) ?? end.errorClass };
}

function describe(end: RunNews, outputs: Record<string, string> | null): { runEnd: RunEnd; result: RunResult } {
  const result: RunResult = { ...NO_RESULT, outputs };
  switch (end.type) {
    case 'succeeded':
      return {
        runEnd: { outcome: 'succeeded' },
        result: {
          ...result,
          summary: end.summary,
          outputs: end.outputs || outputs ? { ...outputs, ...end.outputs } : null,
          exitCode: end.exitCode ?? null,
        },
      };
    case 'failed':
      return {
        runEnd: { outcome: 'failed', errorClass: end.errorClass, retryAfterMs: end.retryAfterMs ?? null },
        result: {
          ...result,
          summary: end.summary ?? null,
          error: end.error,
          errorClass: end.errorClass,
          exitCode: end.exitCode ?? null,
          signal: end.signal ?? null,
        },
      };
    case 'needs_input':
      return {
        runEnd: { outcome: 'needs_input' },
        result: { ...result, question: { prompt: end.prompt, options: end.options ?? [] } },
      };
    case 'blocked':
      return { runEnd: { outcome: 'blocked' }, result: { ...result, summary: end.summary } };
    case 'timed_out':
      return {
        runEnd: { outcome: 'timed_out' },
        result: { ...result, summary: end.summary ?? null, error: 'the time limit of the run was reached' },
      };
    case 'cancelled':
      return { runEnd: { outcome: 'cancelled' }, result: { ...result, summary: end.summary ?? null } };
    default:
      return { runEnd: { outcome: 'released' }, result };
  }
}
