import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { readTemplate } from '../../src/flows/template-file.ts';
import { problemText } from '../../src/flows/template-model.ts';
import { argSchema, templateSchema } from '../../src/flows/template-schema.ts';

const PAGE = readFileSync(new URL('../../docs/templates.md', import.meta.url), 'utf8');

/** A part of a template as a whole one. */
function completed(yaml: string): string {
  const id = /^id:/m.test(yaml) ? '' : 'id: example\n';
  const runtime = /^request:/m.test(yaml) && !/^runtime:/m.test(yaml) ? 'runtime: http\n' : '';
  const command = /^(command|request):/m.test(yaml) ? '' : 'command: [tool]\n';
  return `${id}${runtime}${command}${yaml}\n`;
}

function problems(yaml: string): string[] {
  const reading = readTemplate('docs', completed(yaml));
  return 'template' in reading ? [] : reading.problems.map(problemText);
}

const blocks = [...PAGE.matchAll(/^```yaml\n(.*?)^```$/gms)].map((match) => match[1]!);
/** Rows of the tables of fields: name and example. */
const rows = [...PAGE.matchAll(/^\| `([^`]+)` \|.*\| `([^`]+)` \|$/gm)].map((match) => ({
  field: match[1]!,
  example: match[2]!,
}));

describe('docs/templates.md', () => {
  test('has examples', () => {
    expect([blocks.length, rows.length]).toEqual([10, 60]);
  });

  test.each(blocks)('its example loads: %s', (block) => {
    expect(problems(block)).toEqual([]);
  });

  test.each(rows)('its example of $field loads and is about it: $example', ({ field, example }) => {
    expect(problems(example)).toEqual([]);
    for (const step of field.split('.').filter((name) => name !== '*')) expect(example).toContain(`${step}:`);
  });

  test('has a row for every field that is available, and for no other', () => {
    const documented = rows.map(({ field }) => field);
    const fields = [...fieldsOf(templateSchema, ''), ...fieldsOf(argSchema, 'args.*.')];
    const available = fields.filter(({ isLater }) => !isLater).map(({ path }) => path);
    expect(documented.toSorted()).toEqual(available.toSorted());
  });

  test('names every field that is not available yet', () => {
    const sentence = PAGE.split('\n\n').find((paragraph) => paragraph.startsWith('Known but not available yet'));
    const later = fieldsOf(templateSchema, '').filter(({ isLater }) => isLater);
    expect(later).toHaveLength(2);
    for (const { path } of later) expect(sentence).toContain(`\`${path}\``);
  });
});

interface Field {
  path: string;
  /** Refused whatever its value is. */
  isLater: boolean;
}

/** All fields; `limits.output` for those within another. */
function fieldsOf(schema: z.ZodObject, prefix: string): Field[] {
  return Object.entries(schema.shape).flatMap(([name, inner]) => {
    const bare = unwrapped(inner as z.ZodType);
    if (bare instanceof z.ZodObject) return fieldsOf(bare, `${prefix}${name}.`);
    return [{ path: `${prefix}${name}`, isLater: bare instanceof z.ZodUndefined }];
  });
}

function unwrapped(schema: z.ZodType): z.ZodType {
  const isWrapper = schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault;
  return isWrapper ? unwrapped(schema.unwrap() as z.ZodType) : schema;
}
