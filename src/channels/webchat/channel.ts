import type { Clock } from '../../clock.ts';
import type { Log } from '../../log.ts';
import type { Channel, ChannelPort } from '../channel.ts';
import { split } from '../text.ts';

export interface WebchatChannelOptions {
  /** Which account of the channel; `default` where there is one. */
  readonly account: string;
  readonly port: ChannelPort;
  readonly clock: Clock;
  readonly log: Log;
}

/** UTF-16 units of one part; only a row that is not instant would ever be cut. */
const PART_UNITS = 32_000;

/**
 * The built-in web chat. There is no platform outside: messages come in through the chat API, and the page reads the outbox rows
 * themselves, which are stored as sent (see `Outbox.enqueue`, instant). So the row is the receipt and there is nothing to call.
 */
export function createWebchatChannel({ account, clock }: WebchatChannelOptions): Channel {
  return {
    name: 'webchat',
    account,
    doors: [],
    split: (message) => split(message, { max: PART_UNITS, measure: 'utf16' }),
    send: async (message) => ({ outcome: 'sent', platformId: message.id }),
    health: () => ({ ok: true, lastOkAt: clock.now() }),
    start: async () => undefined,
    stop: async () => undefined,
  };
}
