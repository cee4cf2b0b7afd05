import { audit } from '../sessions/audit.ts';
import type { Tx, Verb } from '../store/tx.ts';
import type { EffectResolution } from './effect-words.ts';
import {
  deleteWaits,
  type EffectRow,
  effectsByKey,
  markWaitsResolved,
  resolvedWaitsOfTasks,
  resolveEffectRows,
  type WaitRow,
  waitsOfEffects,
} from './effects-queries.ts';
import { retryTasks } from './retry.ts';
import type { Emit, TaskEvent } from './task.ts';

/** A person's word about an effect. */
export interface ResolveEffect {
  type: string;
  key: string;
  resolution: EffectResolution;
  /** With `SUCCESS`: what a repeat is told. */
  result: string | null;
  /** Why they know; kept, and with `FAIL` told to a repeat. */
  reason: string;
  /** Who; kept in the audit. */
  by: string;
}

export type ResolveAnswer =
  /** Tasks that waited for it and go on now. `again`: it was like that before; nothing was changed. */
  | { result: 'resolved' | 'already'; released: number[] }
  /** Its run is alive and at it right now. */
  | { result: 'held'; taskId: number; runId: number }
  | { result: 'unknown' };

/**
 * Settles effects by a person's word, whatever they were before, with an audit row each; tasks that were blocked because of them go on
 * by themselves. One that a living run holds is refused: that run knows better.
 */
export function resolveEffectsVerb(emit: Emit<TaskEvent>): Verb<ResolveEffect, ResolveAnswer> {
  return {
    name: 'effect.resolve',
    rank: 60,
    run: async (tx, orders) => {
      const answers: ResolveAnswer[] = [];
      // One by one: people resolve few, and of two orders for one effect the second must see the first.
      for (const order of orders) answers.push(await resolveOne(tx, order, emit));
      return answers;
    },
  };
}

/**
 * Subscriber: a task that ends as blocked because of an effect on which a person has decided meanwhile goes on at once. To be called
 * after whatever else follows `task.blocked`.
 */
export async function releaseDecided(tx: Tx, events: readonly TaskEvent[], emit: Emit<TaskEvent>): Promise<void> {
  const blocked = events.filter((event) => event.type === 'task.blocked' && !event.question);
  if (blocked.length === 0) return;
  const waits = await tx.all(resolvedWaitsOfTasks, { rows: blocked.map(({ id }) => [id]) });
  if (waits.length > 0) await release(tx, waits, 'effect resolved', emit);
}

async function resolveOne(tx: Tx, order: ResolveEffect, emit: Emit<TaskEvent>): Promise<ResolveAnswer> {
  const [effect] = await tx.all(effectsByKey, { rows: [[order.type, order.key]] });
  if (!effect) return { result: 'unknown' };
  if (effect.state === 'init' && effect.held === 1)
    return { result: 'held', taskId: effect.task_id, runId: effect.run_id! };
  const already = isAlready(effect, order);
  if (!already) await settle(tx, effect, order);
  return { result: already ? 'already' : 'resolved', released: await releaseWaiting(tx, effect.id, order.by, emit) };
}

function isAlready(effect: EffectRow, { resolution, result }: ResolveEffect): boolean {
  if (resolution === 'AGAIN') return effect.state === 'init' && effect.run_id === null;
  if (resolution === 'FAIL') return effect.state === 'fail';
  return effect.state === 'success' && (result === null || result === effect.result);
}

async function settle(tx: Tx, effect: EffectRow, order: ResolveEffect): Promise<void> {
  const { resolution, result, reason, by } = order;
  const again = resolution === 'AGAIN';
  const row = [
    effect.id,
    again ? 'init' : resolution.toLowerCase(),
    again ? null : effect.run_id,
    resolution === 'SUCCESS' ? result : null,
    resolution === 'FAIL' ? reason : null,
    by,
    reason,
  ];
  await tx.run(resolveEffectRows, { rows: [row], now: tx.now });
  await audit(tx, {
    actor: by,
    action: 'effect.resolved',
    target: `${effect.type}/${effect.key}`,
    data: { from: effect.state.toUpperCase(), to: resolution, reason },
  });
}

async function releaseWaiting(tx: Tx, effectId: number, by: string, emit: Emit<TaskEvent>): Promise<number[]> {
  const waits = await tx.all(waitsOfEffects, { rows: [[effectId]] });
  const onTheirWay = waits.filter((wait) => wait.on_its_way === 1);
  if (onTheirWay.length > 0) await tx.run(markWaitsResolved, { rows: onTheirWay.map(placeOf), now: tx.now });
  return release(
    tx,
    waits.filter((wait) => wait.on_its_way === 0),
    by,
    emit,
  );
}

/** Retries those that are blocked for this very reason; the others have moved on and are forgotten. */
async function release(tx: Tx, waits: readonly WaitRow[], by: string, emit: Emit<TaskEvent>): Promise<number[]> {
  if (waits.length === 0) return [];
  await tx.run(deleteWaits, { rows: waits.map(placeOf) });
  const ids = [...new Set(waits.filter((wait) => wait.ready === 1).map((wait) => wait.task_id))];
  const answers = await retryTasks(
    tx,
    ids.map((id) => ({ id, by })),
    emit,
  );
  return ids.filter((_, index) => answers[index]!.result === 'queued');
}

const placeOf = (wait: WaitRow) => [wait.effect_id, wait.task_id];
