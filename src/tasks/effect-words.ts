/** The words of side effects that programs, agents and people use. Free of the database, so that agents may import them. */

export const EFFECT_POLICIES = ['retry', 'ask', 'fail'] as const;
/** What follows when an effect is found begun by a run that is over and never said how it ended. */
export type EffectPolicy = (typeof EFFECT_POLICIES)[number];

/** As they are shown; stored in lower case. */
export const EFFECT_STATES = ['INIT', 'SUCCESS', 'FAIL'] as const;
export type EffectState = (typeof EFFECT_STATES)[number];

export const EFFECT_RESOLUTIONS = ['SUCCESS', 'FAIL', 'AGAIN'] as const;
/** What a person says about an effect. `AGAIN`: it did not take place; whoever begins it next is the first. */
export type EffectResolution = (typeof EFFECT_RESOLUTIONS)[number];

/** Longest texts, characters. */
export const EFFECT_LIMITS = { type: 64, key: 512, digest: 128, result: 16_384, error: 4_000, reason: 1_000 } as const;

/** What the caller of `begin` is told. */
export type EffectBeginAnswer =
  /** Go. `repeat`: an earlier run began it and nobody knows how far it came; its policy is `retry`. */
  | { answer: 'first'; repeat: boolean }
  /** It took place before. */
  | { answer: 'done'; result: string | null }
  /** It was tried before and failed for good. */
  | { answer: 'failed'; error: string | null }
  /** An earlier run began it and nobody knows how far it came. `ask`: end as blocked, a person decides. `fail`: end as failed. */
  | { answer: 'uncertain'; policy: 'ask' | 'fail'; since: number }
  /** Another run, which is alive, is at it right now. */
  | { answer: 'busy' }
  /** It was begun before with another digest. */
  | { answer: 'conflict'; reason: string }
  | EffectRefusal;

/** What the caller of `done` and `fail` is told. */
export type EffectMarkAnswer =
  | { answer: 'done'; result: string | null }
  | { answer: 'failed'; error: string | null }
  /** Given back: it did not take place, and whoever begins it next is the first. */
  | { answer: 'again' }
  /** Somebody else has decided otherwise, or has taken over. */
  | { answer: 'refused'; reason: string }
  /** Nobody has begun it. */
  | { answer: 'unknown'; reason: string }
  | EffectRefusal;

/** The run that asks may not (any more). */
export interface EffectRefusal {
  answer: 'lease_lost' | 'rejected';
  reason: string;
}
