import { expect, it } from 'vitest';
import { readTemplate } from '../../src/flows/template-file.ts';

/** Eight lines of nine aliases each: 307 bytes that would be 269,042,005 characters of JSON. */
function bomb(): string {
  const names = 'abcdefgh';
  const lines = [...names].map((name, level) => {
    const item = level === 0 ? "'lol'" : `*${names[level - 1]}`;
    return `${name}: &${name} [${Array(9).fill(item).join(',')}]`;
  });
  return `id: bomb\ncommand: [echo]\n${lines.join('\n')}\n`;
}

it('A39: a YAML alias bomb is refused in bounded memory, and the limit is named', () => {
  const before = process.memoryUsage();
  const reading = readTemplate('bomb.yaml', bomb());
  const after = process.memoryUsage();
  expect(reading).toMatchObject({ problems: [{ file: 'bomb.yaml', message: expect.stringContaining('100 times') }] });
  expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(50 * 1024 ** 2);
});

it('A39: a file with ten aliases is an ordinary one', () => {
  const args = Array.from({ length: 10 }, (_, n) => `  a${n}: *short`).join('\n');
  const reading = readTemplate(
    'ten.yaml',
    `id: ten\nargs:\n  first: &short { type: string, max: 9 }\n${args}\ncommand: [echo]\n`,
  );
  expect(reading).toMatchObject({ template: { id: 'ten' } });
  expect(Object.keys((reading as { template: { args: object } }).template.args)).toHaveLength(11);
});
