import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ChannelName, Route } from '../../src/channels/channel.ts';
import { type ManualClock, manualClock } from '../../src/clock.ts';
import { silentLog } from '../../src/log.ts';
import { createDelivery, type Delivery, type DeliveryOptions } from '../../src/outbox/delivery.ts';
import { createOutbox, type Outbox } from '../../src/outbox/enqueue.ts';
import type { NewMessage, OutboxEvent } from '../../src/outbox/message.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import type { OutboxTable } from '../../src/store/tables.ts';
import type { ScriptedChannel } from '../support/scripted-channel.ts';

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
  readonly outbox: Outbox = createOutbox({
    instant: new Set<ChannelName>(['webchat']),
    emit: (tx, events) => tx.afterCommit(() => void this.events.push(...events)),
  });
  readonly #folder: string;
  readonly #deliveries: Delivery[] = [];
  store: Store;

  private constructor(folder: string) {
    this.#folder = folder;
    this.store = this.#open();
  }

  static async create(): Promise<Rig> {
    return new Rig(await mkdtemp(join(tmpdir(), 'errand-outbox-')));
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

  async deliver(channels: ScriptedChannel[], more: Partial<DeliveryOptions> = {}): Promise<Delivery> {
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
