import type { Route } from '../channels/channel.ts';
import type { Doubt } from '../commands/command.ts';
import type { Tx } from '../store/tx.ts';
import { type Extra, extraOf } from './extra.ts';
import { type NewInboxRow, type SaidBefore, saidBefore, withdrawQuestion } from './queries.ts';
import { ignored, type Verdict } from './verdict.ts';

/** So many messages of a conversation are looked through for the one that was changed, or for the rest of an album. */
const LOOK_BACK = 100;

/**
 * Why a message is not simply acted on: it is old, or a changed version of one that was. A verdict where there is nothing to act on: a
 * change that changed no word, a further picture of an album that was acted on. Undefined for most.
 * @param staleAfterMs older messages are asked about; null: none is
 */
export async function doubtOf(
  tx: Tx,
  row: NewInboxRow,
  place: { readonly route: Route; readonly sessionKey: string },
  staleAfterMs: number | null,
): Promise<Doubt | Verdict | undefined> {
  const extra = extraOf(row);
  const before = await lookBack(tx, extra, place.sessionKey);
  if (extra.album !== undefined && before.some((said) => said.status === 'done' && extraOf(said).album === extra.album))
    return ignored('album');
  if (extra.edited) return editOf(tx, row, place.route, before);
  // The platform's time counts: while we were away it kept what people wrote. One that lies ahead is a wrong clock.
  const ageMs = tx.now - Math.min(row.sent_at ?? row.received_at, row.received_at);
  return staleAfterMs !== null && ageMs > staleAfterMs ? { because: 'old', ageMs } : undefined;
}

async function editOf(
  tx: Tx,
  row: NewInboxRow,
  { messageId }: Route,
  before: readonly SaidBefore[],
): Promise<Doubt | Verdict> {
  const versions = before.filter(
    (said) => said.sender_id === row.sender_id && (JSON.parse(said.route) as Route).messageId === messageId,
  );
  const [latest] = versions;
  // Platforms also tell of changes that nobody sees, such as a preview that was loaded.
  if (latest?.text.trim() === row.text.trim()) return ignored('edit_unchanged');
  for (const { id, asked_at: askedAt } of versions) if (askedAt !== null) await tx.run(withdrawQuestion, { id });
  return { because: 'edited' };
}

/** Newest first; nothing for messages that need no look back. */
async function lookBack(tx: Tx, { album, edited }: Extra, session: string): Promise<SaidBefore[]> {
  return album === undefined && !edited ? [] : tx.all(saidBefore, { session, limit: LOOK_BACK });
}
