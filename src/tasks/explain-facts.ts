import type { Lang } from '../sessions/lang.ts';
import type { Hold } from './gates.ts';
import type { OnLost } from './run-words.ts';
import type { Activity } from './snapshot-words.ts';
import type { TaskState } from './states.ts';

/** One text in the language of each reader. */
export type Words = Readonly<Record<Lang, string>>;

/** What is known about a task and about everything that it may wait for. Times: epoch milliseconds. */
export interface WhyFacts {
  /** Of the reading, by the server's clock. */
  readonly now: number;
  readonly task: WhyTask;
  /** Null where no agent holds it. */
  readonly run: WhyRun | null;
  /** All that have ever registered. Looked at for queued tasks. */
  readonly agents: readonly WhyAgent[];
  /** What holds its stream back. Looked at for queued tasks. */
  readonly holds: readonly Hold[];
  /** Where it stands among those that wait for the same agents; null where that would be dear to find out. */
  readonly place: LinePlace | null;
  /** Tasks that must end before it, and have not done what it needs. */
  readonly needs: readonly WhyNeed[];
  /** Types of effects that a person must settle before it goes on. */
  readonly effects: readonly string[];
  readonly leaseMs: number;
  /** How long an agent has to confirm a cancel. */
  readonly cancelGraceMs: number;
}

export interface WhyTask {
  readonly status: TaskState;
  readonly reason: string | null;
  /** Executions so far, of its generation. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly runAt: number;
  readonly createdAt: number;
  readonly endedAt: number | null;
  /** When it is given up if it has not started; null: never. */
  readonly expiresAt: number | null;
  readonly cancelRequestedAt: number | null;
  readonly timeoutMs: number;
  readonly onLost: OnLost;
  /** The pool, or `@agent`, that it waits for. */
  readonly place: string;
  readonly runtime: string;
  /** What its agent must have. */
  readonly labels: Readonly<Record<string, string>>;
  /** False where agents no longer look for these labels: no loaded template asks for them. */
  readonly isSought: boolean;
  /** How far its program says it is, in percent. */
  readonly percent: number | null;
  /** One sentence of its program (error, question, what blocks it), without the values of its arguments; empty where it said nothing. */
  readonly said: string;
  /** The same in Chinese, where the engine itself has written it; else absent. */
  readonly saidZh?: string;
}

export interface WhyRun {
  readonly agentId: string;
  readonly claimedAt: number;
  readonly startedAt: number | null;
  readonly leaseUntil: number;
  /** When the server itself ends it. */
  readonly deadlineAt: number;
  /** There where it has said nothing for long and its agent was asked: when that looked, and what its processes did. */
  readonly sign?: { readonly at: number; readonly activity: Activity };
}

export interface WhyAgent {
  readonly agentId: string;
  readonly online: boolean;
  readonly lastSeenAt: number;
  readonly pools: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly runtimes: readonly string[];
  /** Tasks that it can take now. */
  readonly freeSlots: number;
  /** Why it is given nothing new whatever its slots; absent: it is not held back. */
  readonly heldBack?: HeldBack;
}

/** By a person, or by what its machine lacks. */
export type HeldBack =
  | { readonly by: 'drain'; readonly why: string | null }
  | {
      readonly by: 'load' | 'memory';
      /** For each core. */
      readonly load: number;
      readonly cores: number | null;
      /** Share of the memory, 0 to 1. */
      readonly freeMemory: number | null;
    };

export interface WhyNeed {
  /** As people type it. */
  readonly taskId: string;
  /** Null where it is gone. */
  readonly status: TaskState | null;
}

/** About: turns and shares decide who is next, not the order alone. */
export interface LinePlace {
  /** From 1; null: so far back that it was not counted. */
  readonly position: number | null;
  readonly total: number;
  /** There are more than `total`. */
  readonly isMore: boolean;
}

/** One thing that keeps a task from finishing, or the way in which it ended. */
export interface Cause {
  /** A stable word; docs/why.md has them all. */
  readonly reason: string;
  readonly text: Words;
  /** What would change it. */
  readonly next?: Words;
  /** When it changes by itself, at the latest; epoch milliseconds. */
  readonly untilAt?: number;
}
