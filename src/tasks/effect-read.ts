import type { IdCodec } from '../ids.ts';
import type { Reader } from '../store/tx.ts';
import type { EffectPolicy, EffectState } from './effect-words.ts';
import {
  type EffectFilter,
  type EffectRow,
  selectEffect,
  selectEffects,
  selectWaiting,
  type WaitRow,
} from './effects-queries.ts';

/** A side effect as the outside sees it. */
export interface EffectRecord {
  effectId: string;
  type: string;
  key: string;
  state: EffectState;
  /** Begun by a run that is over and never said how it ended. */
  uncertain: boolean;
  policy: EffectPolicy;
  digest?: string;
  result?: string;
  error?: string;
  firstTaskId: string;
  firstRunId: string;
  /** Who began it last. */
  taskId: string;
  /** Absent: given back; whoever begins it next is the first. */
  runId?: string;
  /** How many runs have begun it. */
  begins: number;
  /** Tasks that are blocked until somebody resolves it. */
  waiting: string[];
  /** What its run said after its own end. */
  late?: { outcome: string; at: number; result?: string; error?: string };
  resolvedBy?: string;
  resolvedAt?: number;
  reason?: string;
  createdAt: number;
  updatedAt: number;
}

/** Newest first. */
export async function listEffects(reader: Reader, ids: IdCodec, filter: EffectFilter): Promise<EffectRecord[]> {
  return effectRecords(reader, ids, await selectEffects(reader, filter));
}

export async function getEffect(
  reader: Reader,
  ids: IdCodec,
  type: string,
  key: string,
): Promise<EffectRecord | undefined> {
  const row = await selectEffect(reader, type, key);
  return row && (await effectRecords(reader, ids, [row]))[0];
}

/** Rows with the tasks that wait for them. */
export async function effectRecords(reader: Reader, ids: IdCodec, rows: readonly EffectRow[]): Promise<EffectRecord[]> {
  const waits = await selectWaiting(
    reader,
    rows.filter((row) => row.state === 'init').map((row) => row.id),
  );
  return rows.map((row) => effectRecord(row, waits, ids));
}

function effectRecord(row: EffectRow, waits: readonly WaitRow[], ids: IdCodec): EffectRecord {
  const waiting = waits.filter((wait) => wait.effect_id === row.id).map((wait) => ids.encode(wait.task_id));
  return {
    effectId: ids.encode(row.id),
    type: row.type,
    key: row.key,
    state: row.state.toUpperCase() as EffectState,
    uncertain: row.state === 'init' && row.run_id !== null && row.held === 0,
    policy: row.policy as EffectPolicy,
    digest: row.digest ?? undefined,
    result: row.result ?? undefined,
    error: row.error ?? undefined,
    firstTaskId: ids.encode(row.first_task_id),
    firstRunId: ids.encode(row.first_run_id),
    taskId: ids.encode(row.task_id),
    runId: row.run_id === null ? undefined : ids.encode(row.run_id),
    begins: row.begins,
    waiting,
    late: row.late === null ? undefined : (JSON.parse(row.late) as EffectRecord['late']),
    resolvedBy: row.resolved_by ?? undefined,
    resolvedAt: row.resolved_at ?? undefined,
    reason: row.reason ?? undefined,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}
