import type { EffectTable } from '../store/tables.ts';
import type { EffectBeginAnswer, EffectMarkAnswer, EffectPolicy } from './effect-words.ts';

/** What one run asks before it acts. */
export interface BeginCall {
  type: string;
  key: string;
  /** Of what is to be done; compared where both sides have one. */
  digest: string | null;
  /** Counts at the first begin; the effect keeps it. */
  policy: EffectPolicy;
}

/** What a run says after it has acted, or has not. */
export interface MarkCall {
  type: string;
  key: string;
  /** `again`: it certainly did not take place. */
  outcome: 'success' | 'fail' | 'again';
  result: string | null;
  error: string | null;
}

/** An effect as the decisions see it. */
export type KnownEffect = Pick<
  EffectTable,
  'type' | 'key' | 'state' | 'policy' | 'digest' | 'result' | 'error' | 'task_id' | 'run_id' | 'updated_at'
> & {
  id: number;
  /** The run that began it has not ended. */
  held: boolean;
};

/** What a run that wants to act is told about an effect that somebody has begun, and whether it takes it over. */
export function decideBegin(
  call: BeginCall & { runId: number },
  effect: KnownEffect,
): { answer: EffectBeginAnswer; takes: boolean } {
  const told = (answer: EffectBeginAnswer, takes = false) => ({ answer, takes });
  if (call.digest !== null && effect.digest !== null && call.digest !== effect.digest)
    return told({ answer: 'conflict', reason: 'this effect was begun before with another digest' });
  if (effect.state === 'success') return told({ answer: 'done', result: effect.result });
  if (effect.state === 'fail') return told({ answer: 'failed', error: effect.error });
  if (effect.run_id === call.runId) return told({ answer: 'first', repeat: false });
  if (effect.run_id === null) return told({ answer: 'first', repeat: false }, true);
  if (effect.held) return told({ answer: 'busy' });
  if (effect.policy === 'retry') return told({ answer: 'first', repeat: true }, true);
  return told({ answer: 'uncertain', policy: effect.policy as 'ask' | 'fail', since: effect.updated_at });
}

/** What a run that has acted is told, and the columns that change (none where it was told before). */
export function decideMark(
  call: MarkCall & { runId: number },
  effect: KnownEffect,
): { answer: EffectMarkAnswer; writes?: Pick<KnownEffect, 'state' | 'run_id' | 'result' | 'error'> } {
  if (effect.state !== 'init') return { answer: settledAnswer(call, effect) };
  if (effect.run_id !== call.runId) {
    const given = effect.run_id === null;
    // Its own `again`, told twice.
    if (given && call.outcome === 'again') return { answer: { answer: 'again' } };
    const reason = given ? 'it was given back meanwhile; begin it again' : 'another run has begun it';
    return { answer: { answer: 'refused', reason } };
  }
  if (call.outcome === 'again')
    return { answer: { answer: 'again' }, writes: { state: 'init', run_id: null, result: null, error: null } };
  if (call.outcome === 'success') {
    const writes = { state: 'success', run_id: call.runId, result: call.result, error: null };
    return { answer: { answer: 'done', result: call.result }, writes };
  }
  const writes = { state: 'fail', run_id: call.runId, result: null, error: call.error };
  return { answer: { answer: 'failed', error: call.error }, writes };
}

function settledAnswer(call: MarkCall, effect: KnownEffect): EffectMarkAnswer {
  if (effect.state === 'success' && call.outcome === 'success') return { answer: 'done', result: effect.result };
  if (effect.state === 'fail' && call.outcome === 'fail') return { answer: 'failed', error: effect.error };
  return { answer: 'refused', reason: `it is settled as ${effect.state.toUpperCase()} already` };
}
