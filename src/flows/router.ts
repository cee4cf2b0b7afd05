import { nearest } from './arg-nearest.ts';
import { type SplitFault, splitWords } from './arg-words.ts';
import type { ArgSpec, Template, Texts } from './template-model.ts';
import { folded, matchParts, parseTrigger, type TriggerMatch, type TriggerPart, wordsOf } from './template-trigger.ts';

/** An errand that a message asks for. The arguments are what was typed: `checkArgs` has yet to accept them. */
export interface Routed {
  readonly template: Template;
  readonly args: Readonly<Record<string, string>>;
  /** Ids of further templates that the message fits just as well. */
  readonly others: readonly string[];
}

/** A message that asks for an errand, but not so that it can be started. */
export interface RouteProblem {
  readonly problem:
    | 'no_template'
    | 'unknown_template'
    | 'unassigned_text'
    | 'missing_arguments'
    | 'unterminated_quote'
    | 'text_after_quote'
    | 'key_twice';
  /** What to tell the person. */
  readonly text: Texts;
}

export type RouteResult = Routed | RouteProblem | null;

/**
 * Reads `/run <template> key=value key="two words" text`. Text without a key goes to the only required text argument that is not
 * named, else to the only argument that is not named. Null: not a /run command.
 */
export function parseRun(templates: readonly Template[], message: string): RouteResult {
  const [command, name] = wordsOf(message);
  if (!command || !/^\/run(@|$)/.test(folded(command.text))) return null;
  const id = folded(name?.text ?? '');
  const template = templates.find((candidate) => candidate.id === id);
  if (!template) return id === '' ? noTemplate(templates) : unknownTemplate(id, templates);
  const split = splitWords(message.slice(name!.end));
  if ('fault' in split) return { problem: split.fault, text: faultText(split) };
  if (split.rest === undefined) return { template, args: split.named, others: [] };
  const arg = argForText(template, split.named);
  if (arg === undefined) return unassignedText(template);
  return { template, args: withArg(split.named, arg, split.rest), others: [] };
}

/**
 * Finds the template one of whose triggers the message fits. The trigger with the most literal text wins; of equal ones the
 * template whose id comes first. A message that has a trigger's words but lacks required arguments is a problem, unless it fits
 * another trigger. Null: no errand is meant.
 */
export function matchTrigger(templates: readonly Template[], message: string): RouteResult {
  const words = wordsOf(message);
  if (words.length === 0) return null;
  const found = templates.flatMap((template) => fitsOf(template, message, words)).sort(byCertainty);
  const complete = found.filter((fit) => fit.lacking.length === 0);
  const best = complete[0] ?? found[0];
  if (!best) return null;
  if (best.lacking.length > 0) return missingArguments(best);
  const equal = complete.filter(
    (fit) => fit.match.certainty === best.match.certainty && fit.template !== best.template,
  );
  return { template: best.template, args: best.match.args, others: [...new Set(equal.map((fit) => fit.template.id))] };
}

/** `/run hotel-report room=… guest=… [day=today]`: the form that always works. */
export function usageOf(template: Pick<Template, 'id' | 'args'>): string {
  const args = Object.entries(template.args).map(([name, spec]) => {
    const example = `${name}=${exampleOf(spec)}`;
    return spec.required ? example : `[${example}]`;
  });
  return ['/run', template.id, ...args].join(' ');
}

const LISTED = 20;

function argForText(template: Template, named: Readonly<Record<string, string>>): string | undefined {
  const free = Object.entries(template.args).filter(([name]) => !Object.hasOwn(named, name));
  const texts = free.filter(([, spec]) => spec.required && spec.type === 'string');
  const candidates = texts.length > 0 ? texts : free;
  return candidates.length === 1 ? candidates[0]![0] : undefined;
}

function withArg(named: Readonly<Record<string, string>>, name: string, text: string): Record<string, string> {
  return Object.assign(Object.create(null) as Record<string, string>, named, { [name]: text });
}

function exampleOf(spec: ArgSpec): string {
  if (spec.default !== undefined) return quoted(String(spec.default));
  const isShortList = spec.values !== undefined && spec.values.length <= 6;
  return isShortList ? spec.values!.join('|') : '…';
}

function quoted(value: string): string {
  return /^[^\s"'“”‘’]+$/u.test(value) ? value : `"${value}"`;
}

interface Fit {
  template: Template;
  trigger: string;
  match: TriggerMatch;
  /** Required arguments that the message has no words for. */
  lacking: string[];
}

/** Triggers do not change; parsing them once per template is enough. */
const PARSED = new WeakMap<Template, readonly { trigger: string; parts: readonly TriggerPart[] }[]>();

function triggersOf(template: Template) {
  let parsed = PARSED.get(template);
  if (!parsed) {
    parsed = template.triggers.flatMap((trigger) => {
      const parts = parseTrigger(trigger);
      return typeof parts === 'string' ? [] : [{ trigger, parts }];
    });
    PARSED.set(template, parsed);
  }
  return parsed;
}

function fitsOf(template: Template, message: string, words: ReturnType<typeof wordsOf>): Fit[] {
  return triggersOf(template).flatMap(({ trigger, parts }) => {
    const match = matchParts(parts, message, words);
    if (!match) return [];
    return [{ template, trigger, match, lacking: match.missing.filter((name) => template.args[name]?.required) }];
  });
}

function byCertainty(a: Fit, b: Fit): number {
  return (
    b.match.certainty - a.match.certainty ||
    (a.template.id < b.template.id ? -1 : a.template.id > b.template.id ? 1 : 0)
  );
}

function noTemplate(templates: readonly Template[]): RouteProblem {
  const ids = idList(templates);
  return {
    problem: 'no_template',
    text: {
      en: `Which errand? There ${ids === '' ? 'is none yet' : `is: ${ids}`}.`,
      zh: `要运行哪一个？${ids === '' ? '还没有任务模板' : `可以运行：${ids}`}。`,
    },
  };
}

function unknownTemplate(id: string, templates: readonly Template[]): RouteProblem {
  const shown = id.length > 48 ? `${id.slice(0, 47)}…` : id;
  const meant = nearest(
    id,
    templates.map((template) => template.id),
  );
  const ids = idList(templates);
  const en = meant ? `Did you mean ${meant}?` : ids === '' ? 'There is none yet.' : `There is: ${ids}.`;
  const zh = meant ? `是不是 ${meant}？` : ids === '' ? '还没有任务模板。' : `可以运行：${ids}。`;
  return {
    problem: 'unknown_template',
    text: { en: `There is no errand ${shown}. ${en}`, zh: `没有 ${shown} 这个任务。${zh}` },
  };
}

function idList(templates: readonly Template[]): string {
  const ids = templates.map((template) => template.id);
  return ids.length > LISTED ? `${ids.slice(0, LISTED).join(', ')}, …` : ids.join(', ');
}

function unassignedText(template: Template): RouteProblem {
  const names = Object.keys(template.args);
  const usage = usageOf(template);
  if (names.length === 0) {
    const text = { en: `${template.id} takes no arguments: ${usage}`, zh: `${template.id} 没有参数：${usage}` };
    return { problem: 'unassigned_text', text };
  }
  const list = names.join(', ');
  return {
    problem: 'unassigned_text',
    text: {
      en: `Say which argument each value is for (${list}): ${usage}`,
      zh: `请写明每个值属于哪个参数（${list}）：${usage}`,
    },
  };
}

function missingArguments({ lacking, trigger }: Fit): RouteProblem {
  const names = lacking.join(', ');
  return {
    problem: 'missing_arguments',
    text: { en: `Missing: ${names}. Write: ${trigger}`, zh: `缺少 ${names}。请写：${trigger}` },
  };
}

function faultText({ fault, at }: SplitFault): Texts {
  switch (fault) {
    case 'unterminated_quote':
      return { en: `A quotation mark is never closed: ${at}`, zh: `引号没有结束：${at}` };
    case 'text_after_quote':
      return { en: `Put a space after the closing quotation mark: ${at}`, zh: `结束引号后面要有空格：${at}` };
    case 'key_twice':
      return { en: `${at} is given twice`, zh: `${at} 写了两次` };
  }
}
