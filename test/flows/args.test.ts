import { describe, expect, test } from 'vitest';
import { AppError } from '../../src/errors.ts';
import { ArgumentError, checkArgs } from '../../src/flows/args.ts';
import { readTemplate } from '../../src/flows/template-file.ts';

const NOON = { now: Date.UTC(2026, 2, 1, 12), timeZone: 'UTC' };

function templateWith(args: string, command = '[tool]') {
  const reading = readTemplate('f', `id: demo\nargs:\n${args}\ncommand: ${command}\n`);
  if (!('template' in reading)) throw new Error(JSON.stringify(reading.problems));
  return reading.template;
}

/** What becomes of one value of an argument `x` declared like this. */
function accept(spec: string, value: unknown, context = NOON) {
  return checkArgs(templateWith(`  x: ${spec}`), { x: value }, context).x;
}

function refusal(run: () => unknown): ArgumentError {
  try {
    run();
  } catch (error) {
    if (error instanceof ArgumentError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

describe('values by type', () => {
  test.each<[string, unknown, unknown]>([
    ['{ }', 'any text', 'any text'],
    ['{ type: string }', '  kept as it is  ', '  kept as it is  '],
    ['{ type: string, max: 2 }', '𠮷𠮷', '𠮷𠮷'],
    ['{ type: number }', '1.5', 1.5],
    ['{ type: number }', -2.5, -2.5],
    ['{ type: number }', '-0', 0],
    ['{ type: integer }', '３０２', 302],
    ['{ type: integer }', '007', 7],
    ['{ type: integer, min: 1, max: 3 }', '3', 3],
    ['{ type: boolean }', 'Yes', true],
    ['{ type: boolean }', false, false],
    ['{ type: boolean }', '否', false],
    ['{ type: date }', '2028-02-29', '2028-02-29'],
    ['{ type: date }', 'TODAY', '2026-03-01'],
    ['{ type: date }', '今天', '2026-03-01'],
    ['{ type: enum, values: [Red, blue] }', 'red', 'Red'],
    ['{ type: enum, values: [Red, red] }', 'red', 'red'],
    ['{ pattern: "[0-9]{3,4}" }', '302', '302'],
  ])('%s accepts %j', (spec, value, kept) => {
    expect(accept(spec, value)).toBe(kept);
  });

  test.each<[string, unknown, string]>([
    ['{ }', 302, 'x must be text'],
    ['{ }', null, 'x must be text'],
    ['{ }', ['a'], 'x must be text'],
    ['{ }', 'a\0b', 'x contains a NUL character'],
    ['{ }', 'a\ud800b', 'x contains half a character'],
    ['{ }', 'x'.repeat(2001), 'x must have at most 2000 characters'],
    ['{ }', 'x'.repeat(1_000_000), 'x must have at most 2000 characters'],
    ['{ max: 2 }', '𠮷𠮷𠮷', 'x must have at most 2 characters'],
    ['{ min: 2 }', '𠮷', 'x must have at least 2 characters'],
    ['{ pattern: "[0-9]{3,4}" }', '12345', 'x does not have the right form ([0-9]{3,4})'],
    ['{ pattern: "a|b" }', 'ax', 'x does not have the right form (a|b)'],
    ['{ pattern: "^[a-z]+$" }', 'abc\n', 'x does not have the right form (^[a-z]+$)'],
    ['{ type: number }', 'NaN', 'x must be a number'],
    ['{ type: number }', Number.NaN, 'x must be a number'],
    ['{ type: number }', '1e9', 'x must be a number'],
    ['{ type: number }', '0x10', 'x must be a number'],
    ['{ type: number }', true, 'x must be a number'],
    ['{ type: integer }', '1.5', 'x must be a whole number'],
    ['{ type: integer }', 2 ** 53, 'x must be a whole number'],
    ['{ type: integer }', '99999999999999999999', 'x must be a whole number'],
    ['{ type: integer, min: 1 }', '0', 'x must be at least 1'],
    ['{ type: integer, max: 9 }', 10, 'x must be at most 9'],
    ['{ type: boolean }', 'maybe', 'x must be true or false'],
    ['{ type: boolean }', 1, 'x must be true or false'],
    ['{ type: date }', '2026-02-29', 'x must be a day such as 2026-03-01, or today'],
    ['{ type: date }', '01.03.2026', 'x must be a day such as 2026-03-01, or today'],
    ['{ type: date }', 20260301, 'x must be a day such as 2026-03-01, or today'],
    ['{ type: date, min: 2026-03-02 }', 'today', 'x must be at least 2026-03-02'],
    ['{ type: date, max: 2026-02-28 }', '2026-03-01', 'x must be at most 2026-02-28'],
    ['{ type: enum, values: [a, b] }', 'c', 'x must be one of a, b'],
    ['{ type: enum, values: [a, b] }', 1, 'x must be one of a, b'],
    ['{ type: enum, values: [a, b] }', 'toString', 'x must be one of a, b'],
  ])('%s refuses %j', (spec, value, message) => {
    const error = refusal(() => accept(spec, value));
    expect(error).toBeInstanceOf(AppError);
    expect([error.code, error.field, error.message]).toEqual(['invalid_request', 'args.x', message]);
    expect(error.texts.zh).toMatch(/\p{Script=Han}/u);
  });
});

describe('what was not given', () => {
  test('gets its default, or stays out, or is asked for', () => {
    const template = templateWith('  a: { default: one }\n  b: {}\n  c: { required: true }');
    expect(checkArgs(template, { c: 'x' }, NOON)).toEqual({ a: 'one', c: 'x' });
    expect(checkArgs(template, { a: '', b: '', c: 'x' }, NOON)).toEqual({ a: 'one', c: 'x' });
    for (const given of [{}, { c: '' }, { c: undefined }]) {
      const error = refusal(() => checkArgs(template, given, NOON));
      expect([error.field, error.message, error.texts.zh]).toEqual(['args.c', 'c is required', '缺少参数 c']);
    }
  });

  test('today is the day in the zone, whatever the zone of the machine', () => {
    const spec = '{ type: date, default: today }';
    const late = Date.UTC(2026, 11, 31, 20);
    const day = (timeZone: string) => checkArgs(templateWith(`  x: ${spec}`), {}, { now: late, timeZone }).x;
    expect([day('UTC'), day('Asia/Shanghai'), day('Pacific/Pago_Pago')]).toEqual([
      '2026-12-31',
      '2027-01-01',
      '2026-12-31',
    ]);
  });

  test('false and 0 are values', () => {
    const template = templateWith('  a: { type: boolean, default: true }\n  b: { type: integer, default: 5 }');
    expect(checkArgs(template, { a: false, b: 0 }, NOON)).toEqual({ a: false, b: 0 });
  });
});

describe('names nobody declared', () => {
  const template = templateWith('  room: { required: true }\n  guest: {}');
  test.each([
    ['rom', 'demo has no argument rom; did you mean room?'],
    ['colour', 'demo has no argument colour; it takes room, guest'],
    ['toString', 'demo has no argument toString; it takes room, guest'],
    ['hasOwnProperty', 'demo has no argument hasOwnProperty; it takes room, guest'],
    ['constructor', 'demo has no argument constructor; it takes room, guest'],
    ['__proto__', 'demo has no argument __proto__; it takes room, guest'],
  ])('%s is refused', (name, message) => {
    const given = JSON.parse(`{"room":"302",${JSON.stringify(name)}:{"polluted":true}}`) as Record<string, unknown>;
    const error = refusal(() => checkArgs(template, given, NOON));
    expect([error.field, error.message]).toEqual([`args.${name}`, message]);
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  test('inherited values do not count as given', () => {
    const given = Object.create({ room: '302' }) as Record<string, unknown>;
    expect(refusal(() => checkArgs(template, given, NOON)).message).toBe('room is required');
  });

  test('a name of a megabyte is refused without being repeated or compared', () => {
    const error = refusal(() => checkArgs(template, { ['r'.repeat(1_000_000)]: 'x' }, NOON));
    expect(error.message.length).toBeLessThan(200);
  });

  test.each([null, 'x', ['room'], 7])('%j is no set of arguments', (given) => {
    const error = refusal(() => checkArgs(template, given as never, NOON));
    expect([error.code, error.field]).toEqual(['invalid_request', 'args']);
  });
});

describe('a value that could be taken for an option', () => {
  test('is refused where it would begin an element', () => {
    const template = templateWith('  x: {}\n  n: { type: number }', '[tool, "{{x}}", "{{n}}"]');
    expect(refusal(() => checkArgs(template, { x: '-rf' }, NOON)).message).toMatch(/must not begin with a dash/);
    expect(refusal(() => checkArgs(template, { n: '-9' }, NOON)).field).toBe('args.n');
    expect(checkArgs(template, { x: 'a-b', n: 9 }, NOON)).toEqual({ x: 'a-b', n: 9 });
  });

  test('is text like any other behind an option or after --', () => {
    expect(checkArgs(templateWith('  x: {}', '[tool, "--name={{x}}"]'), { x: '-rf' }, NOON)).toEqual({ x: '-rf' });
    const declared = templateWith('  x: { allowDash: true }', '[tool, --, "{{x}}"]');
    expect(checkArgs(declared, { x: '-rf' }, NOON)).toEqual({ x: '-rf' });
  });
});

test('a message never repeats the value', () => {
  const secret = 'Zhang-San-4711';
  for (const spec of [
    '{ max: 3 }',
    '{ pattern: "[0-9]+" }',
    '{ type: number }',
    '{ type: enum, values: [a] }',
    '{ type: date }',
  ]) {
    const error = refusal(() => accept(spec, secret));
    expect(error.message + error.texts.zh).not.toContain(secret);
  }
});
