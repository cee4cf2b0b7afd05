import type { AcceptResult, ChannelPort, IncomingMessage } from '../../src/channels/channel.ts';

/**
 * A `ChannelPort` in memory, with the promises of the real one: all or nothing, dedupe by identity, state in the same step.
 * For adapter tests only; what it stores must be JSON, as in the real store.
 */
export interface MemoryPort extends ChannelPort {
  /** The stored messages in order; one per identity. */
  readonly rows: readonly IncomingMessage[];
  /** How many messages were answered `duplicate`. */
  readonly duplicates: number;
  /** How many calls of `accept` were rejected. */
  readonly rejections: number;
  /** The next `times` calls of `accept` store nothing and reject, as on a full disk. */
  failNext(times?: number): void;
  /** Another process holds this lease (or gives it up). */
  holdElsewhere(name: string, held?: boolean): void;
  /** For how long each lease was last taken or renewed, milliseconds. */
  readonly leases: ReadonlyMap<string, number>;
  /** The stored state row, read at once. */
  peek(key: string): unknown;
}

export function memoryPort(): MemoryPort {
  return new Memory();
}

class Memory implements MemoryPort {
  readonly rows: IncomingMessage[] = [];
  duplicates = 0;
  rejections = 0;
  readonly leases = new Map<string, number>();
  readonly #states = new Map<string, string>();
  readonly #elsewhere = new Set<string>();
  #failures = 0;

  readonly state = {
    get: async <T>(key: string) => this.peek(key) as T | undefined,
    set: async (key: string, value: unknown) => this.#put(key, value),
  };

  async accept(batch: readonly IncomingMessage[], state?: { key: string; value: unknown }): Promise<AcceptResult[]> {
    if (this.#failures > 0) {
      this.#failures -= 1;
      this.rejections += 1;
      throw new Error('the disk is full');
    }
    const results = batch.map((message) => this.#store(message));
    if (state) this.#put(state.key, state.value);
    return results;
  }

  async lease(name: string, ttlMs: number): Promise<boolean> {
    if (this.#elsewhere.has(name)) return false;
    this.leases.set(name, ttlMs);
    return true;
  }

  failNext(times = 1): void {
    this.#failures += times;
  }

  holdElsewhere(name: string, held = true): void {
    if (held) this.#elsewhere.add(name);
    else this.#elsewhere.delete(name);
  }

  peek(key: string): unknown {
    const text = this.#states.get(key);
    return text === undefined ? undefined : JSON.parse(text);
  }

  #store(message: IncomingMessage): AcceptResult {
    if (this.rows.some((row) => row.identity === message.identity)) {
      this.duplicates += 1;
      return 'duplicate';
    }
    this.rows.push(JSON.parse(JSON.stringify(message)) as IncomingMessage);
    return 'stored';
  }

  #put(key: string, value: unknown): void {
    this.#states.set(key, JSON.stringify(value));
  }
}
