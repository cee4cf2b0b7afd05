import { constants } from 'node:os';
import type { Log } from '../log.ts';

/** A graceful stop takes at most this long, milliseconds (docs/cli.md). */
const STOP_LIMIT_MS = 10_000;
/** From here on whatever still runs is told to hurry. */
const HURRY_AFTER_MS = 8_000;
/** After the second signal. */
const LAST_MOMENT_MS = 1_000;

const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

export interface Stoppable {
  stop(): Promise<void>;
  /** Ends at once what `stop` would wait for. */
  hurry?(): void;
  /** Something ended by itself: its exit code. */
  readonly ended?: Promise<number>;
}

/**
 * Runs until a signal (or the end of the parent process that started us), then stops gracefully within `STOP_LIMIT_MS`: 0, or 1 when
 * that was not enough. A second signal ends everything at once with 128 + its number.
 */
export async function runUntilStopped(running: Stoppable, log: Log): Promise<number> {
  surviveFaults(log);
  const first = await Promise.race([nextSignal(), parentGone(), running.ended ?? new Promise<never>(() => undefined)]);
  if (typeof first === 'number') return first;
  log.info('process.stopping', { signal: first });
  return stopGracefully(running);
}

async function stopGracefully(running: Stoppable): Promise<number> {
  let code = 1;
  const second = nextSignal().then((signal) => {
    code = 128 + constants.signals[signal];
    running.hurry?.();
    return pause(LAST_MOMENT_MS);
  });
  const hurry = setTimeout(() => running.hurry?.(), HURRY_AFTER_MS);
  const stopped = running.stop().then(() => {
    if (code === 1) code = 0;
  });
  await Promise.race([stopped, second, pause(STOP_LIMIT_MS)]);
  clearTimeout(hurry);
  return code;
}

function nextSignal(): Promise<(typeof SIGNALS)[number]> {
  return new Promise((resolve) => {
    for (const signal of SIGNALS) process.once(signal, () => resolve(signal));
  });
}

/** The process that started us with a channel is over, however it ended. */
function parentGone(): Promise<'parent'> {
  return new Promise((resolve) => {
    // Undefined where there never was a channel; false where its other end was gone before we came here.
    if (process.connected === false) resolve('parent');
    else process.once('disconnect', () => resolve('parent'));
  });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** A forgotten rejection is a fault of ours in one place; the rest goes on. After an uncaught exception nothing can be trusted. */
function surviveFaults(log: Log): void {
  process.on('unhandledRejection', (error) => log.error('process.unhandled_rejection', { error }));
  process.on('uncaughtException', (error) => {
    log.error('process.uncaught_exception', { error, stack: error.stack });
    process.exit(1);
  });
}
