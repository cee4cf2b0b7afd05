import type { Clock } from '../../clock.ts';
import type { ChannelHealth } from '../channel.ts';

/** What can be wrong, each apart: a message that was sent does not prove that polling works. */
export type PulseSource = 'token' | 'intake' | 'webhook';

/** Collects proofs of life and problems of one bot. */
export class Pulse {
  readonly #clock: Clock;
  readonly #staleMs: number | undefined;
  readonly #problems = new Map<PulseSource, string>();
  #lastOkAt: number | undefined;
  /** Of the intake alone, or else since when Telegram has been in reach: sends must not hide that nothing comes in. */
  #intakeAt: number | undefined;
  #lastPollAt: number | undefined;
  #note: string | undefined;

  /** @param staleMs without a proof of life of the intake for this long the channel is not healthy; undefined: silence is normal */
  constructor(clock: Clock, staleMs: number | undefined) {
    this.#clock = clock;
    this.#staleMs = staleMs;
  }

  /** The source works again; Telegram has answered with this token. */
  ok(source: PulseSource): void {
    this.#proven(source === 'intake');
    if (source === 'intake') this.#note = undefined;
    if (source === 'intake' && this.#staleMs !== undefined) this.#lastPollAt = this.#clock.now();
    this.#problems.delete('token');
    this.#problems.delete(source);
  }

  /** @param problem one plain sentence without a secret */
  fail(source: PulseSource, problem: string): void {
    this.#note = undefined;
    this.#problems.set(source, problem);
  }

  /** Nothing is wrong and nothing is to be done here: another process does the polling. */
  standBy(note: string): void {
    this.#problems.delete('intake');
    this.#proven(true);
    this.#note = note;
  }

  health(): ChannelHealth {
    const problem = this.#problems.values().next().value ?? this.#silence();
    const times = {
      ...(this.#lastOkAt !== undefined && { lastOkAt: this.#lastOkAt }),
      ...(this.#lastPollAt !== undefined && { lastPollAt: this.#lastPollAt }),
    };
    if (problem !== undefined) return { ok: false, problem, ...times };
    return this.#note === undefined ? { ok: true, ...times } : { ok: true, problem: this.#note, ...times };
  }

  #proven(intake: boolean): void {
    const now = this.#clock.now();
    this.#lastOkAt = now;
    if (intake || this.#intakeAt === undefined) this.#intakeAt = now;
  }

  #silence(): string | undefined {
    if (this.#intakeAt === undefined) return 'Telegram has not been reached yet.';
    const silentMs = this.#clock.now() - this.#intakeAt;
    if (this.#staleMs === undefined || silentMs <= this.#staleMs) return undefined;
    return `Telegram has been silent for ${Math.round(silentMs / 1000)} s.`;
  }
}
