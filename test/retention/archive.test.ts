import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { manualClock } from '../../src/clock.ts';
import { createArchive } from '../../src/retention/archive.ts';
import { compiledSrc } from '../support/compiled.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-archive-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const NOON = Date.UTC(2026, 4, 4, 12);
const inside = () => join(folder, 'archive');
const opened = (clock = manualClock(NOON)) => createArchive({ folder: inside(), clock });
const text = async (name: string) => gunzipSync(await readFile(join(inside(), name))).toString();

it('lines of a day are one file of several gzip members, readable only by its owner', async () => {
  const clock = manualClock(NOON);
  const archive = opened(clock);
  await archive.append(['{"a":1}', '{"b":"日本\\n"}']);
  await archive.append([]);
  await archive.append(['{"c":3}']);
  clock.advance(12 * 3_600_000);
  await archive.append(['{"d":4}']);
  expect((await readdir(inside())).sort()).toEqual(['2026-05-04.jsonl.gz', '2026-05-05.jsonl.gz']);
  expect(await text('2026-05-04.jsonl.gz')).toBe('{"a":1}\n{"b":"日本\\n"}\n{"c":3}\n');
  expect(await text('2026-05-05.jsonl.gz')).toBe('{"d":4}\n');
  expect((await stat(join(inside(), '2026-05-04.jsonl.gz'))).mode & 0o777).toBe(0o600);
  expect((await stat(inside())).mode & 0o777).toBe(0o700);
});

it('a file that another process began is left as it is, so that what a crash cut off harms nothing that follows', async () => {
  await opened().append(['{"a":1}']);
  const first = join(inside(), '2026-05-04.jsonl.gz');
  const torn = Buffer.concat([await readFile(first), gzipSync('{"torn":1}\n').subarray(0, 12)]);
  await writeFile(first, torn);
  const archive = opened();
  await archive.append(['{"b":2}']);
  await archive.append(['{"c":3}']);
  expect(await readFile(first)).toEqual(torn);
  expect(await text('2026-05-04.1.jsonl.gz')).toBe('{"b":2}\n{"c":3}\n');
});

it('a file that was moved away or written to meanwhile is not appended to', async () => {
  const archive = opened();
  const first = join(inside(), '2026-05-04.jsonl.gz');
  await archive.append(['{"a":1}']);
  await rename(first, join(inside(), 'kept.gz'));
  await archive.append(['{"b":2}']);
  expect([await text('kept.gz'), await text('2026-05-04.jsonl.gz')]).toEqual(['{"a":1}\n', '{"b":2}\n']);
  await writeFile(first, 'no gzip at all');
  await archive.append(['{"c":3}']);
  expect(await text('2026-05-04.1.jsonl.gz')).toBe('{"c":3}\n');
});

it('where the file cannot grow any more, that is told, and what was written before stays whole', async () => {
  const script = join(folder, 'filling.mjs');
  const module = join(await compiledSrc(), 'retention', 'archive.js');
  await writeFile(
    script,
    `
    import { randomBytes } from 'node:crypto';
    import { createArchive } from ${JSON.stringify(module)};
    const archive = createArchive({ folder: process.argv[2], clock: { now: () => ${NOON} } });
    const told = [];
    for (let n = 0; n < 40; n += 1)
      await archive.append([JSON.stringify({ n, x: randomBytes(3_000).toString('base64') })]).then(() => told.push(n), (error) => told.push(error.code));
    console.log(JSON.stringify(told));
  `,
  );
  // The kernel refuses to let a file of this process pass 64 KiB, in the middle of a write.
  const limited = spawnSync('bash', ['-c', 'ulimit -f 64; exec "$0" "$@"', process.execPath, script, inside()]);
  const told = JSON.parse(limited.stdout.toString()) as (number | string)[];
  const stored = told.filter((item) => typeof item === 'number');
  expect(new Set(told.filter((item) => typeof item === 'string'))).toEqual(new Set(['storage_full']));
  const names = (await readdir(inside())).sort();
  expect(names.length).toBeGreaterThan(1);
  const lines = (await Promise.all(names.map(text))).flatMap((part) => part.trim().split('\n'));
  expect(lines.map((line) => (JSON.parse(line) as { n: number }).n).sort((a, b) => a - b)).toEqual(stored);
  expect(stored.length).toBeGreaterThan(20);
});

it('a folder that cannot be made is told, and nothing counts as archived', async () => {
  await writeFile(inside(), 'a file where the folder should be');
  const archive = opened();
  await expect(archive.append(['{"a":1}'])).rejects.toMatchObject({ code: 'unavailable' });
  await rm(inside());
  await archive.append(['{"a":1}']);
  expect(await text('2026-05-04.jsonl.gz')).toBe('{"a":1}\n');
});
