import type { ShellSpec } from '../agents/protocol.ts';
import type { HttpSpec } from '../agents/run-content.ts';
import { type RunContent, specOf, UnfitValue } from '../agents/run-content.ts';
import { sha256 } from '../ids.ts';
import { fillPlaces } from '../places.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import type { NotifyPolicy, Priority, TaskSource } from '../tasks/states.ts';
import { DEFAULT_RETRY, type NewTask, type RetryPolicy } from '../tasks/task.ts';
import { argSentences } from './arg-sentences.ts';
import { ArgumentError } from './args.ts';
import type { Template } from './template-model.ts';

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

/** What an agent does for the template; what its `runDigest` is taken of. */
export function contentFor(template: Omit<Template, 'runDigest'>): RunContent {
  const known = contents.get(template);
  if (known) return known;
  const content = makeContent(template);
  contents.set(template, content);
  return content;
}

/** Templates never change: an edited file is another one. */
const contents = new WeakMap<object, RunContent>();

function makeContent(template: Omit<Template, 'runDigest'>): RunContent {
  const { id, runtime, command, request, env, secrets, graceMs, exitClasses, runLimits: limits } = template;
  const args = Object.keys(template.args).sort();
  const noDash = args.filter((name) => template.args[name]!.noDash);
  return { id, runtime, command, request, env, secrets, graceMs, exitClasses, limits, args, noDash };
}

/**
 * The runtime's part of what an agent is asked to do.
 * @throws ArgumentError where a stored value breaks a rule that the template did not have when the task was created
 */
export function specFor(template: Template, args: Readonly<Record<string, ArgValue>>): ShellSpec | HttpSpec {
  try {
    return specOf(contentFor(template), args);
  } catch (error) {
    if (!(error instanceof UnfitValue)) throw error;
    throw new ArgumentError(error.arg, error.arg === '' ? argSentences.path : argSentences.dash(error.arg));
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
