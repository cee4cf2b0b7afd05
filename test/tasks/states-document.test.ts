import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { DELIVERY_STATES, FINAL_STATES, TASK_STATES, TASK_VERBS } from '../../src/tasks/states.ts';
import { statesDocument } from './states-document.ts';

const FILE = join(import.meta.dirname, '..', '..', 'docs', 'states.md');
const [BEGIN, END] = ['<!-- generated: begin -->', '<!-- generated: end -->'];

/** Without the blanks that a formatter puts into tables. */
const plain = (text: string) =>
  text
    .trim()
    .replaceAll(/ *\| */g, '|')
    .replaceAll(/-{3,}/g, '---');

it('docs/states.md shows the table that the program executes (UPDATE_DOCS=1 writes it anew)', async () => {
  const text = await readFile(FILE, 'utf8');
  const [before, rest] = text.split(BEGIN);
  const [shown, after] = rest!.split(END);
  if (process.env.UPDATE_DOCS) await writeFile(FILE, `${before}${BEGIN}\n\n${statesDocument()}\n\n${END}${after}`);
  else expect(plain(shown!)).toBe(plain(statesDocument()));
});

it('the table is closed: every state is entered and left, final ones only by a retry, and every word is defined', () => {
  const verbs = Object.entries(TASK_VERBS) as [string, { from: readonly string[]; to: readonly string[] }][];
  for (const state of TASK_STATES) {
    const leaving = verbs.filter(([, { from }]) => from.includes(state)).map(([verb]) => verb);
    const entering = verbs.filter(([, { to }]) => to.includes(state));
    expect(entering.length, `${state} is entered`).toBeGreaterThan(0);
    if (state === 'succeeded') expect(leaving).toEqual([]);
    else if ((FINAL_STATES as readonly string[]).includes(state)) expect(leaving).toEqual(['retry']);
    else expect(leaving.length, `${state} is left`).toBeGreaterThan(0);
  }
  const document = statesDocument();
  for (const word of [...TASK_STATES, ...DELIVERY_STATES])
    expect(document).toMatch(new RegExp(`\\| \`${word}\` \\| \\w[^|]{20,} \\|`));
});
