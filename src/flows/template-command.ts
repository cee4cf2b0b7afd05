import { basename } from 'node:path';
import { type Place, placesIn } from '../places.ts';
import type { Issue } from './template-issues.ts';
import type { TemplateContent } from './template-schema.ts';

/**
 * Every place must name an argument, and what people type must stay text: it may not choose the program, be read as code by a shell
 * or an interpreter, or become an option.
 */
export function commandIssues(content: TemplateContent): Issue[] {
  return (content.command ?? []).flatMap((_element, index) =>
    elementMessages(index, content).map((message) => ({ path: ['command', index], message })),
  );
}

/** Keys may use arguments only: never the clock, never a random value. */
export function keyIssues(content: TemplateContent): Issue[] {
  return (['idempotencyKey', 'serialKey'] as const).flatMap((field) => {
    const key = content[field];
    if (key === undefined) return [];
    const places = placesIn(key);
    const messages = typeof places === 'string' ? [places] : placeMessages(places, content, true);
    return messages.map((message) => ({ path: [field], message }));
  });
}

/** Names and values of `env`, names of `secrets`. */
export function environmentIssues({ env, secrets }: TemplateContent): Issue[] {
  const issues: Issue[] = [];
  for (const [name, value] of Object.entries(env)) {
    const key = (message: string) => issues.push({ path: ['env', name], message, atKey: true });
    if (!/^[A-Z_][A-Z0-9_]{0,63}$/.test(name)) key('must be capital letters, digits and underscores');
    else if (/^(ERRAND|AGENT)_/.test(name)) key('is a name that Errand sets or reads itself');
    else if (secrets.includes(name)) key('is also one of secrets');
    if (value.includes('{{'))
      issues.push({ path: ['env', name], message: 'is fixed text; arguments are in ERRAND_ARG_<NAME>' });
    if (value.includes('\0')) issues.push({ path: ['env', name], message: 'contains a NUL character' });
  }
  for (const [index, name] of secrets.entries()) {
    if (/^(ERRAND|AGENT)_/.test(name))
      issues.push({ path: ['secrets', index], message: 'is a name that Errand sets or reads itself' });
    if (secrets.indexOf(name) !== index) issues.push({ path: ['secrets', index], message: `${name} is there twice` });
  }
  return issues;
}

/** Must values of this argument not begin with a dash? Numbers count: `-9` is an option to many programs. */
export function isDashRefused(name: string, content: TemplateContent): boolean {
  const arg = content.args[name]!;
  return !arg.allowDash && isFreeType(arg.type) && leadingElements(name, content).length > 0;
}

/** Elements of the command that the value of this argument can be the beginning of. */
export function leadingElements(name: string, content: TemplateContent): number[] {
  return (content.command ?? []).flatMap((element, index) => {
    const places = placesIn(element);
    const leads = Array.isArray(places) && places.some((place) => place.name === name && place.before === '');
    return leads ? [index] : [];
  });
}

/** Is it the asker who makes up the values? Those of the other types are limited by the template's author. */
export function isFreeType(type: TemplateContent['args'][string]['type']): boolean {
  return type === 'string' || type === 'number' || type === 'integer';
}

function elementMessages(index: number, content: TemplateContent): string[] {
  const command = content.command ?? [];
  const element = command[index]!;
  const places = placesIn(element);
  if (element.includes('\0')) return ['contains a NUL character'];
  if (index === 0 && element.trim() === '') return ['must name a program'];
  if (typeof places === 'string') return [places];
  if (places.length === 0) return [];
  if (index === 0) return ['must be fixed: no argument may choose the program'];
  if (isProgramText(command, index)) {
    return ['is read as code, so an argument must not be part of it; the program finds arguments in ERRAND_ARG_<NAME>'];
  }
  return [...placeMessages(places, content, false), ...optionMessages(places, content)];
}

const INTERPRETER =
  /^((ba|da|z|k|a|fi|c|tc)?sh|node|deno|bun|python[\d.]*|perl[\d.]*|ruby|php|lua|osascript|pwsh|powershell|cmd)(\.exe)?$/i;
const PROGRAM_FOLLOWS = /^(-[a-z]*[ce]|--eval|-p|--print|-r|\/c|-command|eval)$/i;

/** The element after `sh -c`, `node -e`, `env bash -lc` and the like; not the options of a script that stands between. */
function isProgramText(command: readonly string[], index: number): boolean {
  if (!PROGRAM_FOLLOWS.test(command[index - 1]!)) return false;
  const interpreter = command.findLastIndex((element, at) => at < index - 1 && INTERPRETER.test(basename(element)));
  const isScript = (element: string) => !element.startsWith('-') && /[./]/.test(element);
  return interpreter >= 0 && !command.slice(interpreter + 1, index - 1).some(isScript);
}

function placeMessages(
  places: readonly { name: string; hash: boolean }[],
  { args }: TemplateContent,
  mayHash: boolean,
): string[] {
  return places.flatMap(({ name, hash }) => {
    if (!Object.hasOwn(args, name)) return [`has {{${name}}}, which is no argument of this template`];
    return hash && !mayHash ? [`has {{hash ${name}}}, which only idempotencyKey and serialKey may use`] : [];
  });
}

/** `-{{x}}`, `--{{x}}` and `--with{{x}}` would let the value say which option it is. */
function optionMessages(places: readonly Place[], { args }: TemplateContent): string[] {
  const chooses = ({ name, before }: Place) =>
    Object.hasOwn(args, name) && isFreeType(args[name]!.type) && /^(-{1,2}|--[^=]+)$/.test(before);
  return places.some(chooses) ? ['lets an argument choose an option; write --option={{name}}'] : [];
}
