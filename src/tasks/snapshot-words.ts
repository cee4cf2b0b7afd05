/** A sign of life: what the processes of a run did when its agent looked. Made by the agent, told to people. */
export interface ProcessLine {
  pid: number;
  /** The name of the program alone: arguments and environment may hold what nobody else may see. */
  name: string;
  /** As the system has it: R runs, S sleeps, D waits for a device, T is stopped, Z has ended. */
  state: string;
  /** Processor time it has used so far, milliseconds. */
  cpuMs: number;
  /** Memory that it holds. */
  rssBytes: number;
}

export interface RunSnapshot {
  processes: readonly ProcessLine[];
  /** How many more there are. */
  omitted?: number;
}

/** Bounds of a snapshot: what is beyond is counted. */
export const SNAPSHOT_LIMITS = { processes: 32, name: 64 } as const;

/** Lines of a log: one that says what this is, then one for each process. */
export function snapshotText({ processes, omitted = 0 }: RunSnapshot): string {
  const head =
    processes.length === 0
      ? 'sign of life: no process of this run is left'
      : `sign of life: ${processes.length + omitted} process${processes.length + omitted === 1 ? '' : 'es'}`;
  const lines = processes.map(
    ({ pid, name, state, cpuMs, rssBytes }) =>
      `${pid} ${name} ${STATES[state] ?? state}, cpu ${(cpuMs / 1_000).toFixed(1)} s, memory ${Math.round(rssBytes / 1024 ** 2)} MiB`,
  );
  if (omitted > 0) lines.push(`and ${omitted} more`);
  return [head, ...lines].map((line) => `[errand] ${line}\n`).join('');
}

/** What the processes of a run do, in one word. */
export type Activity = 'busy' | 'idle' | 'stopped' | 'gone';

/** `busy`: some use the processor or wait for a device; `idle`: all wait for something else; `gone`: none is left. */
export function activityOf({ processes }: RunSnapshot): Activity {
  const living = processes.filter(({ state }) => state !== 'Z' && state !== 'X');
  if (living.length === 0) return 'gone';
  if (living.some(({ state }) => state === 'R' || state === 'D')) return 'busy';
  return living.every(({ state }) => state === 'T' || state === 't') ? 'stopped' : 'idle';
}

const STATES: Readonly<Record<string, string>> = {
  R: 'running',
  S: 'sleeping',
  D: 'waiting for a device',
  T: 'stopped',
  t: 'stopped',
  Z: 'ended',
  I: 'idle',
};
