import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { maskingOf } from '../../../src/agents/worker/masking.ts';
import { CleanText, cutText, HeadTail } from '../../../src/agents/worker/runtime/capture.ts';
import { parseOutputs, parseProgress } from '../../../src/agents/worker/runtime/run-folder.ts';

/** Cuts bytes at the given places. */
function chunks(bytes: Buffer, cuts: number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return places.slice(1).map((to, i) => bytes.subarray(places[i], to));
}

describe('HeadTail', () => {
  it('keeps a text that fits as it is, however it comes in', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 40 }), fc.array(fc.nat()), (text, cuts) => {
        const kept = new HeadTail(400, 400);
        for (const chunk of chunks(Buffer.from(text), cuts)) kept.push(chunk);
        expect(kept.text()).toBe(text);
      }),
    );
  });

  it('of a longer text keeps its beginning and its end, whole characters only, and counts every missing byte', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', minLength: 60, maxLength: 300 }),
        fc.array(fc.nat()),
        fc.nat(20),
        fc.integer({ min: 1, max: 20 }),
        (text, cuts, headBytes, tailBytes) => {
          const kept = new HeadTail(headBytes, tailBytes);
          for (const chunk of chunks(Buffer.from(text), cuts)) kept.push(chunk);
          const match = /^([\s\S]*)\n\[… (\d+) bytes omitted …\]\n([\s\S]*)$/.exec(kept.text())!;
          const [, head, omitted, tail] = match as unknown as [string, string, string, string];
          expect(text.startsWith(head)).toBe(true);
          expect(text.endsWith(tail)).toBe(true);
          expect(Buffer.byteLength(head) + Number(omitted) + Buffer.byteLength(tail)).toBe(Buffer.byteLength(text));
          expect(Buffer.byteLength(head)).toBeLessThanOrEqual(headBytes);
          expect(Buffer.byteLength(tail)).toBeLessThanOrEqual(tailBytes);
        },
      ),
    );
  });
});

describe('CleanText', () => {
  it('turns any bytes, cut anywhere, into the same well-formed text without NUL', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.array(fc.nat()), (bytes, cuts) => {
        const buffer = Buffer.from(bytes);
        const clean = new CleanText(maskingOf([]).stream());
        const text =
          chunks(buffer, cuts)
            .map((chunk) => clean.push(chunk))
            .join('') + clean.end();
        expect(text).toBe(buffer.toString('utf8').replaceAll('\0', ''));
        expect(text.isWellFormed()).toBe(true);
      }),
    );
  });
});

describe('masking', () => {
  const secret = 'tok/en+42 "q"ü';
  const masking = maskingOf([secret, 'second-secret']);

  it.each([
    ['plain', secret, /^\[secret\]$/],
    ['URL-encoded', encodeURIComponent(secret), /^\[secret\]$/],
    ['JSON-escaped', JSON.stringify({ key: secret }), /^{"key":"\[secret\]"}$/],
    // At the edges of base64 one character may hold bits of its neighbour as well.
    ['base64', Buffer.from(secret).toString('base64'), /^\[secret\].?=*$/],
    ['base64url', Buffer.from(secret).toString('base64url'), /^\[secret\].?$/],
    ['base64 after one byte', Buffer.from(`:${secret}`).toString('base64'), /^..\[secret\].?=*$/],
    ['base64 in a header', Buffer.from(`user:${secret}!`).toString('base64'), /^dXNlcjp\[secret\]..$/],
  ])('hides a secret that is %s', (_, text, expected) => {
    expect(masking.text(text)).toMatch(expected);
    expect(masking.text(`before ${text} after`)).toMatch(/^before .* after$/);
  });

  it('in a stream hides a secret however it is cut, and changes nothing else', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.constant(secret), fc.constant('second-secret'), fc.string())),
        fc.array(fc.nat()),
        (parts, cuts) => {
          const text = parts.join('');
          const stream = masking.stream();
          const places = [0, ...cuts.map((cut) => cut % (text.length + 1)).sort((a, b) => a - b), text.length];
          const out =
            places
              .slice(1)
              .map((to, i) => stream.push(text.slice(places[i], to)))
              .join('') + stream.end();
          expect(out).toBe(masking.text(text));
        },
      ),
    );
  });
});

describe('cutText', () => {
  it('never exceeds its limit and never breaks a character', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 400 }), fc.integer({ min: 60, max: 200 }), (text, max) => {
        const cut = cutText(text, max);
        expect(cut.length).toBeLessThanOrEqual(max);
        expect(cut.isWellFormed()).toBe(true);
        if (text.length <= max) expect(cut).toBe(text);
      }),
    );
  });
});

describe('what a program writes', () => {
  it.each([
    ['42 almost done', { percent: 42, message: 'almost done' }],
    ['42%', { percent: 42, message: undefined }],
    ['7.5% fine', { percent: 7.5, message: 'fine' }],
    ['250 too much', { percent: 100, message: 'too much' }],
    ['only words', { message: 'only words' }],
    ['42nd street', { message: '42nd street' }],
    ['-3 below', { message: '-3 below' }],
    ['   ', undefined],
  ])('as progress: %j', (line, expected) => {
    expect(parseProgress(line)).toEqual(expected);
  });

  it('as outputs: later lines win, prototypes are safe, and what is left out is told', () => {
    const { outputs, complaints } = parseOutputs('a=1\na=2\r\nb=x=y\n__proto__=evil\n1bad=x\nno\n');
    expect(outputs).toEqual({ a: '2', b: 'x=y' });
    expect(complaints.map((text) => /line (\d)/.exec(text)?.[1])).toEqual(['4', '5', '6']);
  });

  it('as outputs: too many and too long ones are cut and told', () => {
    const many = parseOutputs(Array.from({ length: 70 }, (_, i) => `k${i}=v`).join('\n'));
    expect(Object.keys(many.outputs)).toHaveLength(64);
    expect(many.complaints).toHaveLength(6);
    expect(parseOutputs(`k=${'v'.repeat(40_000)}`).outputs.k).toHaveLength(32_768);
  });
});
