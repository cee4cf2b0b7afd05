import type { Route } from '../channels/channel.ts';
import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import { editMessages } from '../outbox/edit.ts';
import type { EmitOutbox, NewMessage } from '../outbox/message.ts';
import { joined } from '../rich-text.ts';
import { Poller, type Service } from '../service.ts';
import type { Lang } from '../sessions/lang.ts';
import type { LogFollowTable } from '../store/health-tables.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import { LOG_PAGE, type LogPage, lastLogChunks, readLogPage } from '../tasks/log-reading.ts';
import { isFinal } from '../tasks/states.ts';
import { advanceLogFollow, deleteLogFollow, dueLogFollows, logFollowById } from './log-follow-queries.ts';
import { lastLines, liveText, logText, moreText } from './log-words.ts';

export interface ChatLogFollowsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  outbox: { enqueue(tx: Tx, messages: readonly NewMessage[]): Promise<void> };
  emit: EmitOutbox;
}

/** A follow ends after this, however long its task runs, milliseconds. */
export const FOLLOW_LIMIT_MS = 3_600_000;
/** Between two messages where a message cannot be changed, milliseconds. */
export const MESSAGE_PAUSE_MS = 10_000;
/** So many messages of one follow there. */
export const MAX_MESSAGES = 10;

/** Between two looks, and between two changes of a message. */
const LOOK_MS = 1_000;
const IDLE_MS = 60_000;
const RETRY_MS = 5_000;
const BATCH = 500;

/**
 * Follows logs in chats: in the web chat one message that changes as lines come, elsewhere a few messages. How far each follow is, is a
 * row that moves in the transaction of its message: a crash repeats no line and loses none.
 */
export class ChatLogFollows implements Service {
  readonly #options: ChatLogFollowsOptions;
  readonly #poller: Poller;

  constructor(options: ChatLogFollowsOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: () => this.lookOnce(),
      onError: (error) => {
        options.log.error('log_follow.failed', { error });
        return RETRY_MS;
      },
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** There is a new one. */
  wake(): void {
    this.#poller.wake();
  }

  /** Answers after how many milliseconds to look again. */
  async lookOnce(): Promise<number> {
    const { store, clock } = this.#options;
    // All, also those that are not due: as long as there are some they are looked at.
    const follows = await store.all(dueLogFollows, { now: Number.MAX_SAFE_INTEGER, limit: BATCH });
    const now = clock.now();
    for (const follow of follows) {
      if (follow.next_at > now && follow.next_at - now <= MESSAGE_PAUSE_MS) continue;
      const page = await readLogPage(store, store.ids, follow.task_id, placeOf(follow));
      if (page.chunks.length > 0 || isOver(page) || follow.give_up_at <= now)
        await store.transact('log_follow.tell', (tx) => this.#advance(tx, follow));
    }
    return follows.length === 0 ? IDLE_MS : LOOK_MS;
  }

  /** Reads again inside of the transaction, and does nothing where the row has moved meanwhile. */
  async #advance(tx: Tx, seen: LogFollowTable): Promise<void> {
    const [row] = await tx.all(logFollowById, { id: seen.id });
    if (!row || row.run_id !== seen.run_id || row.seq !== seen.seq) return;
    const page = await readLogPage(tx, this.#options.store.ids, row.task_id, placeOf(row));
    const route = JSON.parse(row.route) as Route;
    const isLast = await (route.channel === 'webchat'
      ? this.#change(tx, row, page, route)
      : this.#send(tx, row, page, route));
    const { run, seq } = page.cursor;
    if (isLast) await tx.run(deleteLogFollow, { id: row.id });
    else {
      const next = tx.now + (route.channel === 'webchat' ? LOOK_MS : MESSAGE_PAUSE_MS);
      const sent = row.sent + (page.chunks.length > 0 ? 1 : 0);
      await tx.run(advanceLogFollow, { id: row.id, run, seq, sent, next });
    }
  }

  /** One message that shows the end of the log. Answers whether that was all. */
  async #change(tx: Tx, row: LogFollowTable, page: LogPage, route: Route): Promise<boolean> {
    const { store, outbox, emit } = this.#options;
    const [lang, taskId] = [row.lang as Lang, store.ids.encode(row.task_id)];
    const isEnd = isOver(page);
    const isLate = !isEnd && row.give_up_at <= tx.now;
    const text = logText(lang, await lastLogChunks(tx, store.ids, row.task_id, LOG_PAGE));
    const live = liveText(lang, taskId, text, isEnd ? page.status : undefined);
    const message = isLate ? joined([live, moreText(lang, taskId)], '\n') : live;
    const dedupeKey = `logs:${row.id}`;
    if ((await editMessages(tx, [{ dedupeKey, ...message }], emit)) === 0)
      await outbox.enqueue(tx, [{ route, sessionKey: row.session_key, kind: 'update', ...message, dedupeKey }]);
    return isEnd || isLate;
  }

  /** A message with what is new. Answers whether that was the last. */
  async #send(tx: Tx, row: LogFollowTable, page: LogPage, route: Route): Promise<boolean> {
    const { store, outbox } = this.#options;
    const [lang, taskId] = [row.lang as Lang, store.ids.encode(row.task_id)];
    const isEnd = isOver(page);
    const isEnough = !isEnd && (row.give_up_at <= tx.now || row.sent + 1 >= MAX_MESSAGES);
    const text = logText(lang, page.chunks);
    const parts = [
      ...(text.trim() === '' ? [] : [lastLines(lang, taskId, text)]),
      ...(isEnough ? [moreText(lang, taskId)] : []),
    ];
    if (parts.length > 0)
      await outbox.enqueue(tx, [{ route, sessionKey: row.session_key, kind: 'update', ...joined(parts, '\n') }]);
    return isEnd || isEnough;
  }
}

const placeOf = ({ run_id, seq }: LogFollowTable) => ({ run: run_id, seq });

/** Over, or gone, and everything was read. */
const isOver = ({ status, isLast }: LogPage) => isLast && (status === undefined || isFinal(status));
