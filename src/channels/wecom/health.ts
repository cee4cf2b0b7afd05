import type { Clock } from '../../clock.ts';
import type { ChannelHealth } from '../channel.ts';

/** What the channel knows of its own condition. Good callbacks prove life; only calls that work end a problem of calling. */
export class WecomHealth {
  readonly #clock: Clock;
  #lastOkAt: number | undefined;
  #problem: string | undefined;
  #unanswered: string | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A callback passed every check. */
  alive(): void {
    this.#lastOkAt = this.#clock.now();
  }

  /** A message was sent: whatever was wrong is over. */
  sent(): void {
    this.#problem = undefined;
    this.alive();
  }

  /** @param problem one plain sentence without secrets */
  trouble(problem: string): void {
    this.#problem = problem;
  }

  /** The API could be reached, whatever it answered. */
  answered(): void {
    this.#unanswered = undefined;
  }

  /** @param error why a call got no usable answer; holds no secret */
  unanswered(error: string): void {
    this.#unanswered = `WeCom does not answer: ${error}.`;
  }

  read(): ChannelHealth {
    const problem = this.#unanswered ?? this.#problem;
    return { ok: problem === undefined, lastOkAt: this.#lastOkAt, problem };
  }
}
