import { z } from 'zod';
import type { Clock } from '../clock.ts';
import { durationMs } from '../config/values.ts';
import { AppError } from '../errors.ts';
import type { IdCodec } from '../ids.ts';
import type { Store } from '../store/store.ts';
import { MAX_NEEDS, NEED_CONDITIONS } from '../tasks/needs-graph.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import { isFinal, NOTIFY_POLICIES, PRIORITIES, type TaskState } from '../tasks/states.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import { oneLine } from '../text.ts';
import { checkArgs } from './args.ts';
import { isGraph, isLinked, linkSeeds } from './graph.ts';
import { startGraph } from './graph-start.ts';
import { toNewTask } from './spec.ts';
import { type FlowSeed, noSessionError, type StartAnswer, startFlows, startFlowsVerb } from './start.ts';
import type { Template, TemplateRegistry } from './templates.ts';

const YEAR_MS = 31_536_000_000;
const duration = z.union([z.number().int(), z.string()]).refine((value) => {
  const ms = milliseconds(value);
  return ms !== undefined && ms >= 1 && ms <= YEAR_MS;
}, 'must be milliseconds or a duration such as 30s or 10m, at most a year');

/** `POST /api/tasks` (contract, section 4). Durations are milliseconds or texts such as `10m`; times are epoch milliseconds. */
export const submissionSchema = z.strictObject({
  template: z.string().min(1).max(48),
  args: z.record(z.string().max(64), z.union([z.string(), z.number(), z.boolean()])).default({}),
  idempotencyKey: z.string().min(1).max(256).optional(),
  priority: z.enum(PRIORITIES).optional(),
  runAt: z.number().int().min(0).max(8_640_000_000_000_000).optional(),
  ttl: duration.optional(),
  timeout: duration.optional(),
  pool: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be a pool name')
    .optional(),
  agent: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be an agent id')
    .optional(),
  notify: z.enum(NOTIFY_POLICIES).optional(),
  sessionKey: z.string().min(1).max(256).optional(),
  label: z.string().min(1).max(200).optional(),
  flowId: z.string().min(1).max(32).optional().describe('a live flow that gets this task; its owner is the flow’s'),
  needs: z
    .array(z.union([z.number().int().min(0), z.string().min(1).max(32)]))
    .max(MAX_NEEDS)
    .optional()
    .describe('tasks that must end first: indexes in the batch, or ids of tasks of the same flow (with flowId)'),
  when: z.enum(NEED_CONDITIONS).optional().describe('success: all needs must succeed (default); always: they must end'),
});
export type Submission = z.infer<typeof submissionSchema>;

/** Tasks of one batch. */
export const BATCH_LIMIT = 1_000;

/** `POST /api/tasks/batch` of a whole graph: one flow, one message at its end. */
export const graphSchema = z.strictObject({
  tasks: z.array(submissionSchema).min(1).max(BATCH_LIMIT),
  deadline: duration.optional().describe('from now; what is left of the flow then is stopped'),
  label: z.string().min(1).max(200).optional().describe('what the flow is called in lists and messages'),
});
export type GraphSubmission = z.infer<typeof graphSchema>;

export interface Submitted {
  taskId: string;
  status: TaskState;
  flowId?: string;
  /** Present and true where the key was used before with the same payload. */
  idempotent?: true;
  /** Present and true while the gateway is draining: it is stored and starts when the gateway is open again. */
  draining?: true;
  /** Present where nobody can take it as things are: it waits all the same. */
  hint?: SubmitHint;
}

/** `reason` as in docs/why.md. */
export interface SubmitHint {
  readonly reason: string;
  readonly text: Readonly<Record<'en' | 'zh', string>>;
}

export interface SubmitterOptions {
  store: Store;
  ids: IdCodec;
  clock: Clock;
  templates: TemplateRegistry;
  timeZone: string;
  emit: Emit<TaskEvent>;
  /** How long a new task may let reports go first, milliseconds: nothing is lost while nobody could start it. */
  patienceMs(): number;
  /** Whether nothing new starts at the moment; whoever submits is told. Absent: never. */
  isDraining?(): boolean;
  /** Says that nobody can take such a task as things are; asked for every task, so it reads memory only. Absent: never. */
  hintFor?(task: FlowSeed['task']): SubmitHint | undefined;
}

const MAX_SESSIONS = 10_000;

/** Tasks that do not come from a chat: checked against their template, then flow and task in one transaction. */
export class Submitter {
  readonly #options: SubmitterOptions;
  readonly #start: ReturnType<typeof startFlowsVerb>;
  /** Conversations that a task was made for. */
  readonly #sessions = new Set<string>();

  constructor(options: SubmitterOptions) {
    this.#options = options;
    this.#start = startFlowsVerb(options.emit);
  }

  /** @throws AppError invalid_request (unknown template, bad argument, unknown conversation), idempotency_conflict */
  async submit(submission: Submission): Promise<Submitted> {
    if (isLinked(submission)) return (await this.#link([submission], () => '', { whole: isGraph([submission]) }))[0]!;
    const seed = this.#seed(submission, '');
    const answers = await this.#write([seed]);
    return this.#submitted(answers[0]!, '', seed);
  }

  /** All or nothing: the first bad item refuses the whole batch, and its place is named. Tasks that name one another are one flow. */
  async submitAll(submissions: readonly Submission[]): Promise<Submitted[]> {
    if (submissions.some(isLinked))
      return this.#link(submissions, (index) => `[${index}].`, { whole: isGraph(submissions) });
    const seeds = submissions.map((submission, index) => this.#seed(submission, `[${index}].`));
    const plain = seeds.every(({ task }) => task.idempotencyKey === null && this.#knows(task.sessionKey));
    // Only these can be refused by the database, and then the others must not stay.
    const answers = plain ? await this.#write(seeds) : await this.#together(seeds);
    const submitted = answers.map((answer, index) => this.#submitted(answer, `[${index}].`, seeds[index]));
    for (const { task } of seeds) if (task.sessionKey !== null) this.#remember(task.sessionKey);
    return submitted;
  }

  /** All or nothing: the tasks become one flow, whether they need one another or not. */
  submitGraph({ tasks, deadline, label }: GraphSubmission): Promise<Submitted[]> {
    return this.#link(tasks, (index) => `tasks[${index}].`, { whole: true, deadlineMs: milliseconds(deadline), label });
  }

  #link(
    submissions: readonly Submission[],
    placeOf: (index: number) => string,
    { whole, deadlineMs, label }: { whole: boolean; deadlineMs?: number | undefined; label?: string | undefined },
  ): Promise<Submitted[]> {
    const { store, ids } = this.#options;
    const plain = submissions.map((submission, index) => this.#seed(submission, placeOf(index)));
    const seeds = linkSeeds(plain, submissions, { whole, placeOf, ids });
    if (deadlineMs !== undefined && seeds.some(({ flow }) => flow !== 'new'))
      throw new AppError('invalid_request', 'a deadline is given with a new graph', { field: 'deadline' });
    const order = { seeds, goal: label ?? goalOf(submissions), deadlineMs: deadlineMs ?? null };
    return store.transact('task.graph', async (tx) => {
      const answers = await startGraph(tx, order, this.#options);
      return answers.map((answer, index) => this.#submitted(answer, placeOf(index), seeds[index]));
    });
  }

  #remember(sessionKey: string): void {
    if (this.#sessions.size >= MAX_SESSIONS) this.#sessions.clear();
    this.#sessions.add(sessionKey);
  }

  /** Conversations are never forgotten, so one that was there is there. */
  #knows(sessionKey: string | null): boolean {
    return sessionKey === null || this.#sessions.has(sessionKey);
  }

  #write(seeds: readonly FlowSeed[]): Promise<StartAnswer[]> {
    return this.#options.store.write(this.#start, seeds, this.#options.patienceMs());
  }

  #together(seeds: readonly FlowSeed[]): Promise<StartAnswer[]> {
    return this.#options.store.transact('task.batch', async (tx) => {
      const answers = await startFlows(tx, seeds, this.#options.emit);
      for (const [index, answer] of answers.entries()) this.#submitted(answer, `[${index}].`);
      return answers;
    });
  }

  #seed(submission: Submission, place: string): FlowSeed {
    const template = this.#options.templates.get(submission.template);
    if (!template) {
      throw new AppError('invalid_request', `there is no template ${JSON.stringify(submission.template)}`, {
        field: `${place}template`,
      });
    }
    const args = this.#args(template, submission.args, place);
    const task = toNewTask(template, args, {
      source: 'api',
      sessionKey: submission.sessionKey,
      idempotencyKey: submission.idempotencyKey,
      priority: submission.priority,
      runAt: submission.runAt,
      ttlMs: milliseconds(submission.ttl),
      timeoutMs: milliseconds(submission.timeout),
      pool: submission.pool,
      agent: submission.agent,
      notifyPolicy: submission.notify,
      label: submission.label,
    });
    return { task, route: null, goal: submission.label ?? template.id };
  }

  #args(template: Template, args: Submission['args'], place: string): Record<string, ArgValue> {
    const { clock, timeZone } = this.#options;
    try {
      return checkArgs(template, args, { now: clock.now(), timeZone });
    } catch (error) {
      if (place === '' || !(error instanceof AppError)) throw error;
      throw new AppError(error.code, error.message, { field: `${place}${error.field}` });
    }
  }

  #submitted(answer: StartAnswer, place: string, seed?: FlowSeed): Submitted {
    const { ids, hintFor } = this.#options;
    if (answer.result === 'no_session') throw noSessionError(place);
    if (answer.result === 'conflict') {
      throw new AppError(
        'idempotency_conflict',
        `this idempotency key was used with other arguments by task ${ids.encode(answer.id)}`,
        { field: `${place}idempotencyKey` },
      );
    }
    const hint = seed && answer.result === 'created' ? hintFor?.(seed.task) : undefined;
    return {
      taskId: ids.encode(answer.id),
      status: answer.status,
      ...(answer.flowId === null ? {} : { flowId: ids.encode(answer.flowId) }),
      ...(answer.result === 'existing' ? { idempotent: true as const } : {}),
      ...(this.#options.isDraining?.() && !isFinal(answer.status) ? { draining: true as const } : {}),
      ...(hint && { hint }),
    };
  }
}

/** `fetch, load, report`: what its tasks are, as far as it fits. */
function goalOf(submissions: readonly Submission[]): string {
  return oneLine([...new Set(submissions.map(({ label, template }) => label ?? template))].join(', '), 120);
}

function milliseconds(value: number | string | undefined): number | undefined {
  return typeof value === 'string' ? durationMs(value) : value;
}
