import { EFFECT_LAWS } from './effects.ts';
import { FAIRNESS_LAWS } from './fairness.ts';
import { GRAPH_LAWS } from './graphs.ts';
import type { Invariant } from './invariant.ts';
import { LIMIT_LAWS } from './limits.ts';
import { MESSAGE_LAWS } from './messages.ts';
import { RUN_LAWS } from './runs.ts';
import { TASK_LAWS } from './tasks.ts';
import { WAITING_LAWS } from './waiting.ts';

/** Everything that must hold at every step. */
export const INVARIANTS: readonly Invariant[] = [
  ...TASK_LAWS,
  ...RUN_LAWS,
  ...MESSAGE_LAWS,
  ...LIMIT_LAWS,
  ...WAITING_LAWS,
  ...GRAPH_LAWS,
  ...EFFECT_LAWS,
  ...FAIRNESS_LAWS,
];
