import type { Api } from 'grammy';
import type { Update } from 'grammy/types';
import { backoffMs } from '../../backoff.ts';
import { messageOf } from '../../errors.ts';
import { type Log, redact } from '../../log.ts';
import { Poller, type Service } from '../../service.ts';
import type { ChannelPort } from '../channel.ts';
import { type CallFailure, failureOf } from './api.ts';
import { ALLOWED_UPDATES, type TelegramTiming } from './options.ts';
import type { Pulse } from './pulse.ts';
import { TOKEN_REFUSED } from './send.ts';

export interface PollingOptions {
  /** With a time limit above the poll's own. */
  readonly api: Api;
  readonly token: string;
  readonly port: ChannelPort;
  readonly pulse: Pulse;
  readonly log: Log;
  readonly timing: TelegramTiming;
  /** Called before updates are asked for; must not throw. */
  prepare(signal: AbortSignal): Promise<void>;
  /** Stores the updates durably with this offset, in one transaction; answers whether one of them was new. Throws when it could not. */
  accept(updates: readonly Update[], offset: number): Promise<boolean>;
}

const LEASE = 'poll';
/** The state row that holds the next offset: the last stored update's id + 1. */
export const OFFSET = 'offset';

/**
 * Long polling where the stored row decides: updates are stored together with the next offset, and only the next getUpdates, which
 * carries that offset, tells Telegram so. A crash in between delivers the updates again and the inbox knows them.
 * The offset follows the last update also downwards: ids restart at random after a quiet week (Bot API, Update).
 */
export class Polling implements Service {
  readonly #options: PollingOptions;
  readonly #poller: Poller;
  #held = false;

  constructor(options: PollingOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: (signal) => this.#round(signal),
      onError: (error, failures) => this.#failed(error, failures),
    });
  }

  start(): Promise<void> {
    return this.#poller.start();
  }

  async stop(): Promise<void> {
    await this.#poller.stop();
    if (!this.#held) return;
    this.#held = false;
    // Let go at once, so that a successor need not wait for the lease to run out.
    await this.#options.port.lease(LEASE, 1).catch(() => false);
  }

  async #round(signal: AbortSignal): Promise<number> {
    const { port, pulse, timing } = this.#options;
    const leaseMs = timing.callMs + timing.pollMs + timing.pollMarginMs + 10_000;
    this.#held = await port.lease(LEASE, leaseMs);
    if (!this.#held) {
      pulse.standBy('Another process of this gateway polls Telegram.');
      return timing.standbyMs;
    }
    await this.#options.prepare(signal);
    const startedAt = performance.now();
    const updates = await this.#fetch(signal).catch((error: unknown) => this.#refused(error, signal));
    if (updates.length === 0) {
      pulse.ok('intake');
      return performance.now() - startedAt < timing.emptyPauseMs ? timing.emptyPauseMs : 0;
    }
    const news = await this.#options.accept(updates, updates.at(-1)!.update_id + 1);
    pulse.ok('intake');
    return news ? 0 : timing.emptyPauseMs;
  }

  async #fetch(signal: AbortSignal): Promise<Update[]> {
    const offset = await this.#options.port.state.get<number>(OFFSET);
    const updates: unknown = await this.#options.api.raw.getUpdates(
      {
        ...(offset !== undefined && { offset }),
        timeout: Math.floor(this.#options.timing.pollMs / 1000),
        limit: 100,
        allowed_updates: ALLOWED_UPDATES,
      },
      signal as never,
    );
    return Array.isArray(updates)
      ? (updates as Update[]).filter((update) => Number.isSafeInteger(update?.update_id))
      : [];
  }

  /** A webhook and polling exclude each other: the mode that was chosen here wins. Throws in any case; the next round polls. */
  async #refused(error: unknown, signal: AbortSignal): Promise<never> {
    const failure = failureOf(error, this.#options.token);
    if (failure && webhookIsSet(failure)) {
      await this.#options.api.raw.deleteWebhook({}, signal as never);
      this.#options.log.warn('telegram.webhook_removed', { reason: 'polling is configured' });
    }
    throw error;
  }

  /** Says what is wrong, and answers the pause. Nothing here ends the loop. */
  #failed(error: unknown, failures: number): number {
    const { token, pulse, log, timing } = this.#options;
    const failure = failureOf(error, token);
    const pauseMs = backoffMs(timing.backoff, failures);
    if (!failure) {
      const reason = redact(messageOf(error), [token]);
      log.error('telegram.intake_failed', { reason, pauseMs });
      pulse.fail('intake', 'Messages from Telegram cannot be stored; they stay with Telegram until they can.');
      return pauseMs;
    }
    log.warn('telegram.poll_failed', { reason: failure.text, failures });
    pulse.fail('intake', problemOf(failure));
    if (failure.kind !== 'refused') return pauseMs;
    if (failure.code === 401 || failure.code === 404) return timing.refusedMs;
    return failure.retryAfterMs ?? pauseMs;
  }
}

function problemOf(failure: CallFailure): string {
  if (failure.kind !== 'refused') return `Telegram cannot be reached (${failure.text}).`;
  if (failure.code === 401 || failure.code === 404) return TOKEN_REFUSED;
  if (failure.code !== 409) return `${failure.text}.`;
  return webhookIsSet(failure)
    ? 'A webhook is set for this bot; it is being removed because polling is configured.'
    : 'Another instance is polling with this bot token.';
}

function webhookIsSet(failure: CallFailure): boolean {
  return failure.kind === 'refused' && failure.code === 409 && /webhook is active/i.test(failure.text);
}
