import { type BackoffPolicy, backoffMs } from '../backoff.ts';
import type { SendOutcome } from '../channels/channel.ts';
import { LEASE_MS, type LeasedMessage, type Settlement } from './leases.ts';

/** Pauses between tries of one message. */
const SEND_BACKOFF: BackoffPolicy = { baseMs: 500, factor: 2, capMs: 300_000, jitter: 0.2 };

/** Verbatim repeats after lost answers, on a platform that drops an identical repeat. */
export const SAFE_REPEATS = 5;

/** Bounds for what a platform asks for: never a busy loop, never longer than a message is worth keeping. */
const SHORTEST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 86_400_000;

/** The pause the platform asked for, within bounds, else the backoff before repeat number `n`. */
export function pauseMs(askedMs: number | undefined, n: number, random?: () => number): number {
  return withinBounds(askedMs ?? backoffMs(SEND_BACKOFF, n, random));
}

/** A pause that is neither a busy loop nor longer than a message is worth keeping, milliseconds. */
export function withinBounds(ms: number): number {
  return Math.min(Math.max(ms, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS);
}

/** What became of the parts of a message before and with the call that ended the sending. */
export interface SendResult {
  readonly outcome: SendOutcome;
  /** Parts accepted in total. */
  readonly partsSent: number;
  readonly platformIds: readonly string[];
  /** A part was accepted by this sender: what was uncertain before is settled. */
  readonly advanced: boolean;
  /** The rates ended it before all parts were sent. */
  readonly paced?: boolean;
  /** The text of an earlier message was replaced, nothing new was sent. */
  readonly inPlace?: boolean;
  /** There was nothing to do: the platform shows something that this would not add to. */
  readonly skipped?: string;
}

/** Decides what follows the end of a sending. Pure. */
export function settlementOf(
  message: LeasedMessage,
  result: SendResult,
  now: number,
  random?: () => number,
): Settlement {
  const { outcome } = result;
  const base = baseOf(message, result, now);
  if (result.skipped !== undefined) return { ...base, status: 'superseded', error: result.skipped };
  if (result.paced) return base;
  switch (outcome.outcome) {
    case 'sent':
      return { ...base, status: 'sent', ...(result.inPlace && { inPlace: true }) };
    case 'retry': {
      const nextAt = now + pauseMs(outcome.afterMs, message.fence, random);
      const next = retried({ ...base, error: outcome.error, nextAt }, outcome.scope, now);
      return outcome.scope === 'chat' ? { ...next, hold: { until: nextAt } } : next;
    }
    case 'unknown': {
      const nextAt = now + backoffMs(SEND_BACKOFF, message.fence, random);
      return uncertain({ ...base, error: outcome.error, nextAt }, outcome.safe);
    }
    case 'permanent': {
      const dead: Settlement = { ...base, status: 'dead', error: outcome.error };
      return outcome.unreachable ? { ...dead, hold: { unreachable: true } } : dead;
    }
  }
}

/**
 * Decides about a message whose sender died: it may have been sent, or not. What may be repeated is repeated at once.
 * @param safeWindowMs how long its platform drops an identical repeat; 0 where it does not
 */
export function settlementOfAbandoned(message: LeasedMessage, safeWindowMs: number, now: number): Settlement {
  const lastCallAt = message.leaseUntil - LEASE_MS;
  // The repeat must get there within the window too: one lease of margin.
  const safe = now - lastCallAt < safeWindowMs - LEASE_MS;
  const outcome = { outcome: 'unknown', error: 'the sender ended before the answer was stored', safe } as const;
  const { partsSent, platformIds } = message;
  return { ...settlementOf(message, { outcome, partsSent, platformIds, advanced: false }, now), nextAt: now };
}

function baseOf(message: LeasedMessage, result: SendResult, now: number): Settlement {
  return {
    message,
    status: 'pending',
    nextAt: now,
    error: null,
    maybeRepeat: result.advanced ? false : message.maybeRepeat,
    safeRepeats: result.advanced ? 0 : message.safeRepeats,
    partsSent: result.partsSent,
    platformIds: result.platformIds,
  };
}

/** While the whole platform is away only updates grow old: the others wait for it and come late, several as one list (`digest.ts`). */
function retried(settlement: Settlement, scope: 'chat' | 'channel', now: number): Settlement {
  const { kind, giveUpAt } = settlement.message;
  const isWorthless = scope === 'chat' || kind === 'update';
  return isWorthless && now >= giveUpAt ? { ...settlement, status: 'expired' } : settlement;
}

/** A result must not get lost, so it may come twice, once; of anything else a person decides (`resend`). An edit is the same twice. */
function uncertain(settlement: Settlement, isSafe: boolean): Settlement {
  const safe = isSafe || settlement.message.edits?.target !== undefined;
  if (safe && settlement.safeRepeats < SAFE_REPEATS) return { ...settlement, safeRepeats: settlement.safeRepeats + 1 };
  if (settlement.message.kind === 'final' && !settlement.maybeRepeat) return { ...settlement, maybeRepeat: true };
  return { ...settlement, status: 'unknown' };
}
