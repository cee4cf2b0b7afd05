import { type BackoffPolicy, backoffMs } from '../../backoff.ts';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import { CallFailed } from './client.ts';

export interface RetryOptions {
  log: Log;
  backoff: BackoffPolicy;
  /** Pause after a refusal that only a person can end, milliseconds. */
  slowRetryMs: number;
  /** A newer instance has taken over. */
  onReplaced(): void;
  /** The gateway does not know this instance. */
  onUnknown(): void;
}

/** No `Retry-After` keeps an agent away for longer. */
const LONGEST_PAUSE_MS = 60_000;

const NO_CREDENTIAL =
  'this agent takes no work: have a join token made by `errand agents token <id>`, run `errand agent join` here, start again';

/** Acts on a failed call, whichever loop made it, and answers how long to wait before the next, milliseconds. */
export function pauseAfter(options: RetryOptions, call: string, error: unknown, failures: number): number {
  const pauseMs = backoffMs(options.backoff, failures);
  if (!(error instanceof CallFailed)) {
    options.log.error('agent.fault', { call, error: messageOf(error) });
    return pauseMs;
  }
  switch (error.verdict) {
    case 'again':
      // The same outage is told at its 1st, 2nd, 4th, 8th … failure.
      if ((failures & (failures - 1)) === 0)
        options.log.warn('gateway.unavailable', { call, error: error.message, failures });
      return Math.max(pauseMs, Math.min(error.retryAfterMs ?? 0, LONGEST_PAUSE_MS));
    case 'unknown':
      options.log.warn('gateway.unknown_instance', { call, error: error.message });
      options.onUnknown();
      return pauseMs;
    case 'replaced':
      options.onReplaced();
      return options.slowRetryMs;
    case 'slow':
    case 'refused':
      options.log.error('gateway.refused', {
        call,
        error: error.message,
        code: error.code,
        retryInMs: options.slowRetryMs,
        ...(error.code === 'unauthorized' && { advice: NO_CREDENTIAL }),
      });
      return options.slowRetryMs;
  }
}
