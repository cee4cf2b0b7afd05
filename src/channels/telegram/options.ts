import { type BackoffPolicy, DEFAULT_BACKOFF } from '../../backoff.ts';
import type { Clock } from '../../clock.ts';
import { AppError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { ChannelPort } from '../channel.ts';

export interface TelegramOptions {
  /** The bot's token from BotFather; a secret. */
  readonly token: string;
  /** Which bot of several; `default` where there is one. */
  readonly account: string;
  /** Root of the Bot API. Default: Telegram's own. */
  readonly apiRoot?: string;
  readonly mode: 'polling' | 'webhook';
  /** Webhook mode: Telegram sends it back in a header; 1 to 256 letters, digits, `_` and `-` (Bot API, setWebhook). */
  readonly webhookSecret?: string;
  /** Webhook mode: the https address under which Telegram reaches the gateway. Absent: somebody else registers the webhook. */
  readonly publicUrl?: string;
  /** Menus of Telegram's apps. */
  readonly menus?: readonly TelegramMenu[];
  readonly port: ChannelPort;
  readonly clock: Clock;
  readonly log: Log;
  /** For proxies and tests. Default: the global one. */
  readonly fetch?: typeof globalThis.fetch;
  readonly timing?: Partial<TelegramTiming>;
}

/** Commands for one kind of chat and, where `lang` is there, people whose app is in that language. */
export interface TelegramMenu {
  readonly scope: 'private' | 'group' | 'admins';
  readonly lang?: string;
  /** `command` is 1 to 32 of `[a-z0-9_]`. */
  readonly commands: readonly { readonly command: string; readonly description: string }[];
}

/** Durations in milliseconds. */
export interface TelegramTiming {
  /** How long Telegram holds a poll while there is nothing to say; the server's cap is 50 s. */
  readonly pollMs: number;
  /** How much later than that an answer may come before the socket counts as dead. */
  readonly pollMarginMs: number;
  /** Limit of every other call. */
  readonly callMs: number;
  /** Pause while another process holds the polling lease. */
  readonly standbyMs: number;
  /** Pause after an empty poll that came back at once, and after one that brought only known messages: some servers do not long-poll. */
  readonly emptyPauseMs: number;
  /** Pause while Telegram refuses the token. */
  readonly refusedMs: number;
  /** Pause before the webhook and the bot's name are looked after again. */
  readonly upkeepMs: number;
  readonly backoff: BackoffPolicy;
}

export const DEFAULT_TIMING: TelegramTiming = {
  pollMs: 25_000,
  pollMarginMs: 10_000,
  callMs: 20_000,
  standbyMs: 5_000,
  emptyPauseMs: 500,
  refusedMs: 60_000,
  upkeepMs: 6 * 3_600_000,
  backoff: { ...DEFAULT_BACKOFF, capMs: 30_000 },
};

/** The only kinds of update Errand asks for; the platform keeps the setting until it is told otherwise. */
export const ALLOWED_UPDATES = ['message', 'edited_message', 'callback_query', 'my_chat_member'] as const;

/**
 * @throws AppError `invalid_config` naming the option that is wrong; the message holds no secret.
 */
export function checkOptions(options: TelegramOptions): void {
  if (!/^[^\s/?#]+$/.test(options.token)) {
    throw new AppError('invalid_config', 'the Telegram bot token is empty or malformed', { field: 'token' });
  }
  if (options.mode === 'webhook' && !/^[A-Za-z0-9_-]{1,256}$/.test(options.webhookSecret ?? '')) {
    const message = 'Telegram webhook mode needs a secret of 1 to 256 letters, digits, _ and -';
    throw new AppError('invalid_config', message, { field: 'webhookSecret' });
  }
}

/** The webhook's path: `/channels/telegram/webhook`, with the account's name where it is not `default`. */
export function webhookPath(account: string): string {
  return account === 'default'
    ? '/channels/telegram/webhook'
    : `/channels/telegram/webhook/${encodeURIComponent(account)}`;
}
