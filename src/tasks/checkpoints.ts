import type { Reader, Tx } from '../store/tx.ts';
import {
  checkpointsByTask,
  deleteCheckpoints,
  markCheckpoints,
  unmarkCheckpoints,
  upsertCheckpoints,
} from './checkpoint-queries.ts';
import type { CheckpointText } from './checkpoint-words.ts';

/** What a run has saved, under the number of its report. */
export interface SavedCheckpoint extends CheckpointText {
  seq: number;
}

export interface NewCheckpoint {
  taskId: number;
  /** The caller has checked that this run holds the task. */
  runId: number;
  saved: SavedCheckpoint;
}

/** A checkpoint as the next attempt gets it. */
export interface Checkpoint {
  /** From 1, one more with each that was saved. */
  version: number;
  data: unknown;
}

/** The new ones take the place of those of earlier runs, and of earlier reports of the same run; one per task. */
export async function saveCheckpoints(tx: Tx, checkpoints: readonly NewCheckpoint[]): Promise<void> {
  const rows = checkpoints.map(({ taskId, runId, saved }) => [taskId, runId, saved.seq, saved.bytes, saved.json]);
  const stored = await tx.all(upsertCheckpoints, { rows, now: tx.now });
  if (stored.length === 0) return;
  await tx.run(markCheckpoints, { rows: stored.map(({ task_id, version }) => [task_id, version]), now: tx.now });
}

/** For tasks that go on from nothing: they have succeeded, or are to be done with other arguments. */
export async function forgetCheckpoints(tx: Tx, taskIds: readonly number[]): Promise<void> {
  const rows = taskIds.map((id) => [id]);
  await tx.run(deleteCheckpoints, { rows });
  await tx.run(unmarkCheckpoints, { rows });
}

/** By task, of those that have one. */
export async function checkpointsOf(reader: Reader, taskIds: readonly number[]): Promise<Map<number, Checkpoint>> {
  if (taskIds.length === 0) return new Map();
  const rows = await reader.all(checkpointsByTask, { rows: taskIds.map((id) => [id]) });
  return new Map(rows.map(({ task_id, version, data }) => [task_id, { version, data: JSON.parse(data) as unknown }]));
}
