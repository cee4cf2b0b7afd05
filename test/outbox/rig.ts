import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Channel, ChannelName, Route } from '../../src/channels/channel.ts';
import type { RatesOf } from '../../src/channels/rates.ts';
import { type ManualClock, manualClock } from '../../src/clock.ts';
import { silentLog } from '../../src/log.ts';
import { createDelivery, type Delivery, type DeliveryOptions } from '../../src/outbox/delivery.ts';
import { createOutbox, type Outbox } from '../../src/outbox/enqueue.ts';
import type { LeasedMessage } from '../../src/outbox/leases.ts';
import type { NewMessage, OutboxEvent } from '../../src/outbox/message.ts';
import { chatHeads } from '../../src/outbox/queries.ts';
import type { OutboxTable } from '../../src/store/outbox-tables.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';

export const START = 1_800_000_000_000;
export const WECOM_WINDOW_MS = 1_800_000;

export function route(chat: string, channel: ChannelName = 'telegram'): Route {
  return { channel, account: 'default', chat, chatKind: 'direct', messageId: '7' };
}

export function final(chat: string, text: string, more: Partial<NewMessage> = {}): NewMessage {
  return { route: route(chat), kind: 'final', text, ...more };
}

/** A store on disk, an outbox that records its events, and deliveries that can be abandoned as a crash abandons them. */
export class Rig {
  readonly clock: ManualClock = manualClock(START);
  readonly events: OutboxEvent[] = [];
  readonly outbox: Outbox;
  readonly #folder: string;
  readonly #deliveries: Delivery[] = [];
  store: Store;

  private constructor(folder: string, rates: RatesOf | undefined) {
    this.#folder = folder;
    this.outbox = createOutbox({
      instant: new Set<ChannelName>(['webchat']),
      emit: (tx, events) => tx.afterCommit(() => void this.events.push(...events)),
      ...(rates && { rates }),
    });
    this.store = this.#open();
  }

  /** @param rates default: none */
  static async create(rates?: RatesOf): Promise<Rig> {
    return new Rig(await mkdtemp(join(tmpdir(), 'errand-outbox-')), rates);
  }

  get path(): string {
    return join(this.#folder, 'errand.db');
  }

  #open(): Store {
    return openSqlite({ path: this.path, clock: this.clock });
  }

  enqueue(...messages: NewMessage[]): Promise<void> {
    return this.store.transact('test.enqueue', (tx) => this.outbox.enqueue(tx, messages));
  }

  resend(...ids: number[]): Promise<boolean[]> {
    return this.store.transact('test.resend', (tx) => this.outbox.resend(tx, ids));
  }

  async deliver(channels: readonly Channel[], more: Partial<DeliveryOptions> = {}): Promise<Delivery> {
    const delivery = createDelivery({
      store: this.store,
      clock: this.clock,
      log: silentLog,
      channels: new Map(channels.map((channel) => [`${channel.name}/${channel.account}`, channel])),
      outbox: this.outbox,
      safeRepeat: new Map([['wecom', WECOM_WINDOW_MS]]),
      stopGraceMs: 0,
      limits: { timeoutMs: 30_000, graceMs: 0 },
      random: () => 0.5,
      ...more,
    });
    this.#deliveries.push(delivery);
    await delivery.start();
    return delivery;
  }

  /**
   * Delivers, with the clock moved along to each next moment at which something may go, until nothing waits. Answers how long it took by
   * that clock, milliseconds.
   */
  async ride(channel: Channel): Promise<number> {
    const startedAt = this.clock.now();
    const delivery = await this.deliver([channel], { limits: { timeoutMs: 60_000, graceMs: 5_000 } });
    const { name, account } = channel;
    for (let idle = 0; ; ) {
      const under = (await this.#underWay()).map(({ status }) => status);
      if (under.length === 0) return this.clock.now() - startedAt;
      idle = under.includes('sending') ? 0 : idle + 1;
      const now = this.clock.now();
      const heads = await this.store.all(chatHeads, { channel: name, account, now, limit: 1 });
      const nextAt = heads[0]?.ready_at ?? Number.POSITIVE_INFINITY;
      if (nextAt > now && !under.includes('sending')) this.clock.set(nextAt);
      // Due, and nobody goes: the whole account is held, of which only the delivery knows.
      else if (idle > 50) this.clock.advance(50);
      delivery.wake();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #underWay(): Promise<{ status: string }[]> {
    const { build } = this.store.dialect;
    return this.store.fetch(
      build
        .selectFrom('outbox')
        .select('status')
        .distinct()
        .where((eb) => eb.or([eb('status', '=', 'pending'), eb('status', '=', 'sending')])),
    );
  }

  /** Leases by id; no test of these is about rates. */
  async lease(ids: readonly number[]): Promise<(LeasedMessage | undefined)[]> {
    return (await this.store.write(this.outbox.leases.lease, ids)).map((message) => {
      if (message === 'paced') throw new Error('the rates do not allow it');
      return message;
    });
  }

  /** As after a kill: the store is gone under whatever was running, and opened anew. */
  async crash(): Promise<void> {
    await this.store.close();
    this.store = this.#open();
  }

  rows(): Promise<OutboxTable[]> {
    return this.store.fetch(this.store.dialect.build.selectFrom('outbox').selectAll().orderBy('id'));
  }

  async statuses(): Promise<string[]> {
    return (await this.rows()).map((row) => row.status);
  }

  async row(text: string): Promise<OutboxTable> {
    const found = (await this.rows()).find((row) => row.text === text);
    if (!found) throw new Error(`no message "${text}"`);
    return found;
  }

  async end(): Promise<void> {
    await Promise.all(this.#deliveries.map((delivery) => delivery.stop()));
    await this.store.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
