import type { Api } from 'grammy';
import type { Update } from 'grammy/types';
import type { Log } from '../../log.ts';
import type { Poller, Service } from '../../service.ts';
import type { Channel, ChannelDoor, ChannelHealth, LongText, OutgoingMessage, Part, SendOutcome } from '../channel.ts';
import { split } from '../text.ts';
import { failureOf, telegramApi } from './api.ts';
import { Floods } from './floods.ts';
import { toIncoming } from './mapping.ts';
import { checkOptions, DEFAULT_TIMING, type TelegramOptions, type TelegramTiming, webhookPath } from './options.ts';
import { OFFSET, Polling } from './polling.ts';
import { Pulse } from './pulse.ts';
import { SelfKnowledge } from './self.ts';
import { editText, type SenderOptions, sendPart, TEXT_LIMIT } from './send.ts';
import { upkeep } from './upkeep.ts';
import { webhookDoor } from './webhook.ts';

/**
 * A Telegram bot as a channel, by long polling or by webhook. Starting does not need the network.
 * @throws AppError `invalid_config` for options that cannot work
 */
export function createTelegramChannel(options: TelegramOptions): Channel {
  checkOptions(options);
  return new TelegramChannel(options);
}

/** More is head, tail and a file. */
const MOST_PARTS = 4;

class TelegramChannel implements Channel {
  readonly name = 'telegram';
  readonly account: string;
  readonly doors: readonly ChannelDoor[];
  readonly #options: TelegramOptions;
  readonly #timing: TelegramTiming;
  readonly #log: Log;
  readonly #api: Api;
  readonly #pulse: Pulse;
  readonly #floods: Floods;
  readonly #self: SelfKnowledge;
  readonly #polling: Service | undefined;
  readonly #upkeep: Poller;
  #stopping = new AbortController();

  constructor(options: TelegramOptions) {
    options.log.addSecret(options.token);
    if (options.webhookSecret) options.log.addSecret(options.webhookSecret);
    this.#options = options;
    this.account = options.account;
    this.#timing = { ...DEFAULT_TIMING, ...options.timing };
    this.#log = options.log.child({ channel: 'telegram', account: options.account });
    this.#api = telegramApi(options, this.#timing.callMs);
    this.#floods = new Floods(options.clock);
    const roundMs = this.#timing.pollMs + this.#timing.pollMarginMs;
    this.#pulse = new Pulse(options.clock, options.mode === 'polling' ? 2 * roundMs + this.#timing.callMs : undefined);
    this.#self = new SelfKnowledge(this.#api, options.port, options.token);
    this.#polling = options.mode === 'polling' ? this.#poll(roundMs) : undefined;
    this.doors = options.mode === 'webhook' ? [this.#door(options.webhookSecret!)] : [];
    const { port: _, ...shared } = this.#shared();
    this.#upkeep = upkeep({ ...shared, api: this.#api, channel: options, self: this.#self });
  }

  split(message: LongText): Part[] {
    return split(message, { max: TEXT_LIMIT, measure: 'utf16', mostParts: MOST_PARTS });
  }

  send(message: OutgoingMessage, signal: AbortSignal): Promise<SendOutcome> {
    return sendPart(this.#senderOptions(), message, signal);
  }

  edit(message: OutgoingMessage, platformId: string, signal: AbortSignal): Promise<SendOutcome> {
    return editText(this.#senderOptions(), message, platformId, signal);
  }

  health(): ChannelHealth {
    return this.#pulse.health();
  }

  async start(): Promise<void> {
    this.#stopping = new AbortController();
    await this.#self.load();
    await this.#upkeep.start();
    await this.#polling?.start();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([this.#upkeep.stop(), this.#polling?.stop()]);
  }

  #senderOptions(): SenderOptions {
    const { token } = this.#options;
    const { refusedMs } = this.#timing;
    return { api: this.#api, token, pulse: this.#pulse, log: this.#log, refusedMs, floods: this.#floods };
  }

  #shared() {
    return { port: this.#options.port, pulse: this.#pulse, log: this.#log, timing: this.#timing };
  }

  #poll(roundMs: number): Service {
    const { token } = this.#options;
    return new Polling({
      ...this.#shared(),
      token,
      api: telegramApi(this.#options, roundMs),
      prepare: (signal) => this.#self.introduced(signal),
      accept: (updates, offset) => this.#accept(updates, { key: OFFSET, value: offset }),
    });
  }

  #door(secret: string): ChannelDoor {
    const path = webhookPath(this.account);
    return webhookDoor({
      path,
      secret,
      pulse: this.#pulse,
      log: this.#log,
      accept: (update) => this.#accept([update]),
    });
  }

  /** Stores first, then stops the spinners of pressed buttons. Answers whether something was new. */
  async #accept(updates: readonly Update[], state?: { key: string; value: unknown }): Promise<boolean> {
    const messages = updates.map((update) => toIncoming(update, this.account, this.#self.current));
    const results = await this.#options.port.accept(messages, state);
    for (const { callback_query: query } of updates) if (query) this.#answer(query.id);
    return results.includes('stored');
  }

  /** Best effort and not waited for: a query that is too old, or answered twice, is refused and that is fine. */
  #answer(queryId: string): void {
    const signal = this.#stopping.signal;
    this.#api.raw.answerCallbackQuery({ callback_query_id: queryId }, signal as never).catch((error: unknown) => {
      this.#log.debug('telegram.button_not_answered', { reason: failureOf(error, this.#options.token)?.text });
    });
  }
}
