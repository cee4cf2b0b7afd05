import type { Route } from '../channels/channel.ts';
import { ArgumentError, checkArgs } from '../flows/args.ts';
import { usageOf } from '../flows/router.ts';
import { toNewTask } from '../flows/spec.ts';
import { type StartAnswer, startFlow } from '../flows/start.ts';
import type { Template } from '../flows/template-model.ts';
import type { TemplateRegistry } from '../flows/templates.ts';
import type { Log } from '../log.ts';
import type { NewMessage } from '../outbox/message.ts';
import { accessIn } from '../sessions/access.ts';
import { type Lang, langOf } from '../sessions/lang.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import type { Emit, NewTask, TaskEvent } from '../tasks/task.ts';
import type { Refusals } from '../telemetry/refusals.ts';
import { enqueueFollowups, type NewFollowup } from './followup.ts';
import { type QueuedFollowup, queuedFollowups, settleFollowup } from './queries.ts';
import { createRowLoop, type RowLoop } from './row-loop.ts';
import { faultText, goneText, mayNot, parkedText, repeatText, untakenText, wrongText } from './wording.ts';

export interface FollowupOptions {
  readonly store: Store;
  readonly log: Log;
  readonly templates: Pick<TemplateRegistry, 'get'>;
  readonly outbox: { enqueue(tx: Tx, messages: readonly NewMessage[]): Promise<void> };
  readonly emitTasks: Emit<TaskEvent>;
  /** ERRAND_TZ: the zone in which a person means `today`. */
  readonly timeZone: string;
  /** ERRAND_LANG. */
  readonly lang: 'auto' | Lang;
  /** Whether nothing new starts at the moment; the person is told. Absent: never. */
  readonly isDraining?: () => boolean;
  /** Says that nobody can take such a task as things are; the person is told. Absent: never. */
  readonly hintFor?: (task: NewTask) => { readonly text: Readonly<Record<Lang, string>> } | undefined;
  /** Counts who was refused. Absent: nobody counts. */
  readonly refusals?: Pick<Refusals, 'count'>;
  /** Pause before an errand whose start failed is tried again, milliseconds; default 1 s. */
  readonly retryPauseMs?: number;
}

export interface Followup extends RowLoop {
  /** Stores errands in the caller's transaction, once per message; they start right after its commit. */
  ask(tx: Tx, errands: readonly NewFollowup[]): Promise<void>;
}

/** An errand whose start throws is given up after so many times. */
const MAX_TRIES = 3;

/**
 * Starts the errands that wait: checks them, then flow, task and mark in one transaction, or mark and an answer that says what is
 * wrong. What a crash left queued starts at the next `start`. Who may not run it any more is refused, whenever it was asked.
 */
export function createFollowup(options: FollowupOptions): Followup {
  const loop = createErrandLoop(options);
  return {
    start: () => loop.start(),
    stop: () => loop.stop(),
    wake: () => loop.wake(),
    async ask(tx, errands) {
      await enqueueFollowups(tx, errands);
      tx.afterCommit(() => loop.wake());
    },
  };
}

function createErrandLoop(options: FollowupOptions): RowLoop {
  const tries = new Map<number, number>();
  return createRowLoop<QueuedFollowup>({
    store: options.store,
    log: options.log,
    name: 'followup',
    read: (limit) => options.store.all(queuedFollowups, { limit }),
    work: (tx, row) => startErrand(tx, row, options),
    onFault: async (tx, row) => {
      const count = (tries.get(row.id) ?? 0) + 1;
      if (count < MAX_TRIES) {
        tries.set(row.id, count);
        return;
      }
      await refuse(tx, row, options, { reason: 'fault', text: faultText(langFor(row, options)) });
      tx.afterCommit(() => tries.delete(row.id));
    },
    ...(options.retryPauseMs === undefined ? {} : { retryPauseMs: options.retryPauseMs }),
  });
}

async function startErrand(tx: Tx, row: QueuedFollowup, options: FollowupOptions): Promise<void> {
  const lang = langFor(row, options);
  const route = JSON.parse(row.route) as Route;
  const template = options.templates.get(row.template);
  if (!template) return refuse(tx, row, options, { reason: 'template_gone', text: goneText(lang, row.template) });
  const access = await accessIn(tx, route, row.user_id);
  const isInRoles =
    template.roles.length === 0 ||
    access.role === 'admin' ||
    (access.role !== null && template.roles.includes(access.role));
  if (!access.may('run') || !isInRoles) {
    tx.afterCommit(() => {
      options.refusals?.count('role');
      options.log.info('access.refused', {
        channel: route.channel,
        account: route.account,
        reason: 'role',
        userId: row.user_id,
      });
    });
    return refuse(tx, row, options, { reason: 'not_allowed', text: mayNot(lang, template.title[lang]) });
  }
  const args = argsOf(template, row, options);
  if (args instanceof ArgumentError) {
    return refuse(tx, row, options, { reason: 'bad_args', text: wrongText(lang, args.texts[lang], usageOf(template)) });
  }
  const task = toNewTask(template, args, {
    source: 'chat',
    sessionKey: row.session_key,
    notifyPolicy: row.notify_policy,
  });
  const answer = await startFlow(tx, { task, route, goal: row.text }, options.emitTasks);
  await settled(tx, row, answer, { ...options, lang, title: template.title[lang], route, task });
}

/** `today` is the day of the message, so that a crash on the way changes nothing. */
function argsOf(
  template: Template,
  row: QueuedFollowup,
  { timeZone }: FollowupOptions,
): Record<string, ArgValue> | ArgumentError {
  try {
    return checkArgs(template, JSON.parse(row.args) as Record<string, unknown>, { now: row.created_at, timeZone });
  } catch (error) {
    if (error instanceof ArgumentError) return error;
    throw error;
  }
}

interface Started extends Omit<FollowupOptions, 'lang'> {
  lang: Lang;
  title: string;
  route: Route;
  task: NewTask;
}

async function settled(tx: Tx, row: QueuedFollowup, answer: StartAnswer, started: Started): Promise<void> {
  if (answer.result === 'no_session') throw new Error('an errand with a route of its own was refused for want of one');
  const reason = answer.result === 'created' ? null : answer.result;
  const flow = answer.result === 'conflict' ? null : answer.flowId;
  await settle(tx, row, answer.result === 'conflict' ? 'failed' : 'started', reason, flow);
  const text = textOf(answer, started);
  if (text !== undefined) await started.outbox.enqueue(tx, [replyTo(row, started.route, text)]);
}

/** What there is to say at once; nothing where it simply starts. */
function textOf(answer: Exclude<StartAnswer, { result: 'no_session' }>, started: Started): string | undefined {
  const { lang, title, task } = started;
  const id = started.store.ids.encode(answer.id);
  if (answer.result !== 'created') return repeatText(lang, title, id, answer);
  if (started.isDraining?.()) return parkedText(lang, title, id);
  const hint = started.hintFor?.(task);
  return hint && untakenText(lang, title, id, hint.text[lang]);
}

async function refuse(
  tx: Tx,
  row: QueuedFollowup,
  options: FollowupOptions,
  why: { reason: string; text: string },
): Promise<void> {
  await settle(tx, row, 'failed', why.reason, null);
  await options.outbox.enqueue(tx, [replyTo(row, JSON.parse(row.route) as Route, why.text)]);
}

async function settle(
  tx: Tx,
  row: QueuedFollowup,
  status: 'started' | 'failed',
  reason: string | null,
  flow: number | null,
): Promise<void> {
  const ended = await tx.all(settleFollowup, { id: row.id, status, reason, flow, now: tx.now });
  // Thrown, so that whatever this transaction did for a row that is not waiting any more is rolled back.
  if (ended.length === 0) throw new Error('the errand was started by somebody else');
}

function replyTo(row: QueuedFollowup, route: Route, text: string): NewMessage {
  return { route, sessionKey: row.session_key, kind: 'reply', text, dedupeKey: `inbox:${row.inbox_id}:errand` };
}

function langFor(row: QueuedFollowup, { lang }: FollowupOptions): Lang {
  return langOf(row, row.text, lang);
}
