import type { BackoffPolicy } from '../backoff.ts';
import type { RetryRules } from './classify.ts';
import type { NeedCondition } from './needs-graph.ts';
import type { ArgValue, ErrorClass, OnLost } from './run-words.ts';
import type { DeliveryStatus, FinalState, NotifyPolicy, Priority, TaskSource, TaskState } from './states.ts';

/** How a task is tried again; `max` counts all executions. */
export interface RetryPolicy extends BackoffPolicy {
  max: number;
  /** What failures mean, where it differs from the general rules; exit codes are judged by the agent. Absent: no rules. */
  on?: Pick<RetryRules, 'http' | 'error'>;
}

export const DEFAULT_RETRY: RetryPolicy = { max: 3, baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0.5 };

/** What is needed to create a task; the template's part is filled in by flows/templates. */
export interface NewTask {
  template: string;
  runtime: string;
  pool: string;
  /** Only this agent may run it. */
  agent: string | null;
  /** The agent must have all of these. */
  labels: Record<string, string> | null;
  /** See `LANE_DEFAULTS`; `main` for all that is not limited together. */
  lane: string;
  /** At most one task of the template runs per key; null: no such limit. */
  serialKey: string | null;
  args: Record<string, ArgValue>;
  /** Unique per template and owner. */
  idempotencyKey: string | null;
  sessionKey: string | null;
  flowId: number | null;
  source: TaskSource;
  label: string | null;
  parentTaskId: number | null;
  /** Null: the default of the source. */
  notifyPolicy: NotifyPolicy | null;
  priority: Priority;
  /** Not before this moment, epoch milliseconds. */
  runAt: number | null;
  /** Still queued after this many milliseconds: failed, reason `expired`. */
  ttlMs: number | null;
  timeoutMs: number;
  /** Null: `DEFAULT_RETRY`. */
  retry: RetryPolicy | null;
  /** What a lost lease may do; absent: retry. */
  onLost?: OnLost;
  /** It needs, or may be needed by, other tasks of its flow; `waits`: some of its needs are not met yet. Absent: neither. */
  graph?: { readonly waits: boolean };
}

export type CreateAnswer =
  | { result: 'created' | 'existing'; id: number; status: TaskState; flowId: number | null }
  | { result: 'conflict'; id: number };

/** What subscribers learn, in the transaction that changed the task. */
export type TaskEvent =
  | ({ type: 'task.queued'; streamId: number; priority: number; runAt: number } & TaskRef)
  | ({ type: 'task.state'; from: TaskState; to: TaskState; reason: string | null } & TaskRef)
  | ({ type: 'task.progress'; percent: number | null; message: string | null } & TaskRef)
  | ({ type: 'task.blocked'; summary: string; question: boolean; reason: string | null } & TaskRef)
  | ({ type: 'task.cancel_requested'; runId: number; agentId: string } & TaskRef)
  | ({ type: 'task.reopened' } & TaskRef)
  /** A person has changed what is told of it; `notifyPolicy` is the new one. */
  | ({ type: 'task.notify' } & TaskRef)
  | ({ type: 'task.ended'; state: FinalState; end: TaskEnd } & TaskRef);

export interface TaskRef {
  id: number;
  template: string;
  label: string | null;
  flowId: number | null;
  sessionKey: string | null;
  notifyPolicy: NotifyPolicy;
  generation: number;
  /** There only, and true, where it may need or be needed by others of its flow. */
  graph?: true;
}

/** Another task, as it ended. */
export interface EndedTask {
  id: number;
  template: string;
  label: string | null;
  state: FinalState;
}

/** The columns of `task` that a `TaskRef` is made of; see `refOf`. */
export interface TaskRefRow {
  template: string;
  label: string | null;
  flow_id: number | null;
  session_key: string | null;
  notify_policy: string;
  generation: number;
  /** 1: one of a graph. */
  graph: number;
}

export interface TaskEnd {
  summary: string | null;
  error: string | null;
  /** The same in Chinese, where the engine itself has written it. */
  errorZh?: string;
  errorClass: ErrorClass | null;
  reason: string | null;
  attempt: number;
  /** Time of the whole task so far, milliseconds. */
  tookMs: number;
  /** A cancel came too late. */
  finishedBeforeCancel: boolean;
  /** With reason `dependency_failed`: whose success it needed. */
  because?: EndedTask;
}

export type Emit<E> = (tx: import('../store/tx.ts').Tx, events: readonly E[]) => void;

export interface TaskRecord {
  taskId: string;
  status: TaskState;
  attempt: number;
  maxAttempts: number;
  generation: number;
  template: string;
  args: Record<string, ArgValue>;
  priority: Priority;
  pool: string;
  agent?: string;
  lane: string;
  result?: { summary: string | null; outputs: Record<string, string> };
  error?: string;
  /** The same in Chinese, where the engine itself has written it. */
  errorZh?: string;
  errorClass?: ErrorClass;
  reason?: string;
  source: TaskSource;
  scopeKind: 'session' | 'system';
  label?: string;
  parentTaskId?: string;
  runAt: number;
  createdAt: number;
  startedAt?: number;
  endedAt?: number;
  lastEventAt: number;
  cleanupAfter?: number;
  cancelRequestedAt?: number;
  progress?: { percent: number | null; message: string | null };
  /** How often it has saved a checkpoint that its next attempt goes on from; absent: there is none. */
  checkpointVersion?: number;
  question?: { prompt: string; options: string[] };
  summary?: string;
  sessionKey?: string;
  flowId?: string;
  notifyPolicy: NotifyPolicy;
  deliveryStatus: DeliveryStatus;
  /** Of a task of a graph, where it is read alone: whom it needs, and who needs it. */
  needs?: NeedRecord[];
  neededBy?: { taskId: string; status: TaskState }[];
  runs: RunRecord[];
}

export interface NeedRecord {
  taskId: string;
  /** Absent: that task is gone. */
  status?: TaskState;
  when: NeedCondition;
  met: boolean;
}

export interface RunRecord {
  runId: string;
  attempt: number;
  generation: number;
  agentId: string;
  claimedAt: number;
  startedAt?: number;
  endedAt?: number;
  outcome?: string;
  errorClass?: ErrorClass;
  error?: string;
  exitCode?: number;
  signal?: string;
}
