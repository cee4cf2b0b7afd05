import type { RetryRules } from '../tasks/classify.ts';
import type { ArgValue } from '../tasks/run-words.ts';
import { ArgumentError, checkValue, isDay, patternOf } from './args.ts';
import { commandIssues, environmentIssues, isFreeType, keyIssues, leadingElements } from './template-command.ts';
import type { Issue } from './template-issues.ts';
import type { ArgSpec } from './template-model.ts';
import { requestIssues } from './template-request.ts';
import type { TemplateContent } from './template-schema.ts';
import { parseTrigger } from './template-trigger.ts';

/** What the shape alone cannot tell: rules between fields, places that name no argument, values that could become an option. */
export function checkContent(content: TemplateContent): Issue[] {
  return [
    ...Object.keys(content.args).flatMap((name) => argIssues(name, content)),
    ...content.triggers.flatMap((trigger, index) => triggerIssues(trigger, index, content)),
    ...commandIssues(content),
    ...requestIssues(content),
    ...keyIssues(content),
    ...environmentIssues(content),
    ...placeIssues(content),
    ...retryRuleIssues(content),
  ];
}

type ArgContent = TemplateContent['args'][string];

const MAX_ARGS = 32;
const MAX_TEXT_CHARS = 20_000;
const ARG_NAME = /^[a-z][a-z0-9_]{0,31}$/;

function argIssues(name: string, content: TemplateContent): Issue[] {
  const arg = content.args[name]!;
  const at = (field: string, message: string): Issue => ({ path: ['args', name, field], message });
  const issues: Issue[] = [];
  if (!ARG_NAME.test(name)) {
    issues.push({
      path: ['args', name],
      message: 'must be 1 to 32 lower-case letters, digits and underscores',
      atKey: true,
    });
  }
  if (Object.keys(content.args).indexOf(name) === MAX_ARGS) {
    issues.push({ path: ['args', name], message: `is one too many: at most ${MAX_ARGS} arguments`, atKey: true });
  }
  if (arg.required && arg.default !== undefined)
    issues.push(at('default', 'is never used, as the argument is required'));
  if (arg.pattern !== undefined)
    issues.push(...patternIssues(arg.pattern, arg).map((message) => at('pattern', message)));
  if (arg.type === 'enum' && !arg.values)
    issues.push({ path: ['args', name], message: 'needs values: the list of what is allowed' });
  if (arg.type !== 'enum' && arg.values) issues.push(at('values', 'belongs to the type enum'));
  issues.push(...boundIssues(arg).map(([field, message]) => at(field, message)));
  issues.push(...dashIssues(name, content).map((message) => at('allowDash', message)));
  return issues.length > 0 ? issues : defaultIssues(name, arg).map((message) => at('default', message));
}

function patternIssues(pattern: string, arg: ArgContent): string[] {
  if (arg.type !== 'string') return ['belongs to the type string'];
  try {
    patternOf(pattern);
    return [];
  } catch {
    return ['is not a valid regular expression'];
  }
}

function boundIssues(arg: ArgContent): ['min' | 'max', string][] {
  const issues: ['min' | 'max', string][] = [];
  for (const field of ['min', 'max'] as const) {
    const message = arg[field] === undefined ? undefined : wrongBound(arg.type, arg[field]);
    if (message) issues.push([field, message]);
  }
  if (issues.length === 0 && arg.min !== undefined && arg.max !== undefined && arg.min > arg.max)
    issues.push(['max', 'is less than min']);
  return issues;
}

function wrongBound(type: ArgContent['type'], limit: number | string): string | undefined {
  if (type === 'boolean' || type === 'enum') return `has no meaning for the type ${type}`;
  if (type === 'date')
    return typeof limit === 'string' && isDay(limit) ? undefined : 'must be a day such as 2026-03-01';
  if (typeof limit !== 'number' || !Number.isFinite(limit)) return 'must be a number';
  const isLength = Number.isInteger(limit) && limit >= 0 && limit <= MAX_TEXT_CHARS;
  return type === 'string' && !isLength ? `must be a number of characters, 0 to ${MAX_TEXT_CHARS}` : undefined;
}

/** Past a literal `--` programs take everything as text; anywhere else a dash in front makes an option. */
function dashIssues(name: string, content: TemplateContent): string[] {
  const arg = content.args[name]!;
  if (!arg.allowDash) return [];
  if (!isFreeType(arg.type)) return [`has no meaning for the type ${arg.type}`];
  const end = (content.command ?? []).indexOf('--');
  const exposed = leadingElements(name, content).find((index) => end < 0 || index < end);
  if (exposed === undefined) return [];
  return [
    `is only safe where {{${name}}} comes after an element "--" or behind other text, as in --option={{${name}}}`,
  ];
}

/** A default goes through the same door as what people type. */
function defaultIssues(name: string, arg: ArgContent): string[] {
  if (arg.default === undefined) return [];
  if (arg.type !== 'string' && arg.type !== 'date' && arg.type !== 'enum' && typeof arg.default === 'string') {
    return [`must be ${arg.type === 'boolean' ? 'true or false' : 'a number'}, without quotes`];
  }
  try {
    checkValue(name, { ...arg, noDash: false } as ArgSpec, arg.default satisfies ArgValue);
    return [];
  } catch (error) {
    if (error instanceof ArgumentError) return [`is not acceptable: ${error.message}`];
    throw error;
  }
}

function triggerIssues(trigger: string, index: number, { args }: TemplateContent): Issue[] {
  const at = (message: string): Issue => ({ path: ['triggers', index], message });
  const parts = parseTrigger(trigger);
  if (typeof parts === 'string') return [at(parts)];
  const places = parts.flatMap((part) => ('place' in part ? [part.place] : []));
  const unknown = places.find((place) => !Object.hasOwn(args, place));
  if (unknown !== undefined) return [at(`has {${unknown}}, which is no argument of this template`)];
  const absent = Object.keys(args).filter((name) => args[name]!.required && !places.includes(name));
  return absent.length === 0
    ? []
    : [at(`can never start anything without {${absent.join('}, {')}}, which is required`)];
}

function placeIssues({ agent, pool, labels }: TemplateContent): Issue[] {
  const issues: Issue[] = [];
  if (agent !== undefined && pool !== undefined)
    issues.push({ path: ['pool'], message: 'has no effect beside agent; leave one of them out' });
  for (const name of Object.keys(labels ?? {})) {
    const isName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(name);
    if (!isName)
      issues.push({ path: ['labels', name], message: 'must be 1 to 64 letters, digits, dots or dashes', atKey: true });
  }
  return issues;
}

function retryRuleIssues({ retry: { on } }: TemplateContent): Issue[] {
  return (['exit', 'http', 'error'] as const).flatMap((kind) =>
    Object.keys(on[kind]).flatMap((key, index): Issue[] => {
      const message = index < MAX_RULES ? RULE_ISSUES[kind](key) : `is one too many: at most ${MAX_RULES} rules`;
      return message === undefined ? [] : [{ path: ['retry', 'on', kind, key], message, atKey: true }];
    }),
  );
}

const MAX_RULES = 100;
const RULE_ISSUES: Readonly<Record<keyof RetryRules, (key: string) => string | undefined>> = {
  exit: (code) => {
    if (!/^[1-9]\d{0,2}$/.test(code) || Number(code) > 255) return 'must be an exit code, 1 to 255';
    return code === '77' || code === '78' ? 'means that a person must act, in every template' : undefined;
  },
  http: (status) =>
    /^[345](\d\d|xx)$/.test(status) ? undefined : 'must be the HTTP status of a failure, 300 to 599, or 3xx, 4xx, 5xx',
  error: (name) =>
    /^[A-Za-z_][A-Za-z0-9_.]{0,63}$/.test(name) ? undefined : 'must be the name of an error such as ECONNRESET',
};
