/** Words that the task engine shares with the agent protocol without knowing the wire. */
export const ERROR_CLASSES = ['transient', 'rate_limited', 'permanent'] as const;
export type ErrorClass = (typeof ERROR_CLASSES)[number];

/** What an expired lease may do: run again, wait for a person, or end as lost. */
export const ON_LOST = ['retry', 'ask', 'fail'] as const;
export type OnLost = (typeof ON_LOST)[number];

/** A checked argument value. */
export type ArgValue = string | number | boolean;

/** What became of one run. */
export const RUN_OUTCOMES = [
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
  'lost',
  'released',
  'blocked',
  'needs_input',
] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

/** Kinds of report that end a run. */
export const RUN_ENDS = new Set([
  'needs_input',
  'blocked',
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
  'released',
] as const);
