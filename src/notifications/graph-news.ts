import type { NewMessage } from '../outbox/message.ts';
import { langOf } from '../sessions/lang.ts';
import type { Tx } from '../store/tx.ts';
import type { TaskEvent } from '../tasks/task.ts';
import { type GraphEnd, graphText, type Trouble } from './graph-wording.ts';
import { messageKey } from './message-key.ts';
import type { Delivered, Home, NotifierOptions } from './notifier.ts';
import { graphCounts, graphResults, graphTroubles } from './queries.ts';
import { titleFor } from './wording.ts';

type Ended = Extract<TaskEvent, { type: 'task.ended' }>;

const TROUBLES = 5;
const RESULTS = 3;

/**
 * Flows that were asked for as a whole are told with one message, when the last of their tasks has ended: it is the message of that
 * task. The others have none of their own, unless every change is to be told.
 */
export class GraphNews {
  readonly #ends: { event: Ended; home: Home }[] = [];

  /** A task of such a flow has ended. */
  add(event: Ended, home: Home): void {
    this.#ends.push({ event, home });
  }

  /** What is told of the flows that are over now. */
  async messages(tx: Tx, options: NotifierOptions): Promise<NewMessage[]> {
    const messages: NewMessage[] = [];
    for (const { event, home } of this.#last().values()) {
      messages.push({
        route: home.destination,
        sessionKey: home.owner_session_key,
        kind: 'final',
        ...graphText(await endOf(tx, home, options)),
        taskId: event.id,
        flowId: home.id,
        dedupeKey: messageKey(event, 'flow'),
      });
    }
    return messages;
  }

  /** Of the tasks that have ended; nothing for those that are told by themselves. */
  deliveries(): Delivered[] {
    const last = this.#last();
    return this.#ends.flatMap(({ event, home }): Delivered[] => {
      if (last.get(home.id)?.event === event) return [[event.id, event.generation, 'session_queued']];
      return event.notifyPolicy === 'state_changes' ? [] : [[event.id, event.generation, 'not_applicable']];
    });
  }

  /** By flow that is over and is told about: the end that made it so. */
  #last(): Map<number, { event: Ended; home: Home }> {
    const over = this.#ends.filter(({ home }) => home.ended_at !== null && home.notify_policy !== 'silent');
    return new Map(over.map((end) => [end.home.id, end]));
  }
}

async function endOf(tx: Tx, home: Home, { titleOf, summaryOf, ids, lang: set }: NotifierOptions): Promise<GraphEnd> {
  const lang = langOf(home, home.goal, set);
  const flow = home.id;
  const titled = (row: { template: string; label: string | null }) =>
    titleFor(titleOf(row.template, lang), row.template, row.label);
  const troubles = await tx.all(graphTroubles, { flow, limit: TROUBLES });
  const results = await tx.all(graphResults, { flow, limit: RESULTS });
  return {
    lang,
    goal: home.goal,
    status: home.status as GraphEnd['status'],
    tookMs: Math.max(0, tx.now - home.created_at),
    counts: countsOf(await tx.all(graphCounts, { flow })),
    troubles: troubles.map((row) => ({
      id: ids.encode(row.id),
      title: titled(row),
      state: row.status as Trouble['state'],
      end: row,
    })),
    results: results.map((row) => ({ title: titled(row), summary: row.summary, format: summaryOf?.(row.template) })),
  };
}

function countsOf(rows: readonly { status: string; skipped: number; count: number }[]): GraphEnd['counts'] {
  const counts = { succeeded: 0, failed: 0, cancelled: 0, skipped: 0 };
  for (const { status, skipped, count } of rows) {
    const kind =
      status === 'succeeded'
        ? 'succeeded'
        : skipped === 1
          ? 'skipped'
          : status === 'cancelled'
            ? 'cancelled'
            : 'failed';
    counts[kind] += count;
  }
  return counts;
}
