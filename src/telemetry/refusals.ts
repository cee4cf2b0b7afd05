/** Why a message was not acted on although it was meant for the bot; the closed set of the metric's label. */
export const REFUSAL_REASONS = ['not_paired', 'revoked', 'anonymous', 'group_not_allowed', 'role'] as const;
export type RefusalReason = (typeof REFUSAL_REASONS)[number];

/** Counts refusals of this process, by reason; the source of `errand_access_refused_total`. */
export interface Refusals {
  count(reason: RefusalReason): void;
  counts(): ReadonlyMap<string, number>;
}

export function createRefusals(): Refusals {
  const counts = new Map<string, number>();
  return {
    count: (reason) => void counts.set(reason, (counts.get(reason) ?? 0) + 1),
    counts: () => counts,
  };
}
