import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { matchTrigger, parseRun, type RouteResult, usageOf } from '../../src/flows/router.ts';
import { readTemplate } from '../../src/flows/template-file.ts';
import type { Template } from '../../src/flows/template-model.ts';

function template(text: string): Template {
  const reading = readTemplate('f', `command: [tool]\n${text}`);
  if (!('template' in reading)) throw new Error(JSON.stringify(reading.problems));
  return reading.template;
}

const report = template(`id: hotel-report
triggers: ["上报 {room} {guest}", "/report {room} {guest}"]
args: { room: { required: true }, guest: { required: true }, day: { type: date, default: today } }
`);
const note = template('id: note\ntriggers: ["note {text}"]\nargs: { text: { required: true }, tag: {} }\n');
const hello = template('id: hello\ntriggers: ["/hello {name}"]\nargs: { name: { default: world } }\n');
const nap = template('id: nap\nargs: { seconds: { type: integer, required: true }, loud: { type: boolean } }\n');
const plain = template('id: plain\ntriggers: ["system info"]\n');
const all = [hello, report, nap, note, plain];

const args = (result: RouteResult) => (result && 'template' in result ? { ...result.args } : result);
const problem = (result: RouteResult) => (result && 'problem' in result ? result.problem : result);

describe('/run', () => {
  const run = (rest: string) => args(parseRun(all, `/run ${rest}`));

  test.each<[string, string, Record<string, string>]>([
    ['keys', 'hotel-report room=302 guest=Ada', { room: '302', guest: 'Ada' }],
    ['double quotes', 'hotel-report room=302 guest="Ada Lovelace"', { room: '302', guest: 'Ada Lovelace' }],
    ['single quotes', "hotel-report room='3 02' guest='\"A\"'", { room: '3 02', guest: '"A"' }],
    ['Chinese quotes', 'hotel-report room=302 guest=“张 三”', { room: '302', guest: '张 三' }],
    ['the same Chinese quote twice', 'hotel-report room=302 guest=”张 三”', { room: '302', guest: '张 三' }],
    ['corner brackets', 'hotel-report room=302 guest=「张 三」', { room: '302', guest: '张 三' }],
    ['full-width equals and spaces', 'hotel-report　room＝302　guest＝张三', { room: '302', guest: '张三' }],
    ['full-width and upper-case keys', 'hotel-report ＲＯＯＭ=302 Guest=Ada', { room: '302', guest: 'Ada' }],
    ['an equals sign in a value', 'note text=a=b', { text: 'a=b' }],
    ['an empty value', 'note text=x tag=', { text: 'x', tag: '' }],
    ['an apostrophe in a word', "note text=O'Brien", { text: "O'Brien" }],
    ['text without a key', "note don't forget", { text: "don't forget" }],
    ['the spacing of that text', 'note first line\n\n  second  line', { text: 'first line\n\n  second  line' }],
    ['text and keys mixed', 'note buy tag=shop milk', { text: 'buy milk', tag: 'shop' }],
    ['text in quotes', 'note "a=b"', { text: 'a=b' }],
    ['text for the only required text', 'hotel-report room=302 张三', { room: '302', guest: '张三' }],
    ['text for the only argument', 'hello Ada', { name: 'Ada' }],
    ['text for the only argument left', 'nap loud=yes 30', { loud: 'yes', seconds: '30' }],
    ['a link', 'note https://example.org/?a=b', { text: 'https://example.org/?a=b' }],
    ['nothing', 'hello', {}],
    ['many lines', 'hotel-report\nroom=302\nguest=Ada', { room: '302', guest: 'Ada' }],
  ])('takes %s', (_name, rest, expected) => {
    expect(run(rest)).toEqual(expected);
  });

  test.each(['/RUN hello', '／run hello', '/run@errand_bot hello', '  /run　HELLO ', '/ｒｕｎ ｈｅｌｌｏ'])(
    'is understood as %j',
    (text) => {
      expect(parseRun(all, text)).toMatchObject({ template: { id: 'hello' } });
    },
  );

  test.each(['run hello', '/runner hello', 'please /run hello', '', '/'])('is not %j', (text) => {
    expect(parseRun(all, text)).toBeNull();
  });

  test.each([
    ['an open quote', '/run note text="open', 'unterminated_quote', 'A quotation mark is never closed: text="open'],
    ['an open Chinese quote', '/run note “open', 'unterminated_quote', 'A quotation mark is never closed: “open'],
    [
      'text after a quote',
      '/run note text="a"b',
      'text_after_quote',
      'Put a space after the closing quotation mark: text="a"b',
    ],
    ['a key twice', '/run note tag=a TAG=b', 'key_twice', 'tag is given twice'],
    ['no template', '/run', 'no_template', 'Which errand? There is: hello, hotel-report, nap, note, plain.'],
    ['a typing error', '/run helo', 'unknown_template', 'There is no errand helo. Did you mean hello?'],
    [
      'an unknown template',
      '/run constructor',
      'unknown_template',
      'There is no errand constructor. There is: hello, hotel-report, nap, note, plain.',
    ],
    [
      'text that could be for two',
      '/run hotel-report 302 张三',
      'unassigned_text',
      'Say which argument each value is for (room, guest, day): /run hotel-report room=… guest=… [day=today]',
    ],
    ['text for nothing', '/run plain now', 'unassigned_text', 'plain takes no arguments: /run plain'],
  ])('says what is wrong with %s', (_name, text, expected, sentence) => {
    const result = parseRun(all, text);
    expect(problem(result)).toBe(expected);
    expect(result).toMatchObject({ text: { en: sentence, zh: expect.stringMatching(/\p{Script=Han}/u) } });
  });

  test.each([
    "' && ls && echo '",
    ';',
    '$(id)',
    '`id`',
    '$' + '{IFS}',
    '; rm -rf x',
    '| nc',
    '> f',
    '*',
    '~',
    '$HOME',
    '&',
    '{{name}}',
    '%s\\n',
  ])('hands over %j as it is', (text) => {
    const bare = /^'(.*)'$/.exec(text)?.[1] ?? text;
    expect(run(`note ${text}`)).toEqual({ text: bare });
    expect(run(`note text="${text}"`)).toEqual({ text });
  });

  test('names out of the prototype are only names', () => {
    expect(Object.keys(args(parseRun(all, '/run note __proto__=x constructor=y text=z')) as object)).toEqual([
      '__proto__',
      'constructor',
      'text',
    ]);
    expect(({} as { x?: string }).x).toBeUndefined();
  });

  test('a quoted value comes back whole, whatever is in it', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }).filter((value) => !value.includes('"')),
        (value) => {
          expect(run(`note text="${value}" tag='t'`)).toEqual({ text: value, tag: 't' });
        },
      ),
    );
  });

  test('no text at all throws', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (rest) => void parseRun(all, `/run note ${rest}`)),
    );
  });
});

describe('triggers', () => {
  test.each<[string, Record<string, string>]>([
    ['上报 302 张三', { room: '302', guest: '张三' }],
    ['  上报\u3000302\u00a0张三 ', { room: '302', guest: '张三' }],
    ['上报 302 Ada  King\nLovelace', { room: '302', guest: 'Ada  King\nLovelace' }],
    ['/REPORT 302 Ada', { room: '302', guest: 'Ada' }],
    ['／ｒｅｐｏｒｔ 302 Ada', { room: '302', guest: 'Ada' }],
    ['/report@errand_bot 302 Ada', { room: '302', guest: 'Ada' }],
    ['上报 ３０２ 张三', { room: '３０２', guest: '张三' }],
  ])('%j is a report', (text, expected) => {
    const result = matchTrigger(all, text);
    expect(result).toMatchObject({ template: { id: 'hotel-report' }, others: [] });
    expect(args(result)).toEqual(expected);
  });

  test.each([
    '',
    '   ',
    '上报302张三',
    'please 上报 302 张三',
    'reports 302 Ada',
    'system',
    'system info please',
    'good morning',
  ])('%j means no errand', (text) => {
    expect(matchTrigger(all, text)).toBeNull();
  });

  test('arguments with a default may be left out, required ones are asked for', () => {
    expect(args(matchTrigger(all, '/hello'))).toEqual({});
    const result = matchTrigger(all, '上报 302');
    expect(result).toMatchObject({
      problem: 'missing_arguments',
      text: { en: 'Missing: guest. Write: 上报 {room} {guest}', zh: '缺少 guest。请写：上报 {room} {guest}' },
    });
  });

  test('words behind the last place stay words', () => {
    const moved = template('id: move\ntriggers: ["move {what} to {where} now"]\nargs: { what: {}, where: {} }\n');
    expect(args(matchTrigger([moved], 'move it to the big room now'))).toEqual({ what: 'it', where: 'the big room' });
    expect(matchTrigger([moved], 'move it to now')).toBeNull();
    expect(matchTrigger([moved], 'move it to the room later')).toBeNull();
  });

  const order = (id: string, trigger: string) =>
    template(`id: ${id}\ntriggers: ["${trigger}"]\nargs: { a: {}, b: {} }\n`);

  test('the trigger with the most words of its own wins', () => {
    const rooms = [order('a', 'book {a}'), order('b', 'book room {a}'), order('c', 'book {a} {b}')];
    expect(matchTrigger(rooms, 'book room 302')).toMatchObject({
      template: { id: 'b' },
      args: { a: '302' },
      others: [],
    });
  });

  test('of equal ones the first id wins, and the others are named', () => {
    const rooms = [order('c', 'book {a}'), order('b', 'BOOK {a}'), order('a', 'book room {a}')];
    expect(matchTrigger(rooms, 'book 302')).toMatchObject({ template: { id: 'b' }, others: ['c'] });
  });

  test('a complete match goes before a longer one that lacks something', () => {
    const long = template(
      'id: a\ntriggers: ["book room {a} {b}"]\nargs: { a: { required: true }, b: { required: true } }\n',
    );
    expect(matchTrigger([long, order('b', 'book {a}')], 'book room 302')).toMatchObject({ template: { id: 'b' } });
  });

  test('no text at all throws', () => {
    fc.assert(fc.property(fc.string({ unit: 'grapheme' }), (text) => void matchTrigger(all, `上报 ${text}`)));
  });
});

test('the usage shows what is required, defaults and short lists', () => {
  const paint = template(
    'id: paint\nargs: { what: { required: true }, colour: { type: enum, values: [red, blue] }, by: { default: "John Doe" } }\n',
  );
  expect(usageOf(paint)).toBe('/run paint what=… [colour=red|blue] [by="John Doe"]');
});
