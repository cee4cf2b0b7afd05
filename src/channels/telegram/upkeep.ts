import type { Api } from 'grammy';
import { backoffMs } from '../../backoff.ts';
import { messageOf } from '../../errors.ts';
import { type Log, redact } from '../../log.ts';
import { Poller } from '../../service.ts';
import { failureOf } from './api.ts';
import { ALLOWED_UPDATES, type TelegramOptions, type TelegramTiming, webhookPath } from './options.ts';
import type { Pulse } from './pulse.ts';
import type { SelfKnowledge } from './self.ts';
import { TOKEN_REFUSED } from './send.ts';

export interface UpkeepOptions {
  readonly api: Api;
  readonly channel: TelegramOptions;
  readonly self: SelfKnowledge;
  readonly pulse: Pulse;
  readonly log: Log;
  readonly timing: TelegramTiming;
}

/** In the background, again and again: the bot's name, its webhook, its command menus. Nothing waits for it. */
export function upkeep(options: UpkeepOptions): Poller {
  return new Poller({
    runOnce: async (signal) => {
      await options.self.refresh(signal);
      options.pulse.ok('token');
      await registerWebhook(options, signal);
      await publishCommands(options, signal);
      return options.timing.upkeepMs;
    },
    onError: (error, failures) => failed(options, error, failures),
  });
}

async function registerWebhook({ api, channel, pulse }: UpkeepOptions, signal: AbortSignal): Promise<void> {
  const { mode, publicUrl, webhookSecret, account } = channel;
  if (mode !== 'webhook' || publicUrl === undefined) return;
  const url = publicUrl.replace(/\/+$/, '') + webhookPath(account);
  await api.raw.setWebhook({ url, secret_token: webhookSecret, allowed_updates: ALLOWED_UPDATES }, signal as never);
  pulse.ok('webhook');
}

/** A menu is a convenience: when it cannot be set, everything else works. */
async function publishCommands({ api, channel, log }: UpkeepOptions, signal: AbortSignal): Promise<void> {
  try {
    for (const { scope, lang, commands } of channel.menus ?? []) {
      const whom = { scope: SCOPES[scope], ...(lang !== undefined && { language_code: lang as never }) };
      await api.raw.setMyCommands({ commands, ...whom }, signal as never);
    }
  } catch (error) {
    log.debug('telegram.commands_not_set', { reason: failureOf(error, channel.token)?.text });
  }
}

/** Bot API, BotCommandScope. */
const SCOPES = {
  private: { type: 'all_private_chats' },
  group: { type: 'all_group_chats' },
  admins: { type: 'all_chat_administrators' },
} as const;

function failed({ channel, pulse, log, timing }: UpkeepOptions, error: unknown, failures: number): number {
  const failure = failureOf(error, channel.token);
  const reason = failure?.text ?? redact(messageOf(error), [channel.token]);
  log.warn('telegram.upkeep_failed', { reason, failures });
  const tokenRefused = failure?.kind === 'refused' && (failure.code === 401 || failure.code === 404);
  if (tokenRefused) pulse.fail('token', TOKEN_REFUSED);
  else if (channel.mode === 'webhook') pulse.fail('webhook', `The webhook is not confirmed (${reason}).`);
  if (tokenRefused) return timing.refusedMs;
  const retryAfterMs = failure?.kind === 'refused' ? failure.retryAfterMs : undefined;
  return retryAfterMs ?? backoffMs(timing.backoff, failures);
}
