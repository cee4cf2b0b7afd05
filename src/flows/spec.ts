import type { ShellSpec } from '../agents/protocol.ts';
import { sha256 } from '../ids.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import type { NotifyPolicy, Priority, TaskSource } from '../tasks/states.ts';
import { DEFAULT_RETRY, type NewTask, type RetryPolicy } from '../tasks/task.ts';
import { argSentences } from './arg-sentences.ts';
import { ArgumentError } from './args.ts';
import type { Template } from './template-model.ts';
import { fillPlaces, onlyPlace } from './template-places.ts';

/** What the asker says about one task; everything absent comes from the template. */
export interface TaskOptions {
  source: TaskSource;
  /** The conversation that owns it; absent: nobody's. */
  sessionKey?: string | null;
  flowId?: number | null;
  label?: string | null;
  parentTaskId?: number | null;
  /** Goes before the template's key. */
  idempotencyKey?: string | null;
  /** Goes before the template's place. With `agent`, the template's pool does not count; its labels do. */
  pool?: string;
  agent?: string;
  notifyPolicy?: NotifyPolicy | null;
  priority?: Priority;
  lane?: string;
  /** Epoch milliseconds. */
  runAt?: number | null;
  ttlMs?: number | null;
  timeoutMs?: number;
}

/** The lane of a task whose template names none. */
const LANE_OF: Readonly<Record<TaskSource, string>> = {
  chat: 'main',
  api: 'main',
  hook: 'main',
  workflow: 'main',
  cron: 'cron',
  subagent: 'subagent',
};

/** The task that a template makes of checked arguments (`checkArgs`). */
export function toNewTask(template: Template, args: Record<string, ArgValue>, options: TaskOptions): NewTask {
  const agent = options.agent ?? (options.pool === undefined ? template.agent : null);
  return {
    template: template.id,
    runtime: template.runtime,
    pool: options.pool ?? template.pool,
    agent,
    labels: template.labels,
    lane: options.lane ?? template.lane ?? LANE_OF[options.source],
    serialKey: filledKey(template.serialKey, args),
    args,
    idempotencyKey: options.idempotencyKey ?? filledKey(template.idempotencyKey, args),
    sessionKey: options.sessionKey ?? null,
    flowId: options.flowId ?? null,
    source: options.source,
    label: options.label ?? null,
    parentTaskId: options.parentTaskId ?? null,
    notifyPolicy: options.notifyPolicy ?? template.notify,
    priority: options.priority ?? template.priority,
    runAt: options.runAt ?? null,
    ttlMs: options.ttlMs ?? template.ttlMs,
    timeoutMs: options.timeoutMs ?? template.timeoutMs,
    retry: isDefault(template.retry) ? null : template.retry,
    onLost: template.onLost,
  };
}

/**
 * What the agent starts: one element of the command stays one element, whatever the value contains. An element that is nothing but
 * the place of an argument without a value is left out.
 * @throws ArgumentError where a stored value breaks a rule that the template did not have when the task was created
 */
export function shellSpec(template: Template, args: Readonly<Record<string, ArgValue>>): ShellSpec {
  const argv: string[] = [];
  for (const element of template.command) {
    const alone = onlyPlace(element);
    if (alone === undefined || Object.hasOwn(args, alone)) argv.push(fillPlaces(element, args));
  }
  refuseOptions(template, args);
  return { argv, env: { ...template.env }, graceMs: template.graceMs, exitClasses: { ...template.exitClasses } };
}

/** The template may have been edited since the arguments were checked. */
function refuseOptions(template: Template, args: Readonly<Record<string, ArgValue>>): void {
  for (const [name, value] of Object.entries(args)) {
    const isOption = template.args[name]?.noDash === true && String(value).startsWith('-');
    if (isOption) throw new ArgumentError(name, argSentences.dash(name));
  }
}

function filledKey(text: string | null, args: Readonly<Record<string, ArgValue>>): string | null {
  if (text === null) return null;
  const key = fillPlaces(text, args, keyPart);
  return key.length <= MAX_KEY_CHARS ? key : `sha256:${sha256(key)}`;
}

/** Keys are parts with `:` between them: a value that contains one must not look like two, or two requests would share a key. */
const keyPart = (value: string) => value.replaceAll('%', '%25').replaceAll(':', '%3A');

/** Longer keys do not fit into every database's index; they are replaced by their digest. */
const MAX_KEY_CHARS = 500;

function isDefault(retry: RetryPolicy): boolean {
  const isEqual = (key: keyof RetryPolicy) => retry[key] === DEFAULT_RETRY[key];
  return retry.on === undefined && (Object.keys(DEFAULT_RETRY) as (keyof RetryPolicy)[]).every(isEqual);
}
