import type { Tx, Verb } from '../store/tx.ts';
import { type BeginCall, decideBegin, decideMark, type KnownEffect, type MarkCall } from './effect-decisions.ts';
import type { EffectBeginAnswer, EffectMarkAnswer, EffectRefusal } from './effect-words.ts';
import {
  type EffectRow,
  effectsByKey,
  insertEffects,
  markEffects,
  noteLateWords,
  takeEffects,
  upsertWaits,
} from './effects-queries.ts';
import { judge } from './report.ts';
import { type HeldRun, runsById } from './run-queries.ts';

/** Who asks: one run, with its fence. */
export interface EffectCaller {
  /** The authenticated agent; another agent's run is out of its reach. */
  agentId: string;
  runId: number;
  leaseToken: string;
}

export type EffectBegin = EffectCaller & BeginCall;
export type EffectMark = EffectCaller & MarkCall;

/**
 * A run is about to do something outside that must not be done twice. Of all runs that ask for one (type, key), exactly one at a time
 * is told `first`; the run that holds it is told so again, as its answer may have been lost. A run that is over is told `lease_lost`
 * and changes nothing.
 */
export const beginEffects: Verb<EffectBegin, EffectBeginAnswer> = {
  name: 'effect.begin',
  // After the reports of the same turn: a run that has ended begins nothing.
  rank: 15,
  async run(tx, calls) {
    const runs = await runsOf(tx, calls);
    const known = await knownEffects(tx, calls);
    const change = new Change();
    const answers = calls.map((call): EffectBeginAnswer => {
      const run = runs.get(call.runId);
      return refusalOf(call, run) ?? begin(call, run!, known, change);
    });
    await change.write(tx);
    return answers;
  },
};

/**
 * The run that holds an effect says how it ended. Repeated calls are told the same; where a person has decided otherwise, or another
 * run has taken over, nothing changes. What a run says after its own end is noted for the person who decides, and changes nothing.
 */
export const markEffectsVerb: Verb<EffectMark, EffectMarkAnswer> = {
  name: 'effect.mark',
  rank: 15,
  async run(tx, calls) {
    const runs = await runsOf(tx, calls);
    const known = await knownEffects(tx, calls);
    const change = new Change();
    const answers = calls.map((call): EffectMarkAnswer => {
      const effect = known.get(keyOf(call));
      const refusal = refusalOf(call, runs.get(call.runId));
      if (refusal === null) return mark(call, effect, change);
      if (refusal.answer === 'lease_lost' && effect) change.late.push([effect.id, call.runId, lateWord(call, tx.now)]);
      return refusal;
    });
    await change.write(tx);
    return answers;
  },
};

/** What a batch of calls writes, one statement for each kind. */
class Change {
  readonly fresh: KnownEffect[] = [];
  readonly taken: unknown[][] = [];
  readonly waits: { effect: KnownEffect; run: HeldRun }[] = [];
  readonly marked: unknown[][] = [];
  readonly late: unknown[][] = [];

  async write(tx: Tx): Promise<void> {
    await this.#insert(tx);
    await applyAll(tx, takeEffects, this.taken);
    await applyAll(tx, markEffects, this.marked);
    if (this.late.length > 0) await tx.run(noteLateWords, { rows: this.late });
    if (this.waits.length > 0)
      await tx.run(upsertWaits, { rows: this.waits.map(({ effect, run }) => [effect.id, run.task_id, run.run_id]) });
  }

  async #insert(tx: Tx): Promise<void> {
    if (this.fresh.length === 0) return;
    const first = await tx.ids(this.fresh.length);
    const rows = this.fresh.map((effect, index) => {
      effect.id = first + index;
      return [effect.id, effect.type, effect.key, effect.policy, effect.digest, effect.task_id, effect.run_id];
    });
    await tx.run(insertEffects, { rows, now: tx.now });
  }
}

/** Compare-and-set on the run that the decision was made from; the whole batch or nothing. */
async function applyAll(tx: Tx, statement: typeof takeEffects, rows: readonly unknown[][]): Promise<void> {
  if (rows.length === 0) return;
  const changed = await tx.run(statement, { rows: [...rows], now: tx.now });
  if (changed !== rows.length) throw new Error(`${rows.length} effects were to change, but ${changed} did`);
}

async function runsOf(tx: Tx, calls: readonly EffectCaller[]): Promise<Map<number, HeldRun>> {
  const rows = [...new Set(calls.map(({ runId }) => runId))].map((id) => [id]);
  return new Map((await tx.all(runsById, { rows })).map((run) => [run.run_id, run]));
}

const keyOf = ({ type, key }: { type: string; key: string }) => JSON.stringify([type, key]);

async function knownEffects(
  tx: Tx,
  calls: readonly { type: string; key: string }[],
): Promise<Map<string, KnownEffect>> {
  const distinct = new Map(calls.map((call) => [keyOf(call), [call.type, call.key]]));
  const rows = await tx.all(effectsByKey, { rows: [...distinct.values()] });
  return new Map(rows.map((row: EffectRow): [string, KnownEffect] => [keyOf(row), { ...row, held: row.held === 1 }]));
}

function refusalOf(call: EffectCaller, run: HeldRun | undefined): EffectRefusal | null {
  const verdict = judge(call, run);
  return verdict === null ? null : { answer: verdict.result, reason: verdict.reason };
}

function begin(call: EffectBegin, run: HeldRun, known: Map<string, KnownEffect>, change: Change): EffectBeginAnswer {
  const effect = known.get(keyOf(call));
  if (!effect) {
    const fresh = freshEffect(call, run);
    // Those who come later in the same batch find it begun.
    known.set(keyOf(call), fresh);
    change.fresh.push(fresh);
    return { answer: 'first', repeat: false };
  }
  const { answer, takes } = decideBegin(call, effect);
  if (takes) {
    change.taken.push([effect.id, effect.run_id, run.task_id, run.run_id, call.digest]);
    Object.assign(effect, {
      run_id: run.run_id,
      task_id: run.task_id,
      digest: effect.digest ?? call.digest,
      held: true,
    });
  }
  if (answer.answer === 'uncertain' && answer.policy === 'ask') change.waits.push({ effect, run });
  return answer;
}

function freshEffect({ type, key, digest, policy }: EffectBegin, run: HeldRun): KnownEffect {
  return {
    id: 0,
    type,
    key,
    state: 'init',
    policy,
    digest,
    result: null,
    error: null,
    task_id: run.task_id,
    run_id: run.run_id,
    updated_at: 0,
    held: true,
  };
}

function mark(call: EffectMark, effect: KnownEffect | undefined, change: Change): EffectMarkAnswer {
  if (!effect) return { answer: 'unknown', reason: 'nobody has begun this effect; begin it first' };
  const { answer, writes } = decideMark(call, effect);
  if (writes) {
    Object.assign(effect, writes);
    change.marked.push([effect.id, call.runId, effect.state, effect.run_id, effect.result, effect.error]);
  }
  return answer;
}

function lateWord({ outcome, result, error }: EffectMark, now: number) {
  return { outcome, at: now, ...(result === null ? {} : { result }), ...(error === null ? {} : { error }) };
}
