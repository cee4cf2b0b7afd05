import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** One execution of the program, as the program itself has written it down. */
export interface Execution {
  n: string;
  run: string;
  pid: number;
  beganAt: number;
  /** Its last sign of life. */
  seenAt: number;
}

/** The template `mark`, whose program writes down when it begins and, again and again, that it is alive. It takes up to half a second, one in ten 5 s. */
export async function writeMarkTemplate(folder: string): Promise<{ templates: string; marks: string }> {
  const templates = join(folder, 'templates');
  const marks = join(folder, 'marks.jsonl');
  const script = join(folder, 'mark.cjs');
  await mkdir(templates, { recursive: true });
  await writeFile(script, PROGRAM);
  await writeFile(marks, '');
  await writeFile(
    join(templates, 'mark.yaml'),
    `id: mark
title: { en: Mark }
args:
  n: { type: string, max: 40, required: true }
command: [node, ${JSON.stringify(script)}, ${JSON.stringify(marks)}, "{{n}}"]
timeout: 1m
retry: { max: 50, base: 100ms }
`,
  );
  return { templates, marks };
}

/** What was written down, in the order of the beginnings. */
export async function executions(marks: string): Promise<Execution[]> {
  const found = new Map<string, Execution>();
  for (const line of (await readFile(marks, 'utf8')).split('\n').filter((text) => text !== '')) {
    const { at, ...who } = JSON.parse(line) as { at: number; n: string; run: string; pid: number };
    const key = `${who.run}/${who.pid}`;
    found.set(key, { ...who, beganAt: found.get(key)?.beganAt ?? at, seenAt: at });
  }
  return [...found.values()].sort((a, b) => a.beganAt - b.beganAt);
}

// A line is one append of less than a page: lines of several processes never mix.
const PROGRAM = `
const { appendFileSync } = require('node:fs');
const [file, n] = process.argv.slice(2);
const note = () => appendFileSync(file, JSON.stringify({ at: Date.now(), n, run: process.env.ERRAND_RUN_ID, pid: process.pid }) + '\\n');
note();
setInterval(note, 100);
setTimeout(() => {
  note();
  console.log('Marked ' + n + '.');
  process.exit(0);
}, n.endsWith('7') ? 5000 : 50 + Math.random() * 450);
`;
