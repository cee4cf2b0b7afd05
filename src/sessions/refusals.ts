import type { Tx } from '../store/tx.ts';
import { forgetTold, noteTold, unsayTold } from './queries.ts';

/** A person is told of the same thing at most once in this time. */
export const PERSON_MS = 600_000;
/** A group hears at most one refusal in this time, whoever is refused. */
export const GROUP_MS = 60_000;
/** A person with a role who tries what the role does not allow: told again after so long. */
export const RIGHT_MS = 30_000;

export interface Told {
  readonly channel: string;
  readonly account: string;
  /** Who, or where: `user:42`, `chat:-100`. */
  readonly whom: string;
  readonly everyMs: number;
}

/**
 * Whether to say that somebody may not, or to be silent because they, or their group,
 * were told just now. Where the answer is true all
 * of them count as told. A clock that was set back silences nobody.
 */
export async function mayTell(tx: Tx, told: readonly Told[]): Promise<boolean> {
  await tx.run(forgetTold, { before: tx.now - PERSON_MS });
  const noted: Told[] = [];
  for (const one of told) {
    const { channel, account, whom, everyMs } = one;
    const [row] = await tx.all(noteTold, { channel, account, whom, now: tx.now, before: tx.now - everyMs });
    if (!row) {
      // Nothing is said, so nobody counts as told.
      for (const { channel, account, whom } of noted) await tx.run(unsayTold, { channel, account, whom });
      return false;
    }
    noted.push(one);
  }
  return true;
}
