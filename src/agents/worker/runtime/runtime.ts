import type { Assignment } from '../../protocol.ts';
import type { Masking } from '../masking.ts';
import type { ReportBody, TerminalBody } from '../outgoing.ts';

/**
 * Why a run is to end before it does so by itself: a person cancelled it, its time is over, the gateway has given it to somebody else
 * (`lost`: its result is not wanted), or the agent stops.
 */
export type StopReason = 'cancel' | 'timeout' | 'lost' | 'stop';

/** How a run ended, as the gateway is told. */
export type RunEnd = TerminalBody;

/** One run, as its runtime sees it. */
export interface Job {
  readonly assignment: Assignment;
  /** The values of `assignment.secrets`. */
  readonly secrets: ReadonlyMap<string, string>;
  /** Masks those values; everything emitted and the end are masked once more on their way out. */
  readonly masking: Masking;
  /** Aborted with a `StopReason` as its reason. The runtime ends everything it started before its promise resolves. */
  readonly signal: AbortSignal;
  /** Aborted when there is no time left for an orderly end. */
  readonly hurry: AbortSignal;
  /** Something to tell meanwhile. */
  emit(body: Exclude<ReportBody, TerminalBody>): void;
  /** A process group was started: remembered on disk, so that it can be ended should this agent be killed. */
  spawned(pgid: number): void;
}

/** A way to run tasks. Whatever goes wrong becomes a `RunEnd`; what is thrown counts as a fault of the agent. */
export interface Runtime {
  run(job: Job): Promise<RunEnd>;
}

/** The end of a run that was stopped from outside. `lost` is never reported; its end is of no interest. */
export function stoppedEnd(reason: StopReason, summary?: string): RunEnd {
  switch (reason) {
    case 'cancel':
      return { type: 'cancelled', summary };
    case 'timeout':
      return { type: 'timed_out', summary };
    case 'lost':
    case 'stop':
      return { type: 'released' };
  }
}
