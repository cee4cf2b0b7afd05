import { AppError } from '../errors.ts';

/** An agent that was quiet may make so many seconds' worth of calls at once. */
const BURST_S = 2;
/** Above this many agents those whose buckets are full again are forgotten. */
const MANY = 10_000;

interface Bucket {
  /** Calls that may be made at `at`; grows with time. */
  left: number;
  at: number;
}

/** Calls per second of each agent, a token bucket in memory: one that runs wild must not slow down all others. */
export class AgentQuota {
  readonly #perMs: number;
  readonly #burst: number;
  readonly #monotonic: () => number;
  readonly #buckets = new Map<string, Bucket>();

  /** @param perSecond calls that every agent may make all the time. @param monotonic milliseconds; injectable for tests */
  constructor(perSecond: number, monotonic: () => number = () => performance.now()) {
    this.#perMs = perSecond / 1_000;
    this.#burst = Math.max(1, perSecond * BURST_S);
    this.#monotonic = monotonic;
  }

  /** Counts one call. @throws AppError rate_limited, with the time when the next is possible */
  spend(agentId: string): void {
    const now = this.#monotonic();
    let bucket = this.#buckets.get(agentId);
    if (!bucket) {
      if (this.#buckets.size >= MANY) this.#forgetFull(now);
      bucket = { left: this.#burst, at: now };
      this.#buckets.set(agentId, bucket);
    }
    const left = this.#leftIn(bucket, now);
    if (left < 1) {
      throw new AppError('rate_limited', `agent ${agentId} makes more calls than ERRAND_AGENT_RATE allows`, {
        retryAfterMs: (1 - left) / this.#perMs,
      });
    }
    bucket.left = left - 1;
    bucket.at = now;
  }

  #leftIn(bucket: Bucket, now: number): number {
    return Math.min(this.#burst, bucket.left + (now - bucket.at) * this.#perMs);
  }

  #forgetFull(now: number): void {
    for (const [agentId, bucket] of this.#buckets)
      if (this.#leftIn(bucket, now) >= this.#burst) this.#buckets.delete(agentId);
  }
}
