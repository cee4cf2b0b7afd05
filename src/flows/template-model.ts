import type { HttpRequest, RunContent } from '../agents/run-content.ts';
import type { Role } from '../sessions/rights.ts';
import type { BreakerPolicy } from '../tasks/breakers.ts';
import type { TemplateLimits } from '../tasks/gates.ts';
import type { ArgValue, ErrorClass, OnLost } from '../tasks/run-words.ts';
import type { NotifyPolicy, Priority } from '../tasks/states.ts';
import type { RetryPolicy } from '../tasks/task.ts';

/** One text for people in both languages. */
export interface Texts {
  readonly en: string;
  readonly zh: string;
}

export const ARG_TYPES = ['string', 'number', 'integer', 'boolean', 'date', 'enum'] as const;
export const HTTP_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
export type ArgType = (typeof ARG_TYPES)[number];

/** What one argument of a template accepts (docs/templates.md). */
export interface ArgSpec {
  readonly type: ArgType;
  readonly required: boolean;
  /** Of the argument's type; for dates also the word `today`, which is resolved when the task is created. */
  readonly default?: ArgValue;
  /** As written; it must match the whole value. See `patternOf` in args.ts. */
  readonly pattern?: string;
  /** Text: characters. Numbers: the value. Dates: the day. */
  readonly min?: number | string;
  readonly max?: number | string;
  /** Of `enum`. */
  readonly values?: readonly string[];
  /** A value must not begin with `-`: it begins an element of the command, where a program could take it for an option. */
  readonly noDash: boolean;
  /** A value must not be `.` or `..`: it stands alone between two slashes of an address. */
  readonly noDots?: true;
}

/** One errand that can be asked for: a checked template file with every default filled in. Frozen at every level. */
export interface Template {
  readonly id: string;
  /** Falls back to the other language, then to the id. */
  readonly title: Texts;
  readonly triggers: readonly string[];
  /** Has no prototype, so any name may be looked up. */
  readonly args: Readonly<Record<string, ArgSpec>>;
  readonly runtime: 'shell' | 'http';
  /** Program and arguments; `{{name}}` stands for an argument. Filled by `specFor`. Empty for `http`. */
  readonly command: readonly string[];
  /** The call of `http`; null for `shell`. */
  readonly request: HttpRequest | null;
  /** Static variables of the program. */
  readonly env: Readonly<Record<string, string>>;
  /** Names of secrets; the values live on the agent. */
  readonly secrets: readonly string[];
  readonly pool: string;
  readonly agent: string | null;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly turn: 'background';
  readonly priority: Priority;
  readonly timeoutMs: number;
  /** Between SIGTERM and SIGKILL. */
  readonly graceMs: number;
  /** A run that says nothing for so long is asked for a sign of life; null: never. */
  readonly quietAfterMs: number | null;
  readonly ttlMs: number | null;
  /** What one run may use; see `RunContent`. */
  readonly runLimits: RunContent['limits'];
  readonly retry: RetryPolicy;
  /** What a lost lease may do. */
  readonly onLost: OnLost;
  /** Exit code → what a failure with it means. */
  readonly exitClasses: Readonly<Record<string, ErrorClass>>;
  /** Its settings are those of this file; see `breakerPolicies` for names that several templates share. */
  readonly breaker: BreakerPolicy | null;
  /** Null: that of the task's source. */
  readonly lane: string | null;
  /** How many may run at once and start in a time. */
  readonly limits: TemplateLimits;
  /** Text with places: at most one task runs per key. */
  readonly serialKey: string | null;
  readonly idempotencyKey: string | null;
  /** Null: the default of the task's source. */
  readonly notify: NotifyPolicy | null;
  /** How what its runs say is to be read. */
  readonly summary: 'plain' | 'markdown';
  /** Roles that may run it; empty: everybody who may run anything. */
  readonly roles: readonly Role[];
  /** `sha256:<hex>` of the file's content as data: comments, order of keys and spacing do not count. */
  readonly digest: string;
  /** `sha256:<hex>` of what an agent does for it, which its owner may pin. Places, retries and texts for people do not count. */
  readonly runDigest: string;
}

/** Something wrong in a template file. */
export interface TemplateProblem {
  /** As given by the caller, for example `templates/report.yaml`. */
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1. */
  readonly column: number;
  /** Path of the field, for example `args.room.pattern`; empty where the file as a whole is meant. */
  readonly field: string;
  readonly message: string;
}

/** `templates/report.yaml:12:3: args.room.pattern: is not a valid regular expression` */
export function problemText(problem: TemplateProblem): string {
  const field = problem.field === '' ? '' : `${problem.field}: `;
  return `${problem.file}:${problem.line}:${problem.column}: ${field}${problem.message}`;
}
