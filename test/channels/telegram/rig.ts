import type { Channel, OutgoingMessage, Part, Route, SendOutcome } from '../../../src/channels/channel.ts';
import { createTelegramChannel } from '../../../src/channels/telegram/channel.ts';
import type { TelegramOptions, TelegramTiming } from '../../../src/channels/telegram/options.ts';
import { systemClock } from '../../../src/clock.ts';
import { createLog } from '../../../src/log.ts';
import { asRich } from '../../../src/rich-text.ts';
import { serveDoors } from '../../support/door-server.ts';
import { type FakeTelegram, startFakeTelegram } from '../../support/fake-telegram/fake-telegram.ts';
import { type MemoryPort, memoryPort } from '../../support/memory-port.ts';

/** Pauses so short that nobody waits for them; limits so long that they only end what truly hangs. */
export const FAST: TelegramTiming = {
  pollMs: 20_000,
  pollMarginMs: 10_000,
  callMs: 20_000,
  standbyMs: 10,
  emptyPauseMs: 10,
  refusedMs: 10,
  upkeepMs: 3_600_000,
  backoff: { baseMs: 5, factor: 2, capMs: 20, jitter: 0 },
};

export const SECRET = 'webhook-Secret_0123456789';

export interface TelegramRig {
  readonly fake: FakeTelegram;
  readonly port: MemoryPort;
  readonly channel: Channel;
  logText(): string;
  /** Stops what was started with this rig. */
  stop(): Promise<void>;
}

export type RigOptions = Partial<Omit<TelegramOptions, 'timing'>> & {
  fake?: FakeTelegram;
  timing?: Partial<TelegramTiming>;
  /** Default: true. */
  started?: boolean;
};

/** A channel against a fake of its own (or a given one). In webhook mode its doors stand open on a real server. */
export async function telegramRig(options: RigOptions = {}): Promise<TelegramRig> {
  const { fake: given, timing, started = true, ...channelOptions } = options;
  const fake = given ?? (await startFakeTelegram());
  const port = memoryPort();
  const lines: string[] = [];
  const log = createLog({ level: 'debug', destination: { write: (line) => void lines.push(line) } });
  let channel: Channel | undefined;
  const gateway = options.mode === 'webhook' ? await serveDoors(() => channel?.doors ?? []) : undefined;
  channel = createTelegramChannel({
    token: fake.token,
    account: 'default',
    apiRoot: fake.url,
    mode: 'polling',
    port,
    clock: systemClock,
    log,
    ...(gateway && { publicUrl: gateway.url, webhookSecret: SECRET }),
    ...channelOptions,
    timing: { ...FAST, ...timing },
  });
  if (started) await channel.start();
  const stop = async () => {
    await channel.stop();
    if (!given) await fake.stop();
    await gateway?.stop();
  };
  return { fake, port, channel, logText: () => lines.join('\n'), stop };
}

let sequence = 0;

export function say(
  channel: Channel,
  said: string | Part,
  route: Partial<Route> = {},
  first = true,
): Promise<SendOutcome> {
  sequence += 1;
  const whole: Route = { channel: 'telegram', account: 'default', chat: '42', chatKind: 'direct', ...route };
  const message: OutgoingMessage = {
    ...asRich(said),
    id: `m${sequence}`,
    route: whole,
    first,
    mayBeRepeat: false,
  };
  return channel.send(message, AbortSignal.timeout(30_000));
}
