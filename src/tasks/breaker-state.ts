import type { ErrorClass, RunOutcome } from './run-words.ts';

/**
 * A circuit breaker as a pure machine: (row, outcome, now) → row. `closed` counts the ends of runs; too many failures make it `open`;
 * after its cooldown one run may try, the probe (`half_open`), and its end decides. Times: epoch milliseconds.
 */
export const BREAKER_STATES = ['closed', 'open', 'half_open'] as const;
export type BreakerState = (typeof BREAKER_STATES)[number];

/** What a template says about its breaker; shared by all templates that name it. */
export interface BreakerSettings {
  readonly name: string;
  /** Share of failed calls that opens it, above 0 and up to 1. */
  readonly threshold: number;
  /** Calls older than this do not count. */
  readonly windowMs: number;
  /** Fewer calls than this in the window never open it. */
  readonly minimum: number;
  /** From its opening to the probe. */
  readonly cooldownMs: number;
}

/** `failure_rate`: too many calls failed; `probe_failed`, `probe_rate_limited`: so did the probe; `operator`: a person opened it. */
export type BreakerReason = 'failure_rate' | 'probe_failed' | 'probe_rate_limited' | 'operator';

/** Calls of one tenth of the window: [which tenth since the epoch, successes, failures]. */
export type Bucket = readonly [index: number, successes: number, failures: number];

export interface Breaker extends BreakerSettings {
  readonly state: BreakerState;
  /** At most `BUCKETS`, oldest first; empty unless closed. */
  readonly buckets: readonly Bucket[];
  /** Since when it lets nobody through; null while closed. */
  readonly openedAt: number | null;
  /** From then on a probe may go; null while closed. */
  readonly untilAt: number | null;
  /** Why it is not closed; null while closed. */
  readonly reason: BreakerReason | null;
  readonly probeRun: number | null;
  /** A probe that takes longer no longer keeps others from trying. */
  readonly probeUntilAt: number | null;
  readonly lastError: string | null;
  readonly lastFailureAt: number | null;
  /** Of its state. */
  readonly changedAt: number;
}

/**
 * What the end of a run says about the service behind it. `success` and `failure` count; `up` (a permanent error: it answers, and
 * refuses this one call) and `busy` (rate limited) count as neither but decide a probe; `none` says nothing.
 */
export type CallOutcome = 'success' | 'failure' | 'up' | 'busy' | 'none';

export interface CallEnd {
  readonly runId: number;
  readonly claimedAt: number;
  readonly outcome: CallOutcome;
  readonly error: string | null;
}

/** What a claim has to know of the breaker of a task. */
export type Admission =
  | { readonly state: 'closed' }
  | { readonly state: 'open'; readonly untilAt: number; readonly reason: BreakerReason }
  | { readonly state: 'half_open'; readonly probeFree: boolean };

const BUCKETS = 10;
/** A probe has at least this long before another one may try. */
const SHORTEST_PROBE_MS = 60_000;
/** Characters of an error that are kept. */
const ERROR_CHARS = 500;

/** A breaker that has seen nothing. */
export function newBreaker({ name, threshold, windowMs, minimum, cooldownMs }: BreakerSettings, now: number): Breaker {
  return {
    ...{ name, threshold, windowMs, minimum, cooldownMs },
    ...CLOSED,
    lastError: null,
    lastFailureAt: null,
    changedAt: now,
  };
}

/** The same breaker under the settings of today; counts of another window mean nothing and are dropped. */
export function withSettings(breaker: Breaker, settings: BreakerSettings): Breaker {
  const { threshold, windowMs, minimum, cooldownMs } = settings;
  const isSame = threshold === breaker.threshold && minimum === breaker.minimum && cooldownMs === breaker.cooldownMs;
  if (windowMs !== breaker.windowMs) return { ...breaker, threshold, windowMs, minimum, cooldownMs, buckets: [] };
  return isSame ? breaker : { ...breaker, threshold, minimum, cooldownMs };
}

/** @param cancelled the task is cancelled: what its run says was of our making */
export function callOutcome(outcome: RunOutcome, errorClass: ErrorClass | null, cancelled: boolean): CallOutcome {
  if (outcome === 'succeeded') return 'success';
  if (cancelled) return 'none';
  if (outcome === 'timed_out') return 'failure';
  if (outcome !== 'failed') return 'none';
  if (errorClass === 'permanent') return 'up';
  return errorClass === 'rate_limited' ? 'busy' : 'failure';
}

/** The breaker after a run of it has ended; the same object where that changes nothing. */
export function afterCall(breaker: Breaker, end: CallEnd, now: number): Breaker {
  // Whatever ends while it is open had begun before: that is known already.
  if (breaker.state === 'open') return breaker;
  return breaker.state === 'closed' ? counted(breaker, end, now) : probed(breaker, end, now);
}

/** @param probeIsOver the run that probes has ended, though nobody said how */
export function admission(breaker: Breaker, now: number, probeIsOver = false): Admission {
  if (breaker.state === 'closed') return { state: 'closed' };
  if (breaker.state === 'open' && !isCooledDown(breaker, now))
    return { state: 'open', untilAt: breaker.untilAt!, reason: breaker.reason! };
  return { state: 'half_open', probeFree: breaker.state === 'open' || probeIsOver || isProbeOverdue(breaker, now) };
}

/** The breaker with this run as its probe. The caller has seen in its `admission` that the place is free. */
export function withProbe(breaker: Breaker, runId: number, now: number): Breaker {
  const changedAt = breaker.state === 'open' ? now : breaker.changedAt;
  return { ...breaker, state: 'half_open', probeRun: runId, probeUntilAt: now + probeLimitMs(breaker), changedAt };
}

/** Open from now on, for `forMs` milliseconds; also an open one. */
export function opened(breaker: Breaker, reason: BreakerReason, forMs: number, now: number): Breaker {
  const changedAt = breaker.state === 'open' ? breaker.changedAt : now;
  const since = { openedAt: now, untilAt: now + forMs, reason, changedAt };
  return { ...breaker, ...since, state: 'open', buckets: [], probeRun: null, probeUntilAt: null };
}

/** Closed, with nothing counted. */
export function closed(breaker: Breaker, now: number): Breaker {
  return { ...breaker, ...CLOSED, changedAt: breaker.state === 'closed' ? breaker.changedAt : now };
}

/** Calls and failures within the window that ends now. */
export function callsWithin(breaker: Breaker, now: number): { calls: number; failures: number } {
  let calls = 0;
  let failures = 0;
  for (const [, good, bad] of liveBuckets(breaker, now)) {
    calls += good + bad;
    failures += bad;
  }
  return { calls, failures };
}

const CLOSED = {
  state: 'closed',
  buckets: [],
  openedAt: null,
  untilAt: null,
  reason: null,
  probeRun: null,
  probeUntilAt: null,
} as const satisfies Partial<Breaker>;

function counted(breaker: Breaker, { outcome, error }: CallEnd, now: number): Breaker {
  if (outcome !== 'success' && outcome !== 'failure') return breaker;
  const index = bucketIndex(breaker, now);
  const live = liveBuckets(breaker, now);
  const [, good = 0, bad = 0] = live.at(-1)?.[0] === index ? live.pop()! : [];
  const bucket: Bucket = outcome === 'success' ? [index, good + 1, bad] : [index, good, bad + 1];
  const next = { ...breaker, buckets: [...live, bucket] };
  if (outcome === 'success') return next;
  const failed = { ...next, ...failure(error, now) };
  const { calls, failures } = callsWithin(failed, now);
  const isTooMany = calls >= breaker.minimum && failures / calls >= breaker.threshold;
  return isTooMany ? opened(failed, 'failure_rate', breaker.cooldownMs, now) : failed;
}

function probed(breaker: Breaker, { runId, claimedAt, outcome, error }: CallEnd, now: number): Breaker {
  // An earlier probe that took too long tells as much as the present one; what was claimed before it opened tells nothing.
  if (runId !== breaker.probeRun && claimedAt <= breaker.openedAt!) return breaker;
  switch (outcome) {
    case 'success':
    case 'up':
      return closed(breaker, now);
    case 'failure':
      return opened({ ...breaker, ...failure(error, now) }, 'probe_failed', breaker.cooldownMs, now);
    case 'busy':
      return opened(breaker, 'probe_rate_limited', breaker.cooldownMs, now);
    case 'none':
      return runId === breaker.probeRun ? { ...breaker, probeRun: null, probeUntilAt: null } : breaker;
  }
}

function failure(error: string | null, now: number): Pick<Breaker, 'lastError' | 'lastFailureAt'> {
  return { lastError: error === null ? null : error.slice(0, ERROR_CHARS).toWellFormed(), lastFailureAt: now };
}

function bucketIndex({ windowMs }: BreakerSettings, now: number): number {
  return Math.floor(now / (windowMs / BUCKETS));
}

/** Without those that are too old, and those from a future that a clock set back has taken away. */
function liveBuckets(breaker: Breaker, now: number): Bucket[] {
  const index = bucketIndex(breaker, now);
  return breaker.buckets.filter(([at]) => at <= index && at > index - BUCKETS);
}

/** Also where the clock was set back so far that the rest would be longer than twice the whole. */
function isCooledDown({ openedAt, untilAt }: Breaker, now: number): boolean {
  const wholeMs = untilAt! - openedAt!;
  return now >= untilAt! || untilAt! - now > 2 * wholeMs;
}

function isProbeOverdue(breaker: Breaker, now: number): boolean {
  const { probeRun, probeUntilAt } = breaker;
  if (probeRun === null || probeUntilAt === null) return true;
  return now >= probeUntilAt || probeUntilAt - now > 2 * probeLimitMs(breaker);
}

function probeLimitMs({ cooldownMs }: BreakerSettings): number {
  return Math.max(cooldownMs, SHORTEST_PROBE_MS);
}
