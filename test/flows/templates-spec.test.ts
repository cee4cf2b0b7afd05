import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ShellSpec } from '../../src/agents/protocol.ts';
import { ArgumentError } from '../../src/flows/args.ts';
import { specFor, toNewTask } from '../../src/flows/spec.ts';
import { readTemplate } from '../../src/flows/template-file.ts';
import type { Template } from '../../src/flows/template-model.ts';
import { sha256 } from '../../src/ids.ts';
import type { ArgValue } from '../../src/tasks/run-words.ts';

/** What a program would be started with. */
function shellSpec(of: Template, args: Record<string, ArgValue>): ShellSpec {
  return specFor(of, args) as ShellSpec;
}

function template(text: string): Template {
  const reading = readTemplate('f', `id: demo\n${text}`);
  if (!('template' in reading)) throw new Error(JSON.stringify(reading.problems));
  return reading.template;
}

describe('what the agent starts', () => {
  const command =
    'args: { a: {}, b: {}, n: { type: number }, c: { type: boolean } }\ncommand: [tool, "--a={{a}}", "{{ b }}", "{{n}}{{c}}"]\n';

  test('one element stays one element, whatever the value contains', () => {
    const value = `x y\t"q" 'q' $(id) \`id\` ; | & > * ~ $HOME\n张三`;
    expect(shellSpec(template(command), { a: value, b: value, n: 1.5, c: true }).argv).toEqual([
      'tool',
      `--a=${value}`,
      value,
      '1.5true',
    ]);
  });

  test('what a value contains is never looked at again', () => {
    expect(shellSpec(template(command), { a: '{{b}}', b: '$& $1 {{a}}' }).argv).toEqual([
      'tool',
      '--a={{b}}',
      '$& $1 {{a}}',
      '',
    ]);
  });

  test('without a value an element that is only its place is left out, another one gets empty text', () => {
    expect(shellSpec(template(command), {}).argv).toEqual(['tool', '--a=', '']);
    expect(shellSpec(template(command), { b: '' }).argv).toEqual(['tool', '--a=', '', '']);
  });

  test('values out of the prototype are no values', () => {
    const odd = template('args: { valueof: {} }\ncommand: [tool, "x{{valueof}}"]\n');
    expect(shellSpec(odd, Object.create({ valueof: 'y' }) as Record<string, string>).argv).toEqual(['tool', 'x']);
  });

  test('environment, grace and exit codes are the template’s', () => {
    const spec = shellSpec(
      template('command: [tool]\nenv: { A: b }\ngrace: 3s\nretry: { on: { exit: { 2: transient } } }\n'),
      {},
    );
    expect(spec).toEqual({ argv: ['tool'], env: { A: 'b' }, graceMs: 3_000, exitClasses: { 2: 'transient' } });
  });

  test('an argument that was fine under an older template does not become an option under this one', () => {
    const edited = template('args: { x: {} }\ncommand: [rm, "{{x}}"]\n');
    expect(() => shellSpec(edited, { x: '-rf' })).toThrow(ArgumentError);
    expect(shellSpec(edited, { gone: '-rf' }).argv).toEqual(['rm']);
  });
});

describe('the task', () => {
  const full = template(`command: [tool]
args: { room: {}, guest: {}, day: { type: date } }
agent: pc-1
labels: { city: sz }
priority: low
timeout: 2m
ttl: 1h
notify: silent
retry: { max: 7 }
onLost: fail
idempotencyKey: "checkin:{{hash guest}}:{{room}}:{{day}}"
`);

  test('comes from the template', () => {
    const args = { room: '302', guest: '张三', day: '2026-03-01' };
    expect(toNewTask(full, args, { source: 'chat', sessionKey: 's' })).toEqual({
      template: 'demo',
      runtime: 'shell',
      pool: 'default',
      agent: 'pc-1',
      labels: { city: 'sz' },
      lane: 'main',
      serialKey: null,
      args,
      idempotencyKey: `checkin:${sha256('张三').slice(0, 16)}:302:2026-03-01`,
      sessionKey: 's',
      flowId: null,
      source: 'chat',
      label: null,
      parentTaskId: null,
      notifyPolicy: 'silent',
      priority: 'low',
      runAt: null,
      ttlMs: 3_600_000,
      timeoutMs: 120_000,
      retry: { max: 7, baseMs: 1_000, factor: 2, capMs: 300_000, jitter: 0.5 },
      onLost: 'fail',
    });
  });

  test('is changed by what the asker says', () => {
    const options = {
      source: 'api',
      pool: 'night',
      idempotencyKey: 'mine',
      priority: 'high',
      runAt: 5,
      ttlMs: 6,
      timeoutMs: 7,
      notifyPolicy: 'done_only',
      label: 'now',
      flowId: 8,
      parentTaskId: 9,
    } as const;
    const { source, pool, ...same } = options;
    expect(toNewTask(full, {}, options)).toMatchObject({ source, pool, agent: null, ...same });
    expect(toNewTask(full, {}, { source: 'api', agent: 'pc-2' }).agent).toBe('pc-2');
  });

  test('has no key where the template has none, and no policy of its own where it has the default one', () => {
    const task = toNewTask(template('command: [tool]\n'), {}, { source: 'cron' });
    expect([task.idempotencyKey, task.retry, task.notifyPolicy, task.sessionKey]).toEqual([null, null, null, null]);
    const ruled = template('command: [tool]\nretry: { on: { http: { 404: transient } } }\n');
    expect(toNewTask(ruled, {}, { source: 'cron' }).retry).toMatchObject({
      max: 3,
      on: { http: { 404: 'transient' }, error: {} },
    });
  });

  test('a key too long for an index is replaced by its digest, different for different keys', () => {
    const long = template('command: [tool]\nargs: { x: {} }\nidempotencyKey: "k:{{x}}"\n');
    const key = (x: string) => toNewTask(long, { x }, { source: 'api' }).idempotencyKey;
    expect(key('x'.repeat(498))).toBe(`k:${'x'.repeat(498)}`);
    expect(key('x'.repeat(499))).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(key('x'.repeat(499))).not.toBe(key(`y${'x'.repeat(498)}`));
  });

  test('a value that looks like two parts of a key stays one', () => {
    const two = template('command: [tool]\nargs: { x: {}, y: {} }\nidempotencyKey: "room:{{x}}:{{y}}:{{hash x}}"\n');
    const key = (x: string, y: string) => toNewTask(two, { x, y }, { source: 'api' }).idempotencyKey;
    expect(key('1:2', '3%')).toBe(`room:1%3A2:3%25:${sha256('1:2').slice(0, 16)}`);
    const plain = template('command: [tool]\nargs: { x: {}, y: {} }\nidempotencyKey: "k:{{x}}:{{y}}"\n');
    const keyed = (args: Record<string, string>) => toNewTask(plain, args, { source: 'api' }).idempotencyKey;
    const part = fc.stringMatching(/^[ab:%3A25]{0,8}$/);
    fc.assert(
      fc.property(part, part, part, part, (x, y, x2, y2) => {
        expect(keyed({ x, y }) === keyed({ x: x2, y: y2 })).toBe(x === x2 && y === y2);
      }),
      { numRuns: 2_000 },
    );
    expect(keyed({ x: 'a:b', y: 'c' })).not.toBe(keyed({ x: 'a', y: 'b:c' }));
  });

  test('an argument without a value is empty in the key', () => {
    const key = toNewTask(full, { room: '302' }, { source: 'api' }).idempotencyKey;
    expect(key).toBe(`checkin:${sha256('').slice(0, 16)}:302:`);
  });
});
