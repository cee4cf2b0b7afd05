import { mkdir, mkdtemp, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readTemplate } from '../../src/flows/template-file.ts';
import { loadTemplates, problemText, type Template } from '../../src/flows/templates.ts';
import type { Service } from '../../src/service.ts';
import { until } from '../support/until.ts';

const MINIMAL = 'id: tiny\ncommand: [echo, hi]\n';

/** The problems of a file without its name: `2:1: comand: is not a field; …`. */
function problems(text: string): string[] {
  const reading = readTemplate('f', text);
  return 'template' in reading ? [] : reading.problems.map((problem) => problemText(problem).slice(2));
}

function template(text: string): Template {
  const reading = readTemplate('f', text);
  if (!('template' in reading)) throw new Error(reading.problems.map(problemText).join('\n'));
  return reading.template;
}

describe('a good file', () => {
  test('gets every default', () => {
    expect({ ...template(MINIMAL), args: {} }).toEqual({
      id: 'tiny',
      title: { en: 'tiny', zh: 'tiny' },
      triggers: [],
      args: {},
      runtime: 'shell',
      command: ['echo', 'hi'],
      request: null,
      quietAfterMs: 600_000,
      env: {},
      secrets: [],
      pool: 'default',
      agent: null,
      labels: null,
      turn: 'background',
      priority: 'normal',
      timeoutMs: 600_000,
      graceMs: 10_000,
      ttlMs: null,
      runLimits: { outputBytes: 1_048_576 },
      retry: { max: 3, baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0.5 },
      onLost: 'retry',
      exitClasses: {},
      breaker: null,
      lane: null,
      limits: { concurrency: null, rate: null },
      serialKey: null,
      idempotencyKey: null,
      notify: null,
      summary: 'plain',
      roles: [],
      digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
      runDigest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
    });
  });

  test('keeps what it says', () => {
    const found = template(`${MINIMAL}title: { zh: 小 }
env: { MODE: fast }
secrets: [PSB_TOKEN]
labels: { city: sz }
priority: high
timeout: 90s
grace: 1m
ttl: 1d
limits: { output: 64KiB }
retry:
  { max: 5, base: 2s, factor: 3, cap: 1m, jitter: 0, on: {
    exit: { 2: permanent, 75: rate_limited }, http: { 404: transient, 5xx: permanent }, error: { ENOTFOUND: transient } } }
onLost: ask
lane: printers
rate: { per: 1m, max: 30 }
concurrency: 5
serialKey: "till"
notify: silent
roles: [operator, admin]
`);
    expect(found).toMatchObject({
      title: { en: '小', zh: '小' },
      env: { MODE: 'fast' },
      secrets: ['PSB_TOKEN'],
      labels: { city: 'sz' },
      priority: 'high',
      timeoutMs: 90_000,
      graceMs: 60_000,
      ttlMs: 86_400_000,
      runLimits: { outputBytes: 65_536 },
      retry: {
        max: 5,
        baseMs: 2_000,
        factor: 3,
        capMs: 60_000,
        jitter: 0,
        on: { http: { 404: 'transient', '5xx': 'permanent' }, error: { ENOTFOUND: 'transient' } },
      },
      onLost: 'ask',
      lane: 'printers',
      limits: { concurrency: 5, rate: { perMs: 60_000, max: 30 } },
      serialKey: 'till',
      exitClasses: { 2: 'permanent', 75: 'rate_limited' },
      notify: 'silent',
      roles: ['operator', 'admin'],
    });
  });

  test('cannot be changed by whoever holds it', () => {
    const found = template(`${MINIMAL}args: { name: { values: [a], type: enum } }\n`);
    expect(() => (found.command as string[]).push('x')).toThrow(TypeError);
    expect(() => Object.assign(found.args.name!, { required: true })).toThrow(TypeError);
    expect(() => (found.args.name!.values as string[]).push('x')).toThrow(TypeError);
  });

  test('has the same digest whatever its comments and order, another one when its content changes', () => {
    const { digest } = template(MINIMAL);
    expect(template('# hi\ncommand:\n  - echo\n  - "hi"\nid: tiny\n').digest).toBe(digest);
    expect(template('id: tiny\ncommand: [echo, ho]\n').digest).not.toBe(digest);
  });

  test('may use anchors', () => {
    expect(template('id: t\ncommand: [echo, &a hi, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n').command).toHaveLength(11);
  });
});

describe('a bad file names line, column and what is right', () => {
  const broken: [string, string, string[]][] = [
    [
      'a pattern',
      `${MINIMAL}args:\n  room: { pattern: "(" }\n`,
      ['4:20: args.room.pattern: is not a valid regular expression'],
    ],
    ['a field nobody knows', `${MINIMAL}comand: [x]\n`, ['3:1: comand: is not a field; did you mean command?']],
    [
      'two of them',
      `${MINIMAL}retry: { maxx: 1, basis: 1 }\n`,
      ['3:10: retry.maxx: is not a field; did you mean max?', '3:19: retry.basis: is not a field; did you mean base?'],
    ],
    ['a missing field', 'id: x\ntitle: y\n', ['1:1: command: is required']],
    ['an id', 'id: Bad_Id\ncommand: [x]\n', ['1:5: id: must be 1 to 48 lower-case letters, digits and dashes']],
    [
      'a long id',
      `id: ${'x'.repeat(49)}\ncommand: [x]\n`,
      ['1:5: id: must be 1 to 48 lower-case letters, digits and dashes'],
    ],
    ['a numeric id', 'id: 7\ncommand: [x]\n', ['1:5: id: must be text']],
    ['an empty field', 'id: x\ncommand:\npool: a\n', ['2:9: command: has no value']],
    ['a wrong type', 'id: x\ncommand: echo hi\n', ['2:10: command: must be a list']],
    ['an element that is no text', 'id: x\ncommand:\n  - echo\n  - 3\n', ['4:5: command[1]: must be text']],
    ['a duration', `${MINIMAL}timeout: 10 minutes\n`, ['3:10: timeout: must be a duration such as 30s, 10m or 1d']],
    ['a number as duration', `${MINIMAL}timeout: 600\n`, ['3:10: timeout: must be a duration such as 30s, 10m or 1d']],
    ['a duration out of range', `${MINIMAL}timeout: 8d\n`, ['3:10: timeout: must be between 1s and 7d']],
    ['a size', `${MINIMAL}limits: { output: 1MB }\n`, ['3:19: limits.output: must be a size such as 64KiB or 1MiB']],
    ['a choice', `${MINIMAL}priority: urgent\n`, ['3:11: priority: must be one of high, normal, low']],
    ['a role', `${MINIMAL}roles: [operater]\n`, ['3:9: roles[0]: must be one of viewer, operator, approver, admin']],
    ['a list that is no template', '- a\n- b\n', ['1:1: must be a mapping']],
    [
      'syntax',
      'id: x\ncommand: [echo\npool: a\n',
      ['3:1: is not valid YAML: Flow sequence in block collection must be sufficiently indented and end with a ]'],
    ],
    ['a key that is there twice', `${MINIMAL}id: other\n`, ['3:1: id: is there twice']],
    [
      'a tag',
      'id: !!binary aGk=\ncommand: [x]\n',
      ['1:5: is not valid YAML: Unresolved tag: tag:yaml.org,2002:binary'],
    ],
    ['an alias to nothing', 'id: x\ncommand: [*gone]\n', ['2:11: is an alias of gone, which is no anchor above it']],
    ['two documents', `${MINIMAL}---\n${MINIMAL}`, ['3:1: holds more than one document; a file is one template']],
    ['nothing at all', '# later\n', ['1:1: is empty']],
    [
      'an argument name',
      `${MINIMAL}args:\n  Room: {}\n`,
      ['4:3: args.Room: must be 1 to 32 lower-case letters, digits and underscores'],
    ],
    [
      'a default that breaks the rules',
      `${MINIMAL}args:\n  n: { type: integer, max: 5, default: 9 }\n`,
      ['4:40: args.n.default: is not acceptable: n must be at most 5'],
    ],
    [
      'a number in quotes',
      `${MINIMAL}args: { n: { type: integer, default: "5" } }\n`,
      ['3:38: args.n.default: must be a number, without quotes'],
    ],
    [
      'a useless default',
      `${MINIMAL}args: { n: { required: true, default: x } }\n`,
      ['3:39: args.n.default: is never used, as the argument is required'],
    ],
    [
      'limits that exclude everything',
      `${MINIMAL}args: { n: { type: number, min: 5, max: 4 } }\n`,
      ['3:41: args.n.max: is less than min'],
    ],
    [
      'a length that is none',
      `${MINIMAL}args: { n: { max: 1.5 } }\n`,
      ['3:19: args.n.max: must be a number of characters, 0 to 20000'],
    ],
    [
      'a day that is none',
      `${MINIMAL}args: { d: { type: date, min: 2026-02-30 } }\n`,
      ['3:31: args.d.min: must be a day such as 2026-03-01'],
    ],
    [
      'a choice without choices',
      `${MINIMAL}args: { c: { type: enum } }\n`,
      ['3:12: args.c: needs values: the list of what is allowed'],
    ],
    [
      'a trigger without its own word',
      `${MINIMAL}args: { a: {} }\ntriggers: ["{a} b"]\n`,
      ['4:12: triggers[0]: must begin with a word that is no place, or every message would match'],
    ],
    [
      'a trigger that glues words to places',
      `${MINIMAL}args: { a: {} }\ntriggers: ["go {a}!"]\n`,
      ['4:12: triggers[0]: has {a}!: a place is a word of its own, such as {name}'],
    ],
    [
      'a trigger with a place twice',
      `${MINIMAL}args: { a: {} }\ntriggers: ["go {a} {a}"]\n`,
      ['4:12: triggers[0]: has {a} twice'],
    ],
    [
      'a trigger for an argument nobody knows',
      `${MINIMAL}triggers: ["go {b}"]\n`,
      ['3:12: triggers[0]: has {b}, which is no argument of this template'],
    ],
    [
      'a trigger that cannot fill the arguments',
      `${MINIMAL}args: { a: { required: true } }\ntriggers: [go]\n`,
      ['4:12: triggers[0]: can never start anything without {a}, which is required'],
    ],
    [
      'a trigger that is a command',
      `${MINIMAL}triggers: ["/Status now"]\n`,
      ['3:12: triggers[0]: begins with /status, which is a command of its own'],
    ],
    [
      'a variable of ours',
      `${MINIMAL}env: { ERRAND_OUTPUT: x, Path: y }\n`,
      [
        '3:8: env.ERRAND_OUTPUT: is a name that Errand sets or reads itself',
        '3:26: env.Path: must be capital letters, digits and underscores',
      ],
    ],
    [
      'an argument in a variable',
      `${MINIMAL}env: { A: "{{x}}" }\n`,
      ['3:11: env.A: is fixed text; arguments are in ERRAND_ARG_<NAME>'],
    ],
    [
      'pool beside agent',
      `${MINIMAL}agent: pc-1\npool: a\n`,
      ['4:7: pool: has no effect beside agent; leave one of them out'],
    ],
    [
      'a label that would read as two',
      `${MINIMAL}labels: { city: "a&b=c" }\n`,
      ['3:17: labels.city: must be 1 to 64 letters, digits, dots or dashes'],
    ],
    [
      'exit codes',
      `${MINIMAL}retry: { on: { exit: { 0: transient, 78: permanent, 3: maybe } } }\n`,
      ['3:56: retry.on.exit.3: must be one of transient, rate_limited, permanent'],
    ],
    [
      'exit codes with a meaning of their own',
      `${MINIMAL}retry: { on: { exit: { 0: transient, 78: permanent } } }\n`,
      [
        '3:24: retry.on.exit.0: must be an exit code, 1 to 255',
        '3:38: retry.on.exit.78: means that a person must act, in every template',
      ],
    ],
    [
      'statuses that are no failures',
      `${MINIMAL}retry: { on: { http: { 200: transient, 6xx: transient, 429: rate_limited } } }\n`,
      [
        '3:24: retry.on.http.200: must be the HTTP status of a failure, 300 to 599, or 3xx, 4xx, 5xx',
        '3:40: retry.on.http.6xx: must be the HTTP status of a failure, 300 to 599, or 3xx, 4xx, 5xx',
      ],
    ],
    [
      'names that no error has',
      `${MINIMAL}retry:\n  on:\n    error:\n      "a b": transient\n      ECONNRESET: maybe\n`,
      ['7:19: retry.on.error.ECONNRESET: must be one of transient, rate_limited, permanent'],
    ],
    [
      'names that no error can have',
      `${MINIMAL}retry:\n  on:\n    error:\n      ECONNRESET: transient\n      "a b": transient\n`,
      ['7:7: retry.on.error.a b: must be the name of an error such as ECONNRESET'],
    ],
    ['what a lost lease may not do', `${MINIMAL}onLost: hope\n`, ['3:9: onLost: must be one of retry, ask, fail']],
    [
      'an unknown place in the key',
      `${MINIMAL}idempotencyKey: "a:{{hash gust}}:{{now()}}"\n`,
      ['3:17: idempotencyKey: has {{now()}}, which is no place for an argument; write {{name}}'],
    ],
    [
      'a key of what is no argument',
      `${MINIMAL}idempotencyKey: "a:{{now}}"\n`,
      ['3:17: idempotencyKey: has {{now}}, which is no argument of this template'],
    ],
  ];
  test.each(broken)('%s', (_name, text, expected) => {
    expect(problems(text)).toEqual(expected);
  });

  test('everything that is wrong is told at once', () => {
    expect(problems('id: X\ncommand: []\npriority: no\ntimeout: x\n')).toHaveLength(4);
  });
});

describe('what a later version brings is refused, never ignored', () => {
  test.each(['approval: { required: true }', 'hook: { secret: X }', 'runtime: acp', 'shell: true', 'turn: foreground'])(
    '%s',
    (line) => {
      const found = problems(`${MINIMAL}${line}\n`);
      expect(found).toHaveLength(1);
      expect(found[0]).toMatch(/^3:\d+: .*is not available yet/);
    },
  );

  test.each(['lane: main', 'onLost: retry', 'runtime: shell', 'shell: false', 'turn: background'])(
    '%s is what there is',
    (line) => {
      expect(problems(`${MINIMAL}${line}\n`)).toEqual([]);
    },
  );
});

describe('chat text cannot become more than text', () => {
  const withArg = (command: string, arg = '{}') => `id: t\nargs: { x: ${arg} }\ncommand: ${command}\n`;
  test.each([
    ['the program', '["{{x}}"]', 'must be fixed: no argument may choose the program'],
    ['part of the program', '["run-{{x}}"]', 'must be fixed: no argument may choose the program'],
    ['code of a shell', '[sh, -c, "echo {{x}}"]', 'is read as code'],
    ['code of a shell behind other programs', '[timeout, "5", /bin/bash, -lc, "echo {{x}}"]', 'is read as code'],
    ['code of node', '[node, -e, "{{x}}"]', 'is read as code'],
    ['code of python', '[/usr/bin/python3.11, -u, -c, "print({{x}})"]', 'is read as code'],
    ['which option it is', '[ls, "-{{x}}"]', 'lets an argument choose an option'],
    ['which long option it is', '[git, log, "--{{x}}"]', 'lets an argument choose an option'],
    ['the rest of an option', '[git, log, "--no-{{x}}=1"]', 'lets an argument choose an option'],
    ['an argument nobody declared', '[echo, "{{y}}"]', 'has {{y}}, which is no argument of this template'],
    ['a place that is none', '[echo, "{{x y}}"]', 'has {{x y}}, which is no place for an argument'],
    ['an open place', '[echo, "{{x"]', 'has {{x, which is no place for an argument'],
    [
      'a hash outside the key',
      '[echo, "{{hash x}}"]',
      'has {{hash x}}, which only idempotencyKey and serialKey may use',
    ],
  ])('%s', (_name, command, message) => {
    expect(problems(withArg(command)).join('\n')).toContain(message);
  });

  test.each([
    '[node, -e, "console.log(process.argv[1])", --, "{{x}}"]',
    '[sh, -c, "echo $1", sh, "{{x}}"]',
    '[python3, tool.py, -c, "{{x}}"]',
    '[grep, -e, "{{x}}"]',
    '[tool, "--room={{ x }}", "-n{{x}}"]',
  ])('%s is fine', (command) => {
    expect(problems(withArg(command))).toEqual([]);
  });

  test('a value that begins an element must not begin with a dash', () => {
    const noDash = (command: string, arg?: string) => template(withArg(command, arg)).args.x!.noDash;
    expect(noDash('[tool, "{{x}}"]')).toBe(true);
    expect(noDash('[tool, "{{x}}.txt"]')).toBe(true);
    expect(noDash('[tool, --, "{{x}}"]')).toBe(true);
    expect(noDash('[tool, "{{x}}"]', '{ type: number }')).toBe(true);
    expect(noDash('[tool, "--room={{x}}"]')).toBe(false);
    expect(noDash('[tool]')).toBe(false);
    expect(noDash('[tool, "{{x}}"]', '{ type: enum, values: [a] }')).toBe(false);
    expect(noDash('[tool, --, "{{x}}"]', '{ allowDash: true }')).toBe(false);
  });

  test('nor one behind a place that may be empty', () => {
    const found = template('id: t\nargs: { x: {}, y: {} }\ncommand: [tool, "{{x}}{{y}}"]\n');
    expect(found.args.y!.noDash).toBe(true);
  });

  test('allowDash is refused where a dash would make an option', () => {
    expect(problems(withArg('[tool, "{{x}}"]', '{ allowDash: true }'))[0]).toMatch(
      /^2:\d+: args.x.allowDash: is only safe where/,
    );
    expect(problems(withArg('[tool, "{{x}}", --, "{{x}}"]', '{ allowDash: true }'))).toHaveLength(1);
  });
});

describe('hostile YAML', () => {
  test('an alias bomb is refused at once', () => {
    const lines = ['a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]'];
    for (const [index, name] of [...'bcdefgh'].entries()) {
      lines.push(`${name}: &${name} [${Array(9).fill(`*${'abcdefg'[index]}`).join(',')}]`);
    }
    const heap = process.memoryUsage().heapUsed;
    expect(problems(lines.join('\n'))).toEqual(['1:1: repeats its anchors more than 100 times']);
    expect(process.memoryUsage().heapUsed - heap).toBeLessThan(50 * 1024 ** 2);
  });

  test.each([
    ['brackets', '['.repeat(250_000)],
    ['braces', 'a: '.concat('{a: '.repeat(60_000))],
    ['dashes', `${'- '.repeat(120_000)}a`],
    ['question marks', `${'? '.repeat(120_000)}a`],
  ])('%s without end are refused before they are parsed', (_name, text) => {
    expect(problems(text)).toEqual(['1:1: is nested more than 64 levels deep']);
  });

  test('a value that contains itself is refused', () => {
    expect(problems('id: t\ncommand: &a [x, *a]\n')).toEqual(['2:17: command[1]: must be text']);
    expect(problems(`${MINIMAL}args: &b { x: *b }\n`).length).toBeGreaterThan(0);
  });

  test('a key for every word of a book is refused by name, and the list stays short', () => {
    const text = Array.from({ length: 20_000 }, (_, index) => `k${index}: 1`).join('\n');
    expect(problems(`${MINIMAL}${text}`)).toHaveLength(50);
  });

  test.each([
    ['__proto__: { runtime: http }', '3:1: __proto__: is not allowed as a name'],
    ['constructor: { prototype: { polluted: 1 } }', '3:1: constructor: is not allowed as a name'],
    ['args: { __proto__: { required: true } }', '3:9: __proto__: is not allowed as a name'],
    ['labels: { a: b, __proto__: { c: d } }', '3:17: __proto__: is not allowed as a name'],
    ['retry: { on: { exit: { constructor: transient } } }', '3:24: constructor: is not allowed as a name'],
  ])('%s', (line, problem) => {
    expect(problems(`${MINIMAL}${line}\n`)[0]).toBe(problem);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  test.each(['toString', 'hasOwnProperty', 'valueOf'])('%s is a name nobody declared', (name) => {
    expect(problems(`${MINIMAL}${name}: 1\n`)[0]).toMatch(new RegExp(`^3:1: ${name}: is not a field`));
    const found = template('id: t\nargs: { a: {} }\ncommand: [x]\n');
    expect(found.args[name]).toBeUndefined();
  });

  test('the directive of an older YAML does not change what words mean', () => {
    expect(template('%YAML 1.1\n---\nid: t\ncommand: [echo, yes, on]\n').command).toEqual(['echo', 'yes', 'on']);
  });
});

describe('a folder of templates', () => {
  let dir: string;
  const write = (name: string, text: string | Uint8Array) => writeFile(join(dir, name), text);
  const tiny = (id: string, word = 'hi') => `id: ${id}\ncommand: [echo, ${word}]\n`;
  const load = async () => {
    const registry = await loadTemplates(dir);
    const texts = () => registry.problems().map((problem) => problemText(problem).replaceAll(`${dir}/`, ''));
    return { registry, texts, ids: () => registry.list().map(({ id }) => id) };
  };

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'errand-templates-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  test('holds the good files and reports the bad ones', async () => {
    await write('b.yaml', tiny('zeta'));
    await write('a.yml', tiny('alpha'));
    await write('bad.yaml', 'id: bad\ncommand: 3\n');
    await write('.hidden.yaml', 'x');
    await write('notes.txt', 'x');
    await mkdir(join(dir, 'folder.yaml'));
    const { registry, ids, texts } = await load();
    expect(ids()).toEqual(['alpha', 'zeta']);
    expect(registry.get('zeta')?.command).toEqual(['echo', 'hi']);
    expect(registry.get('bad')).toBeUndefined();
    expect(registry.get('constructor')).toBeUndefined();
    expect(texts()).toEqual(['bad.yaml:2:10: command: must be a list']);
  });

  test('a missing folder is a problem, and its templates appear when it does', async () => {
    await rm(dir, { recursive: true });
    const { registry, ids, texts } = await load();
    expect(texts()).toEqual([`${dir}:1:1: is the templates folder and does not exist`]);
    await mkdir(dir);
    await write('a.yaml', tiny('a'));
    await registry.reload();
    expect([ids(), texts()]).toEqual([['a'], []]);
  });

  test('an id belongs to the first file, the second is told so', async () => {
    await write('1.yaml', tiny('same', 'first'));
    await write('2.yaml', tiny('same', 'second'));
    const { registry, ids, texts } = await load();
    expect(registry.get('same')?.command[1]).toBe('first');
    expect(ids()).toEqual(['same']);
    expect(texts()).toEqual(['2.yaml:1:1: id: is already the id of 1.yaml']);
  });

  test('a file that becomes bad keeps its last good version until it is good again', async () => {
    await write('a.yaml', tiny('a', 'one'));
    const { registry, texts } = await load();
    const word = () => registry.get('a')?.command[1];
    await write('a.yaml', 'id: a\ncommand: [echo\n');
    await registry.reload();
    expect([word(), texts().length]).toEqual(['one', 1]);
    await registry.reload();
    expect([word(), texts().length]).toEqual(['one', 1]);
    await write('a.yaml', tiny('a', 'two'));
    await registry.reload();
    expect([word(), texts()]).toEqual(['two', []]);
  });

  test('a template goes with its file, also when the file was bad', async () => {
    await write('a.yaml', tiny('a'));
    await write('b.yaml', tiny('b'));
    const { registry, ids } = await load();
    await write('b.yaml', '');
    await registry.reload();
    expect(ids()).toEqual(['a', 'b']);
    await rm(join(dir, 'a.yaml'));
    await rm(join(dir, 'b.yaml'));
    await registry.reload();
    expect(ids()).toEqual([]);
  });

  test('an old version never keeps a new file out', async () => {
    await write('1.yaml', tiny('a', 'old'));
    const { registry, texts } = await load();
    await write('1.yaml', 'broken: [');
    await write('2.yaml', tiny('a', 'new'));
    await registry.reload();
    expect(registry.get('a')?.command[1]).toBe('new');
    expect(texts().every((text) => text.startsWith('1.yaml:'))).toBe(true);
  });

  test('what is too large, not text or not there is refused', async () => {
    await write('large.yaml', `${MINIMAL}#${'x'.repeat(256 * 1024)}\n`);
    await write('latin.yaml', Buffer.from([0x69, 0x64, 0x3a, 0x20, 0xe9, 0x0a]));
    await symlink(join(dir, 'nowhere'), join(dir, 'link.yaml'));
    const { texts } = await load();
    expect(texts()).toEqual([
      'large.yaml:1:1: is larger than 256 KiB',
      'latin.yaml:1:1: is not UTF-8 text',
      'link.yaml:1:1: cannot be read (ENOENT)',
    ]);
  });

  describe('under watch', () => {
    let watch: Service | undefined;
    afterEach(() => watch?.stop());

    test('takes up edits, new files, replaced files and removals without a restart', async () => {
      await write('a.yaml', tiny('a', 'one'));
      const { registry, ids } = await load();
      watch = registry.watch({ pollMs: 5 });
      await watch.start();
      await write('a.yaml', tiny('a', 'two'));
      await until(() => registry.get('a')?.command[1] === 'two', 'the edit');
      await write('b.yaml', tiny('b'));
      await until(() => ids().length === 2, 'the new file');
      await write('draft', tiny('b', 'six'));
      await utimes(join(dir, 'draft'), 1, 1);
      await rename(join(dir, 'draft'), join(dir, 'b.yaml'));
      await until(() => registry.get('b')?.command[1] === 'six', 'the replaced file');
      await rm(join(dir, 'a.yaml'));
      await until(() => ids().length === 1, 'the removal');
    });

    test('ends when told to, and may be told twice', async () => {
      const { registry } = await load();
      watch = registry.watch({ pollMs: 60_000 });
      await watch.start();
      await watch.stop();
      await watch.stop();
    });
  });
});
