import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { breakerPolicies } from '../../src/flows/template-breakers.ts';
import { readTemplate } from '../../src/flows/template-file.ts';
import { loadTemplates, problemText, type TemplateRegistry } from '../../src/flows/templates.ts';

function read(breaker: string) {
  const reading = readTemplate('f', `id: t\ncommand: [x]\nbreaker: ${breaker}\n`);
  return 'template' in reading
    ? reading.template.breaker
    : reading.problems.map((problem) => problemText(problem).slice(2));
}

test('a breaker needs a name; the rest has defaults', () => {
  const defaults = { threshold: 0.5, windowMs: 60_000, minimum: 5, cooldownMs: 30_000, onOpen: 'wait' };
  expect(read('{ name: psb }')).toEqual({ name: 'psb', ...defaults });
  expect(read('{ name: psb, threshold: 0.25, window: 10m, minimum: 20, cooldown: 5m, onOpen: fail }')).toEqual({
    name: 'psb',
    threshold: 0.25,
    windowMs: 600_000,
    minimum: 20,
    cooldownMs: 300_000,
    onOpen: 'fail',
  });
});

test.each([
  ['psb', ['3:10: breaker: must be a mapping']],
  ['{ threshold: 0.5 }', ['3:1: breaker.name: is required']],
  ['{ name: "a b" }', ['3:18: breaker.name: must be a name: 1 to 64 letters, digits, dots, dashes or underscores']],
  ['{ name: psb, threshold: 0 }', ['3:34: breaker.threshold: must be at least 0.01']],
  ['{ name: psb, threshold: 1.5 }', ['3:34: breaker.threshold: must be at most 1']],
  ['{ name: psb, minimum: 0 }', ['3:32: breaker.minimum: must be at least 1']],
  ['{ name: psb, window: 2d }', ['3:31: breaker.window: must be between 1s and 1d']],
  ['{ name: psb, cooldown: soon }', ['3:33: breaker.cooldown: must be a duration such as 30s, 10m or 1d']],
  ['{ name: psb, onOpen: skip }', ['3:31: breaker.onOpen: must be one of wait, fail']],
  ['{ name: psb, windw: 1m }', ['3:23: breaker.windw: is not a field; did you mean window?']],
])('%s is refused where it is wrong', (breaker, expected) => {
  expect(read(breaker)).toEqual(expected);
});

describe('templates of a folder', () => {
  let folder: string;
  let templates: TemplateRegistry;
  const write = (name: string, id: string, breaker?: string) =>
    writeFile(
      join(folder, name),
      `id: ${id}\ncommand: [x]\n${breaker === undefined ? '' : `breaker: { name: psb, ${breaker} }\n`}`,
    );
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'errand-breakers-'));
    templates = await loadTemplates(folder);
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  test('share the settings of the first id, each with its own onOpen; another setting is a problem of the other file', async () => {
    await write('1.yaml', 'zebra', 'minimum: 9, onOpen: fail');
    await write('2.yaml', 'ant', 'minimum: 3');
    await write('3.yaml', 'bee', 'minimum: 3, onOpen: fail');
    await write('4.yaml', 'none');
    await templates.reload();
    const policies = breakerPolicies(templates);
    expect(policies.of('zebra')).toMatchObject({ name: 'psb', minimum: 3, onOpen: 'fail' });
    expect(policies.of('ant')).toMatchObject({ minimum: 3, onOpen: 'wait' });
    expect([policies.of('none'), policies.of('gone'), policies.named('none')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(policies.all()).toEqual([policies.named('psb')]);
    expect(policies.named('psb')!.templates).toEqual([
      { id: 'ant', onOpen: 'wait' },
      { id: 'bee', onOpen: 'fail' },
      { id: 'zebra', onOpen: 'fail' },
    ]);
    expect(templates.problems().map(problemText)).toEqual([
      `${join(folder, '1.yaml')}:1:1: breaker: has other settings for psb than ant, which count`,
    ]);
  });

  test('that are edited have other breakers from the next reload on', async () => {
    const policies = breakerPolicies(templates);
    expect(policies.all()).toEqual([]);
    await write('1.yaml', 'ant', 'minimum: 3');
    await templates.reload();
    expect(policies.of('ant')).toMatchObject({ minimum: 3 });
    await write('1.yaml', 'ant');
    await templates.reload();
    expect([policies.of('ant'), policies.all()]).toEqual([undefined, []]);
  });
});
