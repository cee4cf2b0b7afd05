import { type BackoffPolicy, backoffMs } from '../../backoff.ts';
import { AppError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import { Sleeper } from '../../service.ts';
import type { EffectBeginAnswer, EffectMarkAnswer, EffectVerb } from '../protocol.ts';
import { CallFailed, type GatewayClient } from './client.ts';

export interface EffectsForwarderOptions {
  client: Pick<GatewayClient, 'post'>;
  /** `"agentId":…,"instanceId":…` */
  caller: string;
  log: Log;
  /** Pauses while the gateway is away, or another run is at the effect. */
  backoff?: BackoffPolicy;
}

export type EffectAnswer = EffectBeginAnswer | EffectMarkAnswer;

const BACKOFF: BackoffPolicy = { baseMs: 200, factor: 2, capMs: 5_000, jitter: 0.5 };
/** Shorter than any patience that is worth the name: a hanging gateway is asked again. */
const CALL_MS = 20_000;

/** Carries a program's word about an effect to the gateway, under the name of its run, again and again while its patience lasts. */
export class EffectsForwarder {
  readonly #options: EffectsForwarderOptions;

  constructor(options: EffectsForwarderOptions) {
    this.#options = options;
  }

  /**
   * Repeats are harmless: the gateway tells one run the same again. `busy` is tried again too, and answered when the patience is over.
   * @param patienceMs how long to go on
   * @param gone aborted when the program has gone away
   * @throws AppError unreachable when the patience is over; what the gateway refused with
   */
  async forward(
    verb: EffectVerb,
    run: { runId: string; leaseToken: string },
    call: object,
    patienceMs: number,
    gone: AbortSignal,
  ): Promise<EffectAnswer> {
    const body = `{${this.#options.caller},${JSON.stringify({ ...call, runId: run.runId, leaseToken: run.leaseToken }).slice(1)}`;
    const deadline = performance.now() + patienceMs;
    const sleeper = new Sleeper();
    for (let tries = 1; ; tries += 1) {
      const leftMs = deadline - performance.now();
      const answer = await this.#once(verb, body, Math.max(1_000, Math.min(leftMs, CALL_MS)), gone);
      const askedMs = answer instanceof CallFailed ? (answer.retryAfterMs ?? 0) : 0;
      const pauseMs = Math.max(askedMs, backoffMs(this.#options.backoff ?? BACKOFF, tries));
      const isLast = deadline - performance.now() <= pauseMs;
      if (!(answer instanceof CallFailed)) {
        if (answer.answer !== 'busy' || isLast) return answer;
      } else if (isLast) throw outOfPatience(answer);
      await sleeper.sleep(pauseMs, gone);
    }
  }

  /** The answer, or a failure after which it is worth trying again. @throws AppError where it is not */
  async #once(verb: EffectVerb, body: string, limitMs: number, gone: AbortSignal): Promise<EffectAnswer | CallFailed> {
    const late = AbortSignal.timeout(Math.ceil(limitMs));
    try {
      return await this.#options.client.post<EffectAnswer>(`/api/agent/effects/${verb}`, body, {
        signal: AbortSignal.any([gone, late]),
      });
    } catch (error) {
      gone.throwIfAborted();
      if (late.aborted) return new CallFailed('unreachable', 'the gateway does not answer', 'again');
      if (!(error instanceof CallFailed)) throw error;
      // The agent's own loops deal with registering again and with a wrong token.
      if (error.verdict === 'refused' || error.verdict === 'replaced') throw error;
      this.#options.log.debug('effects.waiting', { verb, error: error.message });
      return error;
    }
  }
}

function outOfPatience(failure: CallFailed): AppError {
  return new AppError('unreachable', `${failure.message}; the gateway may or may not know of this`, { cause: failure });
}
