import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import { Poller } from '../service.ts';
import type { Store } from '../store/store.ts';
import { isBefore, type LogChunk, type LogCursor, readLogPage } from './log-reading.ts';
import { isFinal, type TaskState } from './states.ts';

/** What a follower of a log gets, in order. */
export type LogItem =
  /** What comes next was printed by this run. */
  | { readonly type: 'attempt'; readonly runId: string; readonly attempt: number; readonly agentId: string }
  | ({ readonly type: 'log' } & LogChunk)
  /** It reads too slowly: so many lines were left out for it here. They are stored, and a call without `follow` shows them. */
  | { readonly type: 'omitted'; readonly lines: number }
  /** The task is over and everything was told; `gone`: there is no such task any more. */
  | { readonly type: 'end'; readonly status: TaskState | 'gone' };

export interface LogFollowsOptions {
  store: Store;
  log: Log;
  /** Between two looks at a task that somebody follows, milliseconds; default 400. */
  everyMs?: number;
  /** Characters that wait for a follower; default 262,144. */
  maxWaiting?: number;
  /** A live follower that takes longer for one piece gets the newest next, milliseconds; default 5,000. */
  patienceMs?: number;
}

export interface FollowOptions {
  task: number;
  after: LogCursor;
  signal: AbortSignal;
}

const EVERY_MS = 400;
const RETRY_MS = 1_000;
const PATIENCE_MS = 5_000;
const MAX_WAITING = 256 * 1024;
const MAX_FOLLOWERS = 1_000;
const MAX_OF_ONE_TASK = 200;

/**
 * Who follows which log. However many follow one task, its rows are read once: a follower first catches up by itself, at its own
 * pace, then gets what the common feed reads. No statement stays open between two reads.
 */
export class LogFollows {
  readonly #options: LogFollowsOptions;
  readonly #feeds = new Map<number, Feed>();
  #count = 0;

  constructor(options: LogFollowsOptions) {
    this.#options = options;
  }

  /** @throws AppError rate_limited where too many follow already */
  check(task: number): void {
    if (this.#count >= MAX_FOLLOWERS || (this.#feeds.get(task)?.size ?? 0) >= MAX_OF_ONE_TASK)
      throw new AppError('rate_limited', 'too many logs are being followed; end one');
  }

  /** How many follow now. */
  get size(): number {
    return this.#count;
  }

  /** Yields until the task is over, or the signal is aborted. Memory for it is bounded, however slowly it is read. */
  async *follow({ task, after, signal }: FollowOptions): AsyncGenerator<LogItem> {
    const feed = this.#feeds.get(task) ?? new Feed(task, this.#options);
    this.#feeds.set(task, feed);
    this.#count += 1;
    const follower = new Follower(this.#options.maxWaiting ?? MAX_WAITING);
    feed.join(follower);
    const wake = () => follower.wake();
    signal.addEventListener('abort', wake, { once: true });
    try {
      yield* markedRuns(new Reading(feed, follower, { ...this.#options, task, after, signal }).items());
    } finally {
      signal.removeEventListener('abort', wake);
      this.#count -= 1;
      // A task that is retried after its end is followed anew.
      if (feed.leave(follower) === 0 && this.#feeds.get(task) === feed) this.#feeds.delete(task);
    }
  }
}

type Source = FollowOptions & LogFollowsOptions;
type Told = Exclude<LogItem, { type: 'attempt' }>;

/** One follower's way through the log: it catches up, is live, and catches up again where more came than may wait for it. */
class Reading {
  readonly #feed: Feed;
  readonly #follower: Follower;
  readonly #source: Source;
  #cursor: LogCursor;
  /** The longest that the reader took for a piece since it was live last, milliseconds. */
  #slowestMs = 0;
  #wasLive = false;

  constructor(feed: Feed, follower: Follower, source: Source) {
    this.#feed = feed;
    this.#follower = follower;
    this.#source = source;
    this.#cursor = source.after;
  }

  async *items(): AsyncGenerator<Told> {
    const { signal } = this.#source;
    while (!signal.aborted) {
      const over = yield* this.#catchUp();
      if (over !== undefined) yield { type: 'end', status: over };
      if (over !== undefined || signal.aborted) return;
      this.#wasLive = true;
      this.#slowestMs = 0;
      const ended = yield* this.#live();
      if (ended !== undefined) {
        yield { type: 'end', status: ended };
        return;
      }
    }
  }

  /** Reads for itself, a page at a time, at the pace of its reader. Answers the state of a task that is over. */
  async *#catchUp(): AsyncGenerator<Told, TaskState | 'gone' | undefined> {
    const { store, task, signal, patienceMs = PATIENCE_MS } = this.#source;
    for (;;) {
      if (this.#wasLive && this.#slowestMs > patienceMs) yield* this.#skip();
      const page = await readLogPage(store, store.ids, task, this.#cursor);
      yield* this.#tell(page.chunks);
      if (signal.aborted) return undefined;
      this.#cursor = page.cursor;
      if (page.isLast && isOver(page.status)) return page.status ?? 'gone';
      // From here to the opening nothing is awaited: the feed can read nothing in between.
      if (!page.isLast || isBefore(this.#cursor, this.#feed.cursor)) continue;
      this.#follower.open(this.#cursor);
      this.#feed.start(this.#cursor);
      return undefined;
    }
  }

  /** Tells what the feed brings. Answers the state of a task that is over; undefined where it has fallen behind. */
  async *#live(): AsyncGenerator<Told, TaskState | 'gone' | undefined> {
    while (!this.#source.signal.aborted) {
      const { chunks, cursor, isBehind, ended } = await this.#follower.take();
      yield* this.#tell(chunks);
      this.#cursor = cursor;
      if (isBehind || ended !== undefined) return isBehind ? undefined : ended;
    }
    return undefined;
  }

  /** Goes to the newest that may wait for it, and says how much is left out. */
  async *#skip(): AsyncGenerator<Told> {
    const { store, task, maxWaiting = MAX_WAITING } = this.#source;
    this.#slowestMs = 0;
    let kept: LogChunk[] = [];
    let omitted = 0;
    for (let isLast = false; !isLast; ) {
      const page = await readLogPage(store, store.ids, task, this.#cursor);
      const all = [...kept, ...page.chunks];
      kept = newest(all, maxWaiting);
      for (const { text } of all.slice(0, all.length - kept.length)) omitted += linesOf(text);
      this.#cursor = page.cursor;
      isLast = page.isLast;
    }
    if (omitted > 0) yield { type: 'omitted', lines: omitted };
    yield* this.#tell(kept);
  }

  async *#tell(chunks: readonly LogChunk[]): AsyncGenerator<Told> {
    for (const chunk of chunks) {
      const toldAt = performance.now();
      yield { type: 'log', ...chunk };
      this.#slowestMs = Math.max(this.#slowestMs, performance.now() - toldAt);
    }
  }
}

/** The last of these, together at most so many characters; at least one. */
function newest(chunks: readonly LogChunk[], maxChars: number): LogChunk[] {
  let from = chunks.length;
  for (let left = maxChars; from > 0; from -= 1) {
    left -= chunks[from - 1]!.text.length;
    if (left < 0 && from < chunks.length) break;
  }
  return chunks.slice(from);
}

async function* markedRuns(told: AsyncGenerator<Told>): AsyncGenerator<LogItem> {
  let runId: string | undefined;
  for await (const item of told) {
    if (item.type === 'log' && item.runId !== runId) {
      runId = item.runId;
      yield { type: 'attempt', runId, attempt: item.attempt, agentId: item.agentId };
    }
    yield item;
  }
}

const isOver = (status: TaskState | undefined) => status === undefined || isFinal(status);

/** Reads the new rows of one task for all who follow it. */
class Feed {
  /** What is behind it was read, for those who were open then. */
  cursor: LogCursor = { run: 0, seq: 0 };
  readonly #task: number;
  readonly #options: LogFollowsOptions;
  readonly #followers = new Set<Follower>();
  readonly #poller: Poller;

  constructor(task: number, options: LogFollowsOptions) {
    this.#task = task;
    this.#options = options;
    this.#poller = new Poller({
      runOnce: () => this.#round(),
      onError: (error) => {
        options.log.warn('logs.follow_failed', { taskId: options.store.ids.encode(task), error });
        return RETRY_MS;
      },
    });
  }

  get size(): number {
    return this.#followers.size;
  }

  join(follower: Follower): void {
    this.#followers.add(follower);
  }

  /** Answers how many are left; without any it reads no more. */
  leave(follower: Follower): number {
    this.#followers.delete(follower);
    if (this.#followers.size === 0) void this.#poller.stop();
    return this.#followers.size;
  }

  start(cursor: LogCursor): void {
    if (isBefore(this.cursor, cursor) && ![...this.#followers].some((other) => other.needs(cursor)))
      this.cursor = cursor;
    void this.#poller.start();
  }

  async #round(): Promise<number> {
    const { store, everyMs = EVERY_MS } = this.#options;
    const page = await readLogPage(store, store.ids, this.#task, this.cursor);
    const chunks = page.chunks.map((chunk) => ({ chunk, run: store.ids.decode(chunk.runId)! }));
    this.cursor = page.cursor;
    const ended = page.isLast && isOver(page.status) ? (page.status ?? 'gone') : undefined;
    for (const follower of this.#followers) {
      for (const { chunk, run } of chunks) follower.push(chunk, { run, seq: seqOf(chunk) });
      if (ended) follower.end(ended);
    }
    if (page.isLast || ended) return everyMs;
    return 0;
  }
}

const seqOf = ({ id }: LogChunk) => Number(id.slice(id.indexOf('.') + 1));

/** What waits for one follower. Beyond its bound nothing more is kept: it has to read for itself again. */
class Follower {
  readonly #maxWaiting: number;
  /** Undefined: it reads for itself. */
  #cursor: LogCursor | undefined;
  #last: LogCursor = { run: 0, seq: 0 };
  #waiting: LogChunk[] = [];
  #chars = 0;
  #isBehind = false;
  #ended: TaskState | 'gone' | undefined;
  #wake: (() => void) | undefined;
  #isWoken = false;

  constructor(maxWaiting: number) {
    this.#maxWaiting = maxWaiting;
  }

  open(cursor: LogCursor): void {
    this.#cursor = cursor;
    this.#last = cursor;
  }

  /** Whether it is open and has not got what comes before this place. */
  needs(cursor: LogCursor): boolean {
    return this.#cursor !== undefined && isBefore(this.#cursor, cursor);
  }

  push(chunk: LogChunk, at: LogCursor): void {
    if (this.#cursor === undefined || !isBefore(this.#cursor, at)) return;
    if (this.#chars > 0 && this.#chars + chunk.text.length > this.#maxWaiting) {
      this.#cursor = undefined;
      this.#isBehind = true;
    } else {
      this.#cursor = at;
      this.#last = at;
      this.#waiting.push(chunk);
      this.#chars += chunk.text.length;
    }
    this.wake();
  }

  end(status: TaskState | 'gone'): void {
    if (this.#cursor === undefined) return;
    this.#ended = status;
    this.wake();
  }

  wake(): void {
    this.#isWoken = true;
    this.#wake?.();
    this.#wake = undefined;
  }

  /** All that waits, and behind what it is; where nothing does, after the next wake. */
  async take() {
    if (!this.#isWoken) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    this.#isWoken = false;
    const taken = { chunks: this.#waiting, cursor: this.#last, isBehind: this.#isBehind, ended: this.#ended };
    this.#waiting = [];
    this.#chars = 0;
    this.#isBehind = false;
    return taken;
  }
}

const linesOf = (text: string) => Math.max(1, text.split('\n').length - (text.endsWith('\n') ? 1 : 0));
