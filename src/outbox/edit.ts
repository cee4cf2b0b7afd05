import type { Mark } from '../channels/channel.ts';
import type { Tx } from '../store/tx.ts';
import { editSent } from './edit-queries.ts';
import { type EmitOutbox, storableWords } from './message.ts';

export interface MessageEdit {
  /** Of the message, as it was enqueued. */
  readonly dedupeKey: string;
  readonly text: string;
  readonly marks?: readonly Mark[];
}

/**
 * Gives messages another text where the row itself is what people see (the web chat); their place stays. Answers how many there were:
 * messages of other channels are left as they are.
 */
export async function editMessages(tx: Tx, edits: readonly MessageEdit[], emit: EmitOutbox): Promise<number> {
  if (edits.length === 0) return 0;
  const rows = edits.map((edit) => {
    const { text, marks } = storableWords(edit);
    return [edit.dedupeKey, text, marks];
  });
  const edited = await tx.all(editSent, { rows, now: tx.now });
  const keys = edited.flatMap(({ session_key }) => session_key ?? []);
  if (keys.length > 0) emit(tx, [{ type: 'outbox.edited', sessionKeys: keys }]);
  return edited.length;
}
