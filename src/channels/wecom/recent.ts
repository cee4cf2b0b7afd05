import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import { sha256 } from '../../ids.ts';
import type { Log } from '../../log.ts';
import type { ChannelPort } from '../channel.ts';

/** How long WeCom remembers a message for its duplicate check (document 90236; seconds in the call). */
export const DUPLICATE_WINDOW_MS = 1_800_000;

interface SentText {
  readonly hash: string;
  readonly id: string;
  readonly at: number;
}

/** Per person; three long answers. */
const KEPT = 100;
/** Of the sha256, hex: enough to tell a person's last hundred texts apart. */
const HASH_CHARS = 16;
/** WeCom's clock and way of counting are not ours: a little longer than its window costs nothing. */
const MARGIN_MS = 300_000;

/**
 * The texts each person got lately. WeCom's duplicate check drops an identical text without saying so: right for the repeat of one
 * message, wrong for a second message that happens to say the same ("done"). This tells the two apart, also after a restart.
 */
export class RecentTexts {
  readonly #port: ChannelPort;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(options: { readonly port: ChannelPort; readonly clock: Clock; readonly log: Log }) {
    this.#port = options.port;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  /** Whether another message than `id` has brought this text to this person within the window. Never rejects. */
  async saidBefore(user: string, text: string, id: string): Promise<boolean> {
    const hash = hashOf(text);
    return (await this.#read(user)).some((sent) => sent.hash === hash && sent.id !== id);
  }

  /** To be called when the platform has, or may have, delivered it. Never rejects. */
  async add(user: string, text: string, id: string): Promise<void> {
    const hash = hashOf(text);
    // The parts of one long message share its id.
    const others = (await this.#read(user)).filter((sent) => sent.id !== id || sent.hash !== hash);
    const entries = [...others, { hash, id, at: this.#clock.now() }].slice(-KEPT);
    await this.#port.state.set(keyOf(user), entries).catch((error: unknown) => this.#warn(error));
  }

  async #read(user: string): Promise<SentText[]> {
    const since = this.#clock.now() - DUPLICATE_WINDOW_MS - MARGIN_MS;
    const entries = await this.#port.state.get<SentText[]>(keyOf(user)).catch((error: unknown) => this.#warn(error));
    return (entries ?? []).filter((sent) => sent.at > since);
  }

  #warn(error: unknown): undefined {
    this.#log.warn('wecom.recent_texts_unavailable', { error: messageOf(error) });
    return undefined;
  }
}

function keyOf(user: string): string {
  return `recent:${user}`;
}

function hashOf(text: string): string {
  return sha256(text).slice(0, HASH_CHARS);
}
