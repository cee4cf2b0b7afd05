import { AppError } from '../errors.ts';
import type { Store } from '../store/store.ts';
import { type CancelAnswer, cancelTasksVerb } from './cancel.ts';
import { createTasksVerb } from './create.ts';
import { taskHeads } from './queries.ts';
import { type ReportOutcome, type RunNews, reportRunsVerb } from './report.ts';
import { runsById } from './run-queries.ts';
import type { ErrorClass } from './run-words.ts';
import { endAsLost } from './sweep.ts';
import type { CreateAnswer, Emit, NewTask, TaskEvent } from './task.ts';

/** A run as the executor's callers know it. `seq` must be fresh for the run; a repeated one changes nothing. */
export interface RunHandle {
  agentId: string;
  runId: number;
  leaseToken: string;
  seq: number;
}

/**
 * The task registry's verbs under the names of the article that Errand comes from, for use as a library. Each is one durable
 * transaction; answers are values (`lease_lost`, `duplicate`), not exceptions.
 */
export function createExecutor(store: Store, emit: Emit<TaskEvent>) {
  const create = createTasksVerb(emit);
  const report = reportRunsVerb(emit);
  const cancel = cancelTasksVerb(emit);
  const tell = async ({ agentId, runId, leaseToken, seq }: RunHandle, news: RunNews): Promise<ReportOutcome> =>
    (await store.write(report, [{ agentId, runId, leaseToken, seq, news }]))[0]!;

  return {
    createQueuedTaskRun: async (task: NewTask): Promise<CreateAnswer> => (await store.write(create, [task]))[0]!,
    startTaskRunByRunId: (run: RunHandle) => tell(run, { type: 'started' }),
    recordTaskRunProgressByRunId: (run: RunHandle, progress: { percent?: number; message?: string }) =>
      tell(run, { type: 'progress', ...progress }),
    completeTaskRunByRunId: (
      run: RunHandle,
      end: { summary: string; outputs?: Record<string, string>; exitCode?: number },
    ) => tell(run, { type: 'succeeded', ...end }),
    failTaskRunByRunId: (
      run: RunHandle,
      end: { errorClass: ErrorClass; error: string; exitCode?: number; signal?: string },
    ) => tell(run, { type: 'failed', ...end }),
    cancelDetachedTaskRunById: async (id: number, by: string): Promise<CancelAnswer> =>
      (await store.write(cancel, [{ id, by }]))[0]!,
    /** Ends the current run of a task as lost: queued again while executions are left, else `lost`. False: it holds no run. */
    markTaskRunLostById: (id: number): Promise<boolean> =>
      store.transact('task.mark_lost', (tx) => markLost(tx, id, emit)),
  };
}

async function markLost(
  tx: Parameters<Parameters<Store['transact']>[1]>[0],
  id: number,
  emit: Emit<TaskEvent>,
): Promise<boolean> {
  const head = (await tx.all(taskHeads, { rows: [[id]] }))[0];
  if (!head) throw new AppError('not_found', 'there is no such task');
  if (head.run_id === null) return false;
  return (await endAsLost(tx, await tx.all(runsById, { rows: [[head.run_id]] }), emit)) > 0;
}
