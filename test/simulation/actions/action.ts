import type { Random } from '../random.ts';
import type { World } from '../world.ts';

/** Something that may happen next. A new one is one small object in a list (`actions/all.ts`). */
export interface Action {
  readonly name: string;
  /** How often it is drawn, against the others. */
  readonly weight: number;
  /**
   * Does it or begins it (`world.begin`), and says what; null where it makes no sense now. `check` looks at everything in between,
   * for those that take their time.
   */
  run(world: World, random: Random, check: () => void): string | null | Promise<string | null>;
}
