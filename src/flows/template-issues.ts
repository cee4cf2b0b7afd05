import { z } from 'zod';
import { nearest } from './arg-nearest.ts';
import { type TemplateContent, templateSchema } from './template-schema.ts';

/** Something wrong in the content of a template, where the path leads. */
export interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** The key itself is wrong, not its value. */
  readonly atKey?: boolean;
}

/** Checks the shape: the content with its defaults, or everything that is wrong with it, in plain words. */
export function parseContent(data: unknown): { content: TemplateContent } | { issues: Issue[] } {
  const parsed = templateSchema.safeParse(data, { error: sentence });
  return parsed.success ? { content: parsed.data } : { issues: parsed.error.issues.flatMap(issuesOf) };
}

/** An unknown key is an issue of its own; the sentences were made in the same order, one line each. */
function issuesOf(issue: z.core.$ZodIssue): Issue[] {
  if (issue.code !== 'unrecognized_keys') return [{ path: issue.path, message: issue.message }];
  const messages = issue.message.split('\n');
  return issue.keys.map((key, index) => ({ path: [...issue.path, key], message: messages[index]!, atKey: true }));
}

function sentence(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((key) => unknownField(key, issue.inst)).join('\n');
    case 'invalid_type':
      if (issue.input === undefined) return 'is required';
      return issue.input === null ? 'has no value' : `must be ${TYPE_WORDS[issue.expected] ?? issue.expected}`;
    case 'invalid_value':
      return `must be one of ${issue.values.join(', ')}`;
    case 'too_big':
      return `must ${sizeWords(issue.origin, 'most', issue.maximum)}`;
    case 'too_small':
      return `must ${sizeWords(issue.origin, 'least', issue.minimum)}`;
    default:
      return undefined;
  }
}

const TYPE_WORDS: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a mapping',
  record: 'a mapping',
};

function sizeWords(origin: string, end: 'most' | 'least', limit: number | bigint): string {
  if (origin === 'string') return `have at ${end} ${limit} characters`;
  if (origin === 'array') return `have at ${end} ${limit} ${limit === 1 ? 'item' : 'items'}`;
  return `be at ${end} ${limit}`;
}

function unknownField(key: string, schema: unknown): string {
  const known = schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];
  const meant = nearest(key, known);
  return `is not a field${meant ? `; did you mean ${meant}?` : `; there are ${known.join(', ')}`}`;
}
