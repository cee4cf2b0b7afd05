import type { Route } from '../channels/channel.ts';
import type { Tx } from '../store/tx.ts';
import { insertFollowups } from './queries.ts';

/** An errand that a message asked for, waiting for its turn in the conversation. */
export interface NewFollowup {
  readonly inboxId: number;
  readonly sessionKey: string;
  /** The message's own route: the result goes there. */
  readonly route: Route;
  /** Who asked; looked up again when the errand starts. */
  readonly userId: string;
  readonly template: string;
  /** As the person gave them; checked when the errand starts. */
  readonly args: Readonly<Record<string, unknown>>;
}

/** Stores errands in the transaction that marks their messages as done. A message asks for one errand, however often it is tried. */
export async function enqueueFollowups(tx: Tx, items: readonly NewFollowup[]): Promise<void> {
  if (items.length === 0) return;
  const first = await tx.ids(items.length);
  const rows = items.map((item, index) => [
    first + index,
    item.inboxId,
    item.sessionKey,
    JSON.stringify(item.route),
    item.userId,
    item.template,
    JSON.stringify(item.args),
  ]);
  await tx.run(insertFollowups, { rows, now: tx.now });
}
