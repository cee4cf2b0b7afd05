import type { Channel, ChannelName, OutgoingMessage, SendOutcome } from '../../src/channels/channel.ts';
import type { Random } from './random.ts';

/** How often a call to a chat platform goes wrong, 0 to 1. */
export interface Mood {
  refuses: number;
  losesAnswers: number;
}

export interface Receipt {
  readonly channel: ChannelName;
  readonly chat: string;
  readonly outboxId: number;
}

/** The chat platforms of a simulation: what got there, and how their answers come back. They outlive every gateway. */
export class Platforms {
  mood: Mood = { refuses: 0, losesAnswers: 0 };
  /** Everything that was accepted, in order. */
  readonly receipts: Receipt[] = [];
  /** Messages whose sender was left in doubt: only these may come twice. */
  readonly doubted = new Set<number>();
  readonly #random: () => Random;
  #count = 0;

  constructor(random: () => Random) {
    this.#random = random;
  }

  /** A channel of a process. */
  channel(name: ChannelName, isDead: () => boolean, decode: (id: string) => number): Channel {
    return {
      name,
      account: 'default',
      split: ({ text }) => [{ text }],
      send: (message, signal) =>
        isDead() ? new Promise(() => undefined) : this.#answer(name, message, signal, decode(message.id)),
      health: () => ({ ok: true }),
      doors: [],
      start: async () => undefined,
      stop: async () => undefined,
    };
  }

  async #answer(name: ChannelName, { route }: OutgoingMessage, signal: AbortSignal, id: number): Promise<SendOutcome> {
    const random = this.#random();
    if (random.chance(this.mood.refuses)) return this.#refuse(random);
    const isLost = random.chance(this.mood.losesAnswers);
    if (isLost) this.doubted.add(id);
    if (!isLost || random.chance(0.5)) this.receipts.push({ channel: name, chat: route.chat, outboxId: id });
    if (!isLost) {
      this.#count += 1;
      return { outcome: 'sent', platformId: `p${this.#count}` };
    }
    if (random.chance(0.3)) await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    if (random.chance(0.3)) throw new Error('the socket broke');
    return { outcome: 'unknown', error: 'no answer', safe: name === 'wecom' };
  }

  #refuse(random: Random): SendOutcome {
    const error = 'not now';
    if (random.chance(0.1)) return { outcome: 'permanent', error, unreachable: random.chance(0.5) };
    const scope = random.chance(0.5) ? 'chat' : 'channel';
    return random.chance(0.5)
      ? { outcome: 'retry', error, scope, afterMs: random.between(500, 20_000) }
      : { outcome: 'retry', error, scope };
  }
}
