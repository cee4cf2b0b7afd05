import { audit } from '../sessions/audit.ts';
import type { InboxTable } from '../store/tables.ts';
import type { Reader, Tx } from '../store/tx.ts';
import { parkedMessages, renameReply, reviveParked } from './parked-queries.ts';
import { replyKey } from './verdict.ts';

/** Messages that were put aside because working them off failed again and again, the newest first. */
export function listParked(
  reader: Reader,
  page: { readonly before: number | undefined; readonly limit: number },
): Promise<InboxTable[]> {
  return parkedMessages(reader, page);
}

/**
 * Lets a message that was put aside be tried again from the beginning; what it did not do then it does now, asking first where it is
 * old by now. False where it is not put aside.
 * @param by the actor of the audit entry
 */
export async function retryParked(tx: Tx, id: number, target: string, by: string): Promise<boolean> {
  if ((await tx.all(reviveParked, { id })).length === 0) return false;
  const old = replyKey(id);
  await tx.run(renameReply, { old, key: `${old}:${tx.now}` });
  await audit(tx, { actor: by, action: 'inbox.retried', target });
  return true;
}
