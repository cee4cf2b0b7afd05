import { AppError } from '../errors.ts';
import { canonicalJson, type IdCodec } from '../ids.ts';
import type { Tx } from '../store/tx.ts';
import { type LetterAnswer, replayLetters } from '../tasks/dead-letters.ts';
import { type LetterRow, lettersOfTasks } from '../tasks/dead-letters-queries.ts';
import type { RetryOrder } from '../tasks/retry.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import { checkArgs } from './args.ts';
import type { TemplateRegistry } from './templates.ts';

export interface ReplayWish {
  /** Tasks that are dead letters. */
  ids: readonly number[];
  /** Who asked, for the audit. */
  by: string;
  reason?: string;
  /** Arguments that are to be different; empty text takes an optional one away. The others stay as they are. */
  args?: Readonly<Record<string, ArgValue>>;
}

export interface ReplayRooms {
  ids: Pick<IdCodec, 'encode'>;
  templates: Pick<TemplateRegistry, 'get'>;
  timeZone: string;
  emit: Emit<TaskEvent>;
}

/**
 * Replays dead letters, with other arguments where some are given: they are checked against the template as it is now.
 * @throws AppError invalid_request for an argument, conflict where a template is gone: nothing is replayed then
 */
export async function replayWithArgs(tx: Tx, wish: ReplayWish, rooms: ReplayRooms): Promise<LetterAnswer[]> {
  const { ids, by, reason, args } = wish;
  const orders = ids.map((id): RetryOrder => ({ id, by, ...(reason === undefined ? {} : { reason }) }));
  if (args === undefined) return replayLetters(tx, orders, rooms.emit);
  const letters = await tx.all(lettersOfTasks, { rows: [...new Set(ids)].map((id) => [id]) });
  const edits = new Map(letters.map((letter) => [letter.task_id, editOf(letter, args, tx.now, rooms)]));
  const edited = orders.map((order) => {
    const edit = edits.get(order.id);
    return edit === undefined ? order : { ...order, args: edit };
  });
  return replayLetters(tx, edited, rooms.emit);
}

/** The task's arguments before and after; undefined where nothing would be different. */
function editOf(
  letter: LetterRow,
  given: Readonly<Record<string, ArgValue>>,
  now: number,
  { ids, templates, timeZone }: ReplayRooms,
): RetryOrder['args'] | undefined {
  const shown = ids.encode(letter.task_id);
  const template = templates.get(letter.template);
  if (!template)
    throw new AppError(
      'conflict',
      `task ${shown}: its template ${letter.template} is gone, so no argument can be checked`,
    );
  const from = JSON.parse(letter.args) as Record<string, ArgValue>;
  // What the template does not know any more would be refused, though nobody has asked for it.
  const kept = Object.entries(from).filter(([name]) => Object.hasOwn(template.args, name));
  try {
    const to = checkArgs(template, { ...Object.fromEntries(kept), ...given }, { now, timeZone });
    return canonicalJson(from) === canonicalJson(to) ? undefined : { from, to };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError(error.code, `task ${shown}: ${error.message}`, { field: error.field });
  }
}
