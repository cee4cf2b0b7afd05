/** Exponential backoff: `delay = min(base * factor^(n-1), cap) * (1 ± jitter)`; the jitter is applied after the cap, so it survives it. */
export interface BackoffPolicy {
  /** Delay before the first repeat, milliseconds. */
  baseMs: number;
  factor: number;
  /** Upper bound of the delay before jitter, milliseconds. */
  capMs: number;
  /** Share of the delay that is random, 0 to 1. */
  jitter: number;
}

export const DEFAULT_BACKOFF: BackoffPolicy = { baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0.5 };

/**
 * Delay before repeat number `n` (1 is the first repeat), whole milliseconds, never negative.
 * @param random a number in [0, 1); injected so that callers and tests decide.
 */
export function backoffMs(policy: BackoffPolicy, n: number, random: () => number = Math.random): number {
  // Bounded: beyond what a number can hold, a base of zero would make it no number at all.
  const growth = Math.min(policy.factor ** Math.max(0, n - 1), Number.MAX_VALUE);
  const nominal = Math.min(policy.baseMs * growth, policy.capMs);
  const spread = 1 + policy.jitter * (2 * random() - 1);
  return Math.max(0, Math.round(nominal * spread));
}
