import type { ChannelName, Route } from '../channels/channel.ts';
import type { RateLimit, RatesOf } from '../channels/rates.ts';
import type { Tx } from '../store/tx.ts';
import { putRates, type RateRow, ratesOfMessages } from './rate-queries.ts';
import { freeAt, parseUsed, type Used, withCall } from './sliding-window.ts';

/** The row of a whole account stands beside those of its chats; no platform has a chat without an id. */
const WHOLE_ACCOUNT = '';

/** One counter: of a chat, or of an account. */
interface Meter {
  readonly key: readonly [channel: string, account: string, chat: string];
  readonly limits: readonly RateLimit[];
  used: Used;
  isTouched: boolean;
}

/**
 * The rates that the calls of one transaction count against. Rows, so that a restart forgets nothing and several gateways share them;
 * one read and one write for all messages of the transaction, none where the platform has no rates.
 */
export class RateGate {
  readonly #tx: Tx;
  readonly #meters = new Map<string, Meter>();
  /** Those of each message; none: it goes where nothing is counted. */
  readonly #ofMessage = new Map<number, readonly Meter[]>();

  private constructor(tx: Tx) {
    this.#tx = tx;
  }

  static async open(tx: Tx, ids: readonly number[], ratesOf: RatesOf | undefined): Promise<RateGate> {
    const gate = new RateGate(tx);
    if (!ratesOf || ids.length === 0) return gate;
    for (const row of await tx.all(ratesOfMessages, { rows: ids.map((id) => [id]) })) gate.#know(row, ratesOf);
    return gate;
  }

  /** Of these, in their order, those that one call each is free for. Counts nothing yet. */
  admitted(ids: readonly number[]): number[] {
    const ahead = new Map<Meter, Used>();
    return ids.filter((id) => {
      const meters = this.#ofMessage.get(id) ?? [];
      const { now } = this.#tx;
      const isFree = meters.every((meter) => freeAt(ahead.get(meter) ?? meter.used, meter.limits, now) <= now);
      if (isFree) {
        for (const meter of meters) ahead.set(meter, withCall(ahead.get(meter) ?? meter.used, meter.limits, now));
      }
      return isFree;
    });
  }

  /** Counts one call for each of these. */
  async count(ids: readonly number[]): Promise<void> {
    for (const id of ids) {
      for (const meter of this.#ofMessage.get(id) ?? []) {
        meter.used = withCall(meter.used, meter.limits, this.#tx.now);
        meter.isTouched = true;
      }
    }
    const { now } = this.#tx;
    const rows = [...this.#meters.values()]
      .filter((meter) => meter.isTouched)
      .map(({ key, limits, used }) => [...key, JSON.stringify(used), freeAt(used, limits, now)]);
    if (rows.length > 0) await this.#tx.run(putRates, { rows, now });
  }

  #know(row: RateRow, ratesOf: RatesOf): void {
    const rates = ratesOf(JSON.parse(row.route) as Route & { channel: ChannelName });
    if (!rates) return;
    const own = this.#meter([row.channel, row.account, row.chat], rates.chat, row.chat_used);
    const whole = this.#meter([row.channel, row.account, WHOLE_ACCOUNT], rates.account, row.account_used);
    this.#ofMessage.set(
      row.id,
      [own, whole].filter((meter) => meter.limits.length > 0),
    );
  }

  #meter(key: Meter['key'], limits: Meter['limits'], used: string | null): Meter {
    const name = JSON.stringify(key);
    const known = this.#meters.get(name) ?? { key, limits, used: parseUsed(used), isTouched: false };
    this.#meters.set(name, known);
    return known;
  }
}
