import type { WhyAgent } from '../tasks/explain-facts.ts';
import type { HeartbeatRequest } from './protocol.ts';

/** Whether an agent may be given new tasks, and what a person is told where it may not. Pure. */

/** A person's wish that an agent finishes what it runs and takes nothing new. */
export interface AgentDrain {
  readonly at: number;
  readonly by: string;
  readonly why: string | null;
}

/** What an agent said last about its machine. */
export interface MachineLoad {
  /** One-minute load average for each core. */
  readonly load: number;
  /** Null: an agent that does not say so yet. */
  readonly cores: number | null;
  /** Share of the memory, 0 to 1; null as above. */
  readonly freeMemory: number | null;
}

export type Shortage = 'load' | 'memory';

/** What decides whether an agent is given anything new. One object for each agent, whichever instance speaks for it. */
export interface Standing {
  drain: AgentDrain | null;
  machine: MachineLoad | null;
  shortage: Shortage | null;
  /** When its valid instance said that it ends; null: it has not. */
  stoppedAt: number | null;
}

export function newStanding(drain: AgentDrain | null): Standing {
  return { drain, machine: null, shortage: null, stoppedAt: null };
}

/** Whether it may be given something new. */
export function mayTake({ drain, shortage, stoppedAt }: Standing): boolean {
  return drain === null && shortage === null && stoppedAt === null;
}

/** An agent that is over the first of these gets nothing new until it is within the second, so that it does not flap. */
const LOAD = { most: 0.9, again: 0.8 };
const FREE_MEMORY = { least: 0.1, again: 0.15 };

/** For explanations: what keeps new tasks from it; nothing where it may take some. */
export function heldBack({ drain, shortage, machine }: Standing): Pick<WhyAgent, 'heldBack'> {
  if (drain) return { heldBack: { by: 'drain', why: drain.why } };
  return shortage && machine ? { heldBack: { by: shortage, ...machine } } : {};
}

/** What its machine lacks; null: nothing. @param before what it lacked by its last word */
export function shortageOf(
  { load, freeMemory }: Pick<MachineLoad, 'load' | 'freeMemory'>,
  before: Shortage | null,
): Shortage | null {
  if (load > (before === 'load' ? LOAD.again : LOAD.most)) return 'load';
  const least = before === 'memory' ? FREE_MEMORY.again : FREE_MEMORY.least;
  return freeMemory !== null && freeMemory < least ? 'memory' : null;
}

/** As told in a heartbeat. */
export function machineLoadOf({
  load,
  cores,
  memory,
}: Pick<HeartbeatRequest, 'load' | 'cores' | 'memory'>): MachineLoad {
  const freeMemory = memory === undefined ? null : Math.min(1, memory.freeBytes / memory.totalBytes);
  return { load, cores: cores ?? null, freeMemory };
}
