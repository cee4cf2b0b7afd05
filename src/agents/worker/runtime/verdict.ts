import {
  classify,
  type ErrorClass,
  MAX_PAUSE_MS,
  retryAfterMs,
  ruleFor,
  type ShellSpec,
  WIRE_LIMITS,
} from '../../protocol.ts';
import type { Exceeded } from '../limits.ts';
import { cutText } from './capture.ts';
import { type RunEnd, type StopReason, stoppedEnd } from './runtime.ts';

/** Everything known about a program that is over. */
export interface ProgramEnd {
  exitCode: number | null;
  signal: NodeJS.Signals | null;
  /** Set where the program was told to end before it did so by itself. */
  stopped?: StopReason;
  stdout: string;
  stderr: string;
  /** The program's own summary, question and pause, where it wrote them. */
  summary?: string;
  question?: string;
  retryAfter?: string;
  outputs: Record<string, string>;
  /** The limit for which the agent ended it. */
  exceeded?: Exceeded;
  /** What speaks for the kernel having killed it, or part of it, for want of memory; one sentence. */
  outOfMemory?: string;
}

const LAST_LINES = 8;

/** Exit codes that call for a person (contract, section 3); what others mean is for `classify`. */
const EXIT = { blocked: 77, question: 78 } as const;

/** What the end of a program means. */
export function verdictOn(end: ProgramEnd, exitClasses: Readonly<Record<string, ErrorClass>>): RunEnd {
  const summary = summaryOf(end);
  if (end.stopped) return stoppedEnd(end.stopped, summary || undefined);
  const shortage = shortageOf(end);
  if (shortage) {
    const { errorType, text } = shortage;
    return { ...failure(end, 'permanent', `${errorType}: ${text}`), errorType };
  }
  if (end.signal) return failure(end, 'permanent', `killed by ${end.signal}`);
  const code = end.exitCode ?? 0;
  if (code === 0) {
    const outputs = Object.keys(end.outputs).length > 0 ? end.outputs : undefined;
    return { type: 'succeeded', summary, outputs, exitCode: 0 };
  }
  const rules = { exit: exitClasses };
  const own = ruleFor({ exitCode: code }, rules);
  if (own) return failure(end, own, `exit code ${code}`);
  if (code === EXIT.blocked) return { type: 'blocked', summary: summary || 'the program says that a person must act' };
  if (code === EXIT.question) return askedEnd(end);
  return failure(end, classify({ exitCode: code }, rules), `exit code ${code}`);
}

/**
 * Want of something is told as that, whatever exit code or signal came of it; templates name it in `retry.on.error`.
 * Whoever ended by a signal that the agent sent for another reason was not short of anything.
 */
function shortageOf(end: ProgramEnd): { errorType: string; text: string } | undefined {
  if (end.exceeded) return { errorType: 'resource_exceeded', text: end.exceeded.text };
  return end.outOfMemory === undefined ? undefined : { errorType: 'out_of_memory', text: end.outOfMemory };
}

/** A program that could not be started. */
export function notStarted(error: NodeJS.ErrnoException, spec: ShellSpec): RunEnd {
  const command = spec.argv[0] ?? '';
  const fail = (errorClass: ErrorClass, text: string): RunEnd => ({
    type: 'failed',
    errorClass,
    error: cutText(text, WIRE_LIMITS.error),
  });
  switch (error.code) {
    case 'ENOENT':
      return fail('permanent', `command not found: ${command}`);
    case 'EACCES':
      return fail('permanent', `permission denied: ${command} may not be executed`);
    case 'E2BIG':
      return fail('permanent', 'the arguments are too long for this system');
    case 'ERR_INVALID_ARG_VALUE':
      return fail('permanent', 'an argument or a variable contains a NUL character');
    case 'EAGAIN':
    case 'EMFILE':
    case 'ENFILE':
    case 'ENOMEM':
    case 'ENOSPC':
      return fail('transient', `the agent's machine is short of something (${error.code}): ${command} was not started`);
    default:
      return fail('permanent', `${command} could not be started (${error.code ?? 'unknown error'})`);
  }
}

function askedEnd(end: ProgramEnd): RunEnd {
  const prompt = end.question?.trim();
  if (!prompt) return failure(end, 'permanent', 'exit code 78 asks a question, but ERRAND_QUESTION is empty');
  return { type: 'needs_input', prompt: cutText(prompt, WIRE_LIMITS.error) };
}

function failure(end: ProgramEnd, errorClass: ErrorClass, sentence: string): Extract<RunEnd, { type: 'failed' }> {
  const lines = lastLines(end.stderr) || lastLines(end.stdout);
  return {
    type: 'failed',
    errorClass,
    error: cutText(lines ? `${sentence}\n${lines}` : sentence, WIRE_LIMITS.error),
    summary: summaryOf(end) || undefined,
    retryAfterMs: errorClass === 'rate_limited' ? pauseMs(end.retryAfter) : undefined,
    exitCode: end.signal ? undefined : (end.exitCode ?? undefined),
    signal: end.signal ?? undefined,
  };
}

function summaryOf(end: ProgramEnd): string {
  return cutText((end.summary ?? end.stdout).trimEnd(), WIRE_LIMITS.summary);
}

function lastLines(text: string): string {
  return text.trimEnd().split(/\r?\n/).slice(-LAST_LINES).join('\n');
}

/** Seconds, or the date of a `Retry-After` header that the program has copied. */
function pauseMs(text: string | undefined): number | undefined {
  const said = text?.trim() ?? '';
  const seconds = said === '' ? Number.NaN : Number(said);
  const isCount = Number.isFinite(seconds) && seconds >= 0;
  const ms = isCount ? Math.round(seconds * 1_000) : retryAfterMs(said, Date.now());
  return ms === undefined ? undefined : Math.min(ms, MAX_PAUSE_MS);
}
