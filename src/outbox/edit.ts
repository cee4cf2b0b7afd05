import type { Mark } from '../channels/channel.ts';
import type { Tx } from '../store/tx.ts';
import {
  dropPendingEdits,
  editSent,
  editTargets,
  forgetEdits,
  markEdits,
  postponeMessages,
  rewritePending,
  rewritePendingEdits,
  showEdits,
  shownMessages,
  type TargetRow,
} from './edit-queries.ts';
import type { LeasedMessage, Settlement } from './leases.ts';
import { type EmitOutbox, type NewMessage, storableWords } from './message.ts';

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

/** A message that replaces the text of an earlier one. */
export type Replacement = NewMessage & { readonly edits: NonNullable<NewMessage['edits']> };

/** The last word on each message. */
export function lastWords(messages: readonly NewMessage[]): Replacement[] {
  const byKey = new Map<string, Replacement>();
  for (const message of messages) {
    if (message.edits) {
      byKey.delete(message.edits.key);
      byKey.set(message.edits.key, message as Replacement);
    }
  }
  return [...byKey.values()];
}

/** Of edits whose message exists: what waits says the new text when it goes. Answers those whose message is no longer waiting. */
export async function rewrite(tx: Tx, edits: readonly Replacement[]): Promise<Replacement[]> {
  if (edits.length === 0) return [];
  const rows = edits.map(storedEdit);
  const done = new Set((await tx.all(rewritePending, { rows })).map((row) => row.dedupe_key));
  return edits.filter(({ edits: { key } }) => !done.has(key));
}

function storedEdit(edit: Replacement): [key: string, text: string, marks: string | null] {
  const { text, marks } = storableWords(edit);
  return [edit.edits.key, text, marks];
}

/** Of edits of messages that people see: where one waits already it says this instead, in its place. Answers the others. */
export async function rewriteEdits(tx: Tx, edits: readonly Replacement[]): Promise<Replacement[]> {
  const closing = edits.filter((edit) => edit.edits.closes);
  if (closing.length > 0) await tx.run(dropPendingEdits, { rows: closing.map(({ edits: { key } }) => [key]) });
  const rows = edits.filter((edit) => !edit.edits.closes).map(storedEdit);
  if (rows.length === 0) return [...edits];
  const done = new Set((await tx.all(rewritePendingEdits, { rows })).map((row) => row.edits));
  return edits.filter(({ edits: { key } }) => !done.has(key));
}

/** Makes new rows edits. */
export async function markAsEdits(tx: Tx, edits: readonly Replacement[], ids: readonly number[]): Promise<void> {
  const rows = edits.map(({ edits: { key, paceMs = 0 } }, index) => [ids[index], key, tx.now + paceMs]);
  await tx.run(markEdits, { rows });
}

/** New messages wait for a later word as long as they say. */
export async function postpone(
  tx: Tx,
  edits: readonly Replacement[],
  ids: readonly (number | undefined)[],
): Promise<void> {
  const rows = edits.flatMap(({ edits: { paceMs } }, index) =>
    paceMs === undefined || ids[index] === undefined ? [] : [[ids[index], tx.now + paceMs]],
  );
  if (rows.length > 0) await tx.run(postponeMessages, { rows });
}

/** Without those that are meant for messages that people do not see. */
export async function withoutUnseen(tx: Tx, edits: readonly Replacement[]): Promise<Replacement[]> {
  const rows = edits.filter((edit) => edit.edits.closes).map(({ edits: { key } }) => [key]);
  if (rows.length === 0) return [...edits];
  const shown = new Set((await tx.all(shownMessages, { rows })).map((row) => row.dedupe_key));
  return edits.filter(({ edits: { key, closes } }) => !closes || shown.has(key));
}

/** With the message that each edit is to replace; an edit whose message never arrived is a message of its own. */
export async function withTargets(tx: Tx, messages: readonly LeasedMessage[]): Promise<LeasedMessage[]> {
  const rows = messages.flatMap(({ id, edits }) => (edits === undefined ? [] : [[id, edits.key]]));
  if (rows.length === 0) return [...messages];
  const found = new Map((await tx.all(editTargets, { rows })).map((row) => [row.id, row]));
  return messages.map((message) => {
    const row = found.get(message.id);
    return row === undefined || message.edits === undefined
      ? message
      : { ...message, edits: { ...message.edits, target: targetOf(row) } };
  });
}

/** After edits in place the rows say what people see. */
export async function showInPlace(tx: Tx, settlements: readonly Settlement[]): Promise<void> {
  const done = settlements.filter(({ status, inPlace }) => status === 'sent' && inPlace === true);
  const shown = done.flatMap(({ message: { edits, text, marks } }) =>
    edits?.target ? [[edits.target.id, text, marks ? JSON.stringify(marks) : null]] : [],
  );
  if (shown.length === 0) return;
  await tx.run(showEdits, { rows: shown, now: tx.now });
  await tx.run(forgetEdits, { rows: done.map(({ message }) => [message.edits?.key, message.id]) });
}

function targetOf(row: TargetRow): NonNullable<NonNullable<LeasedMessage['edits']>['target']> {
  const [platformId = ''] = JSON.parse(row.platform_ids ?? '[]') as string[];
  const marks = row.marks === null ? {} : { marks: JSON.parse(row.marks) as Mark[] };
  return { id: row.target_id, platformId, text: row.text, ...marks };
}
