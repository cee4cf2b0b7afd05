import type { Action } from './action.ts';
import { AGENTS } from './agents.ts';
import { EFFECTS } from './effects.ts';
import { FAULTS } from './faults.ts';
import { GRAPHS } from './graphs.ts';
import { OPERATORS } from './operators.ts';
import { PEOPLE } from './people.ts';

/** Everything that may happen. */
export const ACTIONS: readonly Action[] = [...PEOPLE, ...GRAPHS, ...EFFECTS, ...OPERATORS, ...AGENTS, ...FAULTS];
