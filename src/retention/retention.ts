import { backoffMs } from '../backoff.ts';
import type { Clock } from '../clock.ts';
import { randomToken } from '../ids.ts';
import { takeLease } from '../intake/inbox/queries.ts';
import type { Log } from '../log.ts';
import { Poller, type Service, Sleeper } from '../service.ts';
import type { Store } from '../store/store.ts';
import type { Verb } from '../store/tx.ts';
import type { Archive } from './archive.ts';
import { type Bundle, type PruneOrder, prunableKinds, readBundles } from './prune.ts';
import {
  type Candidate,
  type Cutoffs,
  healLease,
  type Key,
  type Kind,
  lastPass,
  recordPass,
  releasePass,
} from './prune-queries.ts';
import { StreamPruning } from './prune-streams.ts';

export interface RetentionOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly archive: Archive;
  /** How long a finished thing is kept, milliseconds. */
  readonly retentionMs: number;
  /** Pause after each batch, milliseconds, so that nobody waits behind the pruning; default 10. */
  readonly pauseMs?: number;
  /** A log of the database larger than this is told, bytes; default 256 MiB, four times what it is cut back to. */
  readonly logWarnBytes?: number;
  /** Monotonic milliseconds; injectable for tests. */
  readonly monotonic?: () => number;
}

/** What a pass did, rows by table (of the kind; its parts go with it). */
export interface PassReport {
  readonly pruned: Readonly<Record<string, number>>;
  /** False: nothing was looked at. Another loop is at it, or the clock is not trusted yet. */
  readonly ran: boolean;
  /** When something may be due again, epoch milliseconds; Infinity where nothing is in sight. */
  readonly nextAt: number;
}

/** Identities of incoming messages are known for so long, whatever the setting: platforms repeat what they are not sure about. */
export const INBOX_MS = 7 * 86_400_000;
/** Who changed what is asked later than what a program printed. */
export const AUDIT_MS = 90 * 86_400_000;

const WALK_ROWS = 500;
/** Bounds of one gzip member, and of what is in memory at once. */
const BATCH = { keys: 200, rows: 2_000, characters: 2_000_000 };
/** Read together; a task may have many events. */
const READ_KEYS = 20;
/** Bound of one transaction. A single task with more rows is a transaction of its own. */
const TRANSACTION_ROWS = 400;
const LEASE = 'retention';
const LEASE_MS = 60_000;
/** After a jump of the clock, or a start after a long time, nothing is pruned for so long: somebody may set it right. */
export const SETTLE_MS = 3_600_000;
const JUMP_MS = 60_000;
const PAUSE = { shortest: 60_000, longest: 3_600_000 };
const LOG_WARN_BYTES = 256 * 1024 ** 2;
const RETRY = { baseMs: 5_000, factor: 2, capMs: 600_000, jitter: 0.2 };

/**
 * Archives what is old and finished, and then prunes it. A row is removed only after the archive is on disk and only as it was
 * archived; a crash in between archives it twice, never not at all. Runs at the start and whenever something has become due.
 */
export class Retention implements Service {
  readonly #options: RetentionOptions;
  readonly #kinds: { kind: Kind; verb: Verb<PruneOrder, boolean> }[];
  readonly #streams: StreamPruning;
  readonly #holder = randomToken(12);
  readonly #monotonic: () => number;
  readonly #poller: Poller;
  readonly #sleeper = new Sleeper();
  #running: Promise<PassReport> | undefined;
  #last: { clock: number; monotonic: number } | undefined;
  /** By the monotonic clock. */
  #settledAt = Number.NEGATIVE_INFINITY;

  constructor(options: RetentionOptions) {
    this.#options = options;
    this.#kinds = prunableKinds(options.store.ids);
    this.#streams = new StreamPruning(options);
    this.#monotonic = options.monotonic ?? (() => performance.now());
    this.#poller = new Poller({
      runOnce: async (signal) => {
        const { nextAt } = await this.runOnce(signal);
        this.#watchLog();
        return Math.min(Math.max(nextAt - options.clock.now(), PAUSE.shortest), PAUSE.longest);
      },
      onError: (error, failures) => {
        options.log.error('retention.failed', { error });
        return backoffMs(RETRY, failures);
      },
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  stop(): Promise<void> {
    this.#sleeper.wake();
    return this.#poller.stop();
  }

  /**
   * One pass over everything; the one that is on, where there is one.
   * @throws AppError storage_full, unavailable: what was not archived is all still there
   */
  runOnce(signal: AbortSignal = new AbortController().signal): Promise<PassReport> {
    this.#running ??= this.#pass(signal).finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #pass(signal: AbortSignal): Promise<PassReport> {
    const { clock, log } = this.#options;
    const waitMs = await this.#mistrustMs();
    if (waitMs > 0) return { pruned: {}, ran: false, nextAt: clock.now() + waitMs };
    if (!(await this.#take())) return { pruned: {}, ran: false, nextAt: clock.now() + LEASE_MS };
    try {
      const cutoffs = this.#cutoffs();
      const pruned: Record<string, number> = {};
      let nextAt = Number.POSITIVE_INFINITY;
      for (const { kind, verb } of this.#kinds) {
        const walked = await this.#walk(kind, verb, cutoffs, signal);
        if (walked.count > 0) pruned[kind.table] = walked.count;
        nextAt = Math.min(nextAt, walked.nextAt);
      }
      const streams = await this.#streams.pass(cutoffs.now, signal, () => this.#take());
      if (streams > 0) pruned.stream = streams;
      if (Object.keys(pruned).length > 0) log.info('retention.pruned', pruned);
      return { pruned, ran: true, nextAt };
    } finally {
      await this.#release();
    }
  }

  #cutoffs(): Cutoffs {
    const { clock, retentionMs } = this.#options;
    const now = clock.now();
    return {
      now,
      before: now - retentionMs,
      inbox_before: now - Math.max(retentionMs, INBOX_MS),
      audit_before: now - Math.max(retentionMs, AUDIT_MS),
    };
  }

  async #walk(
    kind: Kind,
    verb: Verb<PruneOrder, boolean>,
    cutoffs: Cutoffs,
    signal: AbortSignal,
  ): Promise<{ count: number; nextAt: number }> {
    const { store } = this.#options;
    let after = kind.start;
    let count = 0;
    while (!signal.aborted) {
      const rows = await store.all(kind.candidates, { ...cutoffs, after, limit: WALK_ROWS });
      const due = rows.filter((row) => row.due === 1).map((row) => row.key);
      count += await this.#pruneAll(kind, verb, due, cutoffs, signal);
      const young = rows.find((row) => isYoung(row, kind, cutoffs));
      if (young) return { count, nextAt: young.at + cutoffs.now - (cutoffs[kind.ageOf!] as number) };
      if (rows.length < WALK_ROWS) break;
      after = rows.at(-1)!.key;
      await new Promise((resolve) => setImmediate(resolve));
    }
    return { count, nextAt: Number.POSITIVE_INFINITY };
  }

  async #pruneAll(
    kind: Kind,
    verb: Verb<PruneOrder, boolean>,
    keys: readonly Key[],
    cutoffs: Cutoffs,
    signal: AbortSignal,
  ): Promise<number> {
    const { store, archive, pauseMs = 10 } = this.#options;
    let rest = keys;
    let count = 0;
    while (rest.length > 0 && !signal.aborted && (await this.#take())) {
      const { bundles, read } = await this.#nextBatch(kind, rest);
      rest = rest.slice(read);
      await archive.append(bundles.flatMap((bundle) => bundle.lines));
      for (const slice of slices(bundles)) {
        const orders = slice.map((bundle) => ({ bundle, cutoffs }));
        count += (await store.write(verb, orders)).filter(Boolean).length;
        if (pauseMs > 0) await this.#sleeper.sleep(pauseMs, signal);
      }
    }
    return count;
  }

  /** As many of the first keys as one batch holds, and how many that were. */
  async #nextBatch(kind: Kind, keys: readonly Key[]): Promise<{ bundles: Bundle[]; read: number }> {
    const { store } = this.#options;
    const bundles: Bundle[] = [];
    let read = 0;
    let rows = 0;
    let characters = 0;
    while (read < Math.min(keys.length, BATCH.keys) && rows < BATCH.rows && characters < BATCH.characters) {
      const next = keys.slice(read, read + READ_KEYS);
      for (const bundle of await readBundles(store, kind, next, store.ids)) {
        bundles.push(bundle);
        rows += bundle.lines.length;
        characters += bundle.lines.reduce((sum, line) => sum + line.length, 0);
      }
      read += next.length;
    }
    return { bundles, read };
  }

  /** One loop at a time, whatever runs in this process or beside it; renewed with every batch. */
  async #take(): Promise<boolean> {
    const { store } = this.#options;
    return store.transact('retention.take', async (tx) => {
      await tx.run(healLease, { name: LEASE, latest: tx.now + 2 * LEASE_MS, now: tx.now });
      const lease = { name: LEASE, holder: this.#holder, now: tx.now, until: tx.now + LEASE_MS };
      const taken = (await tx.all(takeLease, lease)).length > 0;
      if (taken) await tx.run(recordPass, { now: String(tx.now) });
      return taken;
    });
  }

  /** Where even that fails, the lease ends by itself. */
  async #release(): Promise<void> {
    const { store, log } = this.#options;
    await store
      .transact('retention.release', (tx) => tx.run(releasePass, { name: LEASE, holder: this.#holder, now: tx.now }))
      .catch((error: unknown) => log.warn('retention.release_failed', { error }));
  }

  /** How long, milliseconds, the clock is not to be trusted yet: a wrong one that runs ahead would make everything due. */
  async #mistrustMs(): Promise<number> {
    const { clock, store, retentionMs, log } = this.#options;
    const now = { clock: clock.now(), monotonic: this.#monotonic() };
    const last = this.#last;
    this.#last = now;
    let reason: string | undefined;
    if (!last) {
      const [seen] = await store.all(lastPass, {});
      if (seen && now.clock - Number(seen.value) > retentionMs) reason = 'started_after_long';
    } else if (now.clock - last.clock - (now.monotonic - last.monotonic) > JUMP_MS) reason = 'clock_jump';
    if (reason !== undefined) {
      this.#settledAt = now.monotonic + SETTLE_MS;
      log.warn('retention.waits', { reason, waitMs: SETTLE_MS });
    }
    return Math.max(0, this.#settledAt - now.monotonic);
  }

  /** A reader that never ends (another process on the file) keeps the log from starting anew. */
  #watchLog(): void {
    const { store, log, logWarnBytes = LOG_WARN_BYTES } = this.#options;
    const { walBytes } = store.stats();
    if (walBytes > logWarnBytes) {
      log.warn('store.log_large', {
        walBytes,
        advice: 'a program holds a read transaction on the database file open (a backup, a shell): end it',
      });
    }
  }
}

/** Not old enough to be due, and made in order: whatever follows is younger still. A row from the future is a clock's fault. */
function isYoung(row: Candidate, { ageOf }: Kind, cutoffs: Cutoffs): boolean {
  return ageOf !== null && row.at > (cutoffs[ageOf] as number) && row.at <= cutoffs.now;
}

function slices(bundles: readonly Bundle[]): Bundle[][] {
  const out: Bundle[][] = [];
  let rows = Number.POSITIVE_INFINITY;
  for (const bundle of bundles) {
    if (rows + bundle.lines.length > TRANSACTION_ROWS) {
      out.push([]);
      rows = 0;
    }
    out.at(-1)!.push(bundle);
    rows += bundle.lines.length;
  }
  return out;
}
