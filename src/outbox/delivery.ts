import { setMaxListeners } from 'node:events';
import { backoffMs } from '../backoff.ts';
import type { Channel, ChannelName } from '../channels/channel.ts';
import type { Clock } from '../clock.ts';
import { AppError, messageOf } from '../errors.ts';
import type { Log } from '../log.ts';
import { Poller, type Service, Sleeper } from '../service.ts';
import type { Store } from '../store/store.ts';
import { ChannelPace } from './channel-pace.ts';
import type { Outbox } from './enqueue.ts';
import type { LeasedMessage, Settlement } from './leases.ts';
import { chatText } from './message.ts';
import { type SendResult, settlementOf, settlementOfAbandoned } from './outcome.ts';
import { type ChatHead, chatHeads } from './queries.ts';
import { type CallLimits, deliver } from './sending.ts';

export interface DeliveryOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  /** By `channel/account`. Messages of a channel that is not here wait. */
  readonly channels: ReadonlyMap<string, Channel>;
  readonly outbox: Outbox;
  /** Channels whose platform drops an identical repeat, and for how long, milliseconds. */
  readonly safeRepeat: ReadonlyMap<ChannelName, number>;
  /** Chats written to at the same time; default 16. */
  readonly parallel?: number;
  readonly limits?: CallLimits;
  /** How long `stop` lets running calls finish before it tells them to, milliseconds; default 10 s. */
  readonly stopGraceMs?: number;
  readonly random?: () => number;
}

/** The one that sends. */
export interface Delivery extends Service {
  /** Something may be due: look now. A hint; without it the next look is at most a few seconds away. */
  wake(): void;
}

/**
 * Sends what waits in the outbox: per chat in the order of the ids and by one sender, chats side by side. Every step is a row first,
 * so whatever crashes is picked up from there (`outcome.ts` decides what is repeated). This process must be the only one that
 * delivers from this store: what is found half sent at the start was left by its predecessor.
 */
export function createDelivery(options: DeliveryOptions): Delivery {
  return new DeliveryLoop(options);
}

const PARALLEL = 16;
const LIMITS: CallLimits = { timeoutMs: 45_000, graceMs: 5_000 };
const STOP_GRACE_MS = 10_000;
/** A lost wake-up costs at most this. */
const LONGEST_PAUSE_MS = 5_000;
const SWEEP_MS = 10_000;
/** Chats looked at in one round, per channel account. */
const HEADS = 1_000;

interface Candidate {
  readonly head: ChatHead;
  readonly channel: Channel;
  readonly pace: ChannelPace;
  readonly chat: string;
}

class DeliveryLoop implements Delivery {
  readonly #options: DeliveryOptions;
  readonly #poller: Poller;
  readonly #paces = new Map<string, ChannelPace>();
  /** By chat. */
  readonly #active = new Map<string, Promise<void>>();
  readonly #inHand = new Set<number>();
  #candidates: Candidate[] = [];
  #abort = new AbortController();
  #sweptAt: number | undefined;
  #running = false;

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: () => this.#runOnce(),
      onError: (error, failures) => {
        options.log.warn('outbox.round_failed', { error });
        return backoffMs({ baseMs: 200, factor: 2, capMs: 10_000, jitter: 0.2 }, failures);
      },
    });
  }

  async start(): Promise<void> {
    this.#abort = new AbortController();
    // Every call under way listens.
    setMaxListeners(0, this.#abort.signal);
    this.#sweptAt = undefined;
    this.#running = true;
    await this.#poller.start();
  }

  async stop(): Promise<void> {
    this.#running = false;
    await this.#poller.stop();
    const abort = this.#abort;
    const timer = setTimeout(() => abort.abort(), this.#options.stopGraceMs ?? STOP_GRACE_MS);
    await Promise.all(this.#active.values());
    clearTimeout(timer);
    abort.abort();
  }

  wake(): void {
    this.#poller.wake();
  }

  async #runOnce(): Promise<number> {
    await this.#sweep();
    if (this.#active.size >= this.#parallel) return LONGEST_PAUSE_MS;
    const now = this.#options.clock.now();
    const { due, nextAt } = await this.#look(now);
    this.#candidates = due;
    this.#fill();
    return Math.min(LONGEST_PAUSE_MS, Math.max(0, nextAt - now));
  }

  get #parallel(): number {
    return this.#options.parallel ?? PARALLEL;
  }

  /** Takes messages from senders that are gone: at the start all that are half sent, later those whose lease is over. */
  async #sweep(): Promise<void> {
    const { store, clock, outbox, safeRepeat, log } = this.#options;
    const now = clock.now();
    const first = this.#sweptAt === undefined;
    if (this.#sweptAt !== undefined && now - this.#sweptAt < SWEEP_MS && now >= this.#sweptAt) return;
    const settled = await store.transact('outbox.recover', async (tx) => {
      const found = await outbox.leases.abandoned(tx, first ? Number.POSITIVE_INFINITY : tx.now);
      const orphans = found.filter((message) => !this.#inHand.has(message.id));
      const settlements = orphans.map((message) =>
        settlementOfAbandoned(message, safeRepeat.get(message.channel) ?? 0, tx.now),
      );
      if (settlements.length > 0) await outbox.leases.settle.run(tx, settlements);
      return settlements;
    });
    this.#sweptAt = now;
    for (const { message, status } of settled) {
      log.warn('outbox.recovered', { id: store.ids.encode(message.id), kind: message.kind, status });
    }
  }

  /** What is due, and when something else will be. */
  async #look(now: number): Promise<{ due: Candidate[]; nextAt: number }> {
    const found: Candidate[] = [];
    let nextAt = Number.POSITIVE_INFINITY;
    for (const [key, channel] of this.#options.channels) {
      const pace = this.#paceOf(key);
      if (pace.isHeld(now)) nextAt = Math.min(nextAt, pace.heldUntil);
      else for (const head of await this.#heads(channel, now)) found.push(candidate(head, channel, pace));
    }
    const due = found.filter(({ head }) => head.ready_at <= now);
    for (const { head } of found) if (head.ready_at > now) nextAt = Math.min(nextAt, head.ready_at);
    // Round-robin would be fairer between accounts; the oldest first keeps every wait bounded and needs no memory.
    return { due: due.sort((a, b) => a.head.ready_at - b.head.ready_at || a.head.id - b.head.id), nextAt };
  }

  async #heads({ name, account }: Channel, now: number): Promise<ChatHead[]> {
    const { store, outbox } = this.#options;
    const heads = await store.all(chatHeads, { channel: name, account, now, limit: HEADS });
    const late = heads.filter((head) => head.late === 1 && head.ready_at <= now).map((head) => head.id);
    if (late.length > 0) await this.#collectLate(late);
    const outdating = heads.filter((head) => head.outdates === 1).map((head) => head.id);
    if (outdating.length > 0) await store.write(outbox.leases.supersede, outdating);
    return heads;
  }

  /** What became part of a list is not leased any more; the list is found at the next look. */
  async #collectLate(headIds: readonly number[]): Promise<void> {
    const { store, outbox } = this.#options;
    await store.transact('outbox.digest', (tx) => outbox.digests.collect(tx, headIds, (id) => store.ids.encode(id)));
  }

  #paceOf(key: string): ChannelPace {
    const known = this.#paces.get(key) ?? new ChannelPace(this.#options.random);
    this.#paces.set(key, known);
    return known;
  }

  /** Starts senders until all are busy; each comes back here when it is done. */
  #fill(): void {
    if (!this.#running) return;
    const now = this.#options.clock.now();
    const skipped: Candidate[] = [];
    while (this.#active.size < this.#parallel && this.#candidates.length > 0) {
      const next = this.#candidates.shift()!;
      if (this.#active.has(next.chat)) continue;
      if (!next.pace.mayStart(now)) skipped.push(next);
      else this.#begin(next);
    }
    this.#candidates.unshift(...skipped);
  }

  #begin(next: Candidate): void {
    const wave = next.pace.begin();
    this.#inHand.add(next.head.id);
    const done = this.#deliver(next, wave)
      .catch((error: unknown) => {
        this.#options.log.error('outbox.delivery_failed', { id: next.head.id, error: messageOf(error) });
        return false;
      })
      .then((progress) => this.#end(next, progress));
    this.#active.set(next.chat, done);
  }

  #end(ended: Candidate, progress: boolean): void {
    ended.pace.running -= 1;
    this.#active.delete(ended.chat);
    this.#inHand.delete(ended.head.id);
    this.#fill();
    // Where nothing was done, looking again at once would find the same: the next regular look is soon enough.
    if (progress) this.#poller.wake();
  }

  /** One message from its lease to its receipt; false when it could not be leased. */
  async #deliver({ head, channel, pace }: Candidate, wave: number): Promise<boolean> {
    const { store, outbox, clock, random, safeRepeat, limits } = this.#options;
    const message = (await store.write(outbox.leases.lease, [head.id]))[0];
    if (message === undefined || message === 'paced') return message === 'paced';
    const publicId = store.ids.encode(message.id);
    const result = await deliver(message, {
      channel,
      publicId,
      ...(message.taskId !== undefined && { taskId: store.ids.encode(message.taskId) }),
      safe: safeRepeat.has(message.channel),
      limits: limits ?? LIMITS,
      signal: this.#abort.signal,
      record: async (partsSent, platformIds) =>
        (
          await this.#persist(() => store.write(outbox.leases.recordPart, [{ message, partsSent, platformIds }]))
        )?.[0] ?? 'lost',
    });
    if (!result) return true;
    const now = clock.now();
    if (isAnswered(result)) pace.note(result.outcome, wave, now);
    const settlement = settlementOf(message, result, now, random);
    const stored = await this.#persist(() => store.write(outbox.leases.settle, [settlement]));
    if (stored?.[0]) this.#tell(message, settlement, publicId);
    else this.#options.log.warn('outbox.lease_lost', { id: publicId, outcome: result.outcome.outcome });
    if (result.outcome.outcome === 'sent' && result.outcome.movedTo) await this.#move(message, result.outcome.movedTo);
    return true;
  }

  /** Until it is stored every message to the old id finds its way by itself, with one call more. */
  async #move({ channel, account, chat: from }: LeasedMessage, to: string): Promise<void> {
    const { store, outbox, log } = this.#options;
    await this.#persist(() =>
      store.transact('outbox.move', (tx) => outbox.moveChat(tx, { channel, account, from, to })),
    );
    log.info('outbox.chat_moved', { channel, account, from, to });
  }

  /**
   * What the platform has answered must get into the row, or it would be sent again: repeats the write while the disk is full or the
   * database away. Undefined when stopped meanwhile; the next start finds the row half sent.
   */
  async #persist<T>(write: () => Promise<T>): Promise<T | undefined> {
    for (let failures = 1; ; failures += 1) {
      try {
        return await write();
      } catch (error) {
        this.#options.log.error('outbox.record_failed', { error: messageOf(error) });
        if (!isStorageFault(error)) throw error;
        if (this.#abort.signal.aborted) return undefined;
        await new Sleeper().sleep(
          backoffMs({ baseMs: 100, factor: 2, capMs: 5_000, jitter: 0.2 }, failures),
          this.#abort.signal,
        );
      }
    }
  }

  #tell(message: LeasedMessage, { status, error, nextAt }: Settlement, id: string): void {
    const { log } = this.#options;
    const fields = { id, channel: message.channel, kind: message.kind, attempt: message.fence };
    if (status === 'sent') log.debug('outbox.sent', fields);
    else if (status === 'superseded') log.debug('outbox.superseded', { ...fields, error });
    else if (status === 'pending' && error === null) log.debug('outbox.paced', fields);
    else if (status === 'pending') log.info('outbox.retry', { ...fields, error, nextAt });
    else log.warn(`outbox.${status}`, { ...fields, error });
  }
}

function candidate(head: ChatHead, channel: Channel, pace: ChannelPace): Candidate {
  return { head, channel, pace, chat: chatText({ channel: channel.name, account: channel.account, chat: head.chat }) };
}

/** The platform has been asked, and this is how it ended. */
function isAnswered({ paced, skipped }: SendResult): boolean {
  return !paced && skipped === undefined;
}

/** Worth another try: the disk is full, the database does not answer. */
function isStorageFault(error: unknown): boolean {
  return error instanceof AppError && (error.code === 'storage_full' || error.code === 'unavailable');
}
