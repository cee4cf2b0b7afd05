import { spawn } from 'node:child_process';
import {
  appendFile,
  type FileHandle,
  mkdir,
  mkdtemp,
  open as openFile,
  readdir,
  readFile,
  rm,
  stat,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deadReports } from '../../../src/agents/worker/dead-reports.ts';
import { type Outgoing, outgoing } from '../../../src/agents/worker/outgoing.ts';
import { readRecords, recordLine } from '../../../src/agents/worker/records.ts';
import { MAX_REJECTIONS, Spool } from '../../../src/agents/worker/spool.ts';
import { silentLog } from '../../../src/log.ts';
import { compiledSrc } from '../../support/compiled.ts';
import { until } from '../../support/until.ts';

let dir: string;
const open: Spool[] = [];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-spool-'));
});
afterEach(async () => {
  await Promise.all(open.splice(0).map((spool) => spool.close()));
  await rm(dir, { recursive: true, force: true });
});

const path = () => join(dir, 'reports.log');
const result = (runId: string, summary = 'ok'): Outgoing =>
  outgoing({ runId, leaseToken: 'lease', seq: 1, at: 5, type: 'succeeded', summary, exitCode: 0 });

async function opened(compactBytes?: number): Promise<[Spool, Outgoing[]]> {
  const spool = new Spool({ dir, log: silentLog, compactBytes });
  open.push(spool);
  return [spool, await spool.open()];
}

/** As a killed process leaves it: nothing is closed or flushed. */
const leftovers = async () => (await opened())[1];

describe('spool', () => {
  it('gives back after a crash what was added and not settled, word for word and in order', async () => {
    const [spool] = await opened();
    const items = ['a', 'b', 'c'].map((runId) => result(runId, `ünïcode 🏨 ${runId}\n`));
    spool.add(items);
    expect((await leftovers()).map((item) => item.json)).toEqual(items.map((item) => item.json));
  });

  it('forgets what was settled', async () => {
    const [spool] = await opened();
    spool.add([result('a'), result('b')]);
    spool.settle(['a:1']);
    await until(async () => (await readFile(path(), 'utf8')).includes('settled'));
    expect((await leftovers()).map((item) => item.runId)).toEqual(['b']);
  });

  it('is empty on disk when nothing is left', async () => {
    const [spool] = await opened();
    spool.add([result('a'), result('b')]);
    spool.settle(['a:1', 'b:1']);
    await until(async () => (await stat(path())).size === 0, 'an empty file');
    expect(spool.size).toBe(0);
    spool.add([result('c')]);
    expect((await leftovers()).map((item) => item.runId)).toEqual(['c']);
  });

  it('skips a torn end and keeps everything before it', async () => {
    const [spool] = await opened();
    spool.add([result('a')]);
    spool.add([result('b')]);
    await spool.close();
    await truncate(path(), (await stat(path())).size - 7);
    expect((await leftovers()).map((item) => item.runId)).toEqual(['a']);
  });

  it('skips a damaged record in the middle and keeps those around it', async () => {
    const lines = ['a', 'b', 'c'].map((runId) => recordLine(`{"reports":[${result(runId).json}]}`));
    await writeFile(path(), lines[0] + lines[1]!.replace('succeeded', 'sUcceeded') + lines[2]);
    expect((await leftovers()).map((item) => item.runId)).toEqual(['a', 'c']);
  });

  it('writes whole records again after a torn end', async () => {
    await writeFile(path(), recordLine(`{"reports":[${result('a').json}]}`).slice(0, 30));
    const [spool] = await opened();
    spool.add([result('b')]);
    expect((await leftovers()).map((item) => item.runId)).toEqual(['b']);
  });

  it('stays bounded while reports come and go', async () => {
    const [spool] = await opened(20_000);
    spool.add([result('stays')]);
    for (let i = 0; i < 300; i += 1) {
      spool.add([result(`run${i}`, 'x'.repeat(200))]);
      spool.settle([`run${i}:1`]);
      await nextTurn();
    }
    await until(async () => {
      spool.add([result('last')]);
      spool.settle(['last:1']);
      return (await stat(path())).size < 25_000;
    }, 'the file to be rewritten');
    await spool.close();
    expect((await leftovers()).map((item) => item.runId)).toContain('stays');
  });

  it('puts a report aside after 20 rejections, counted across restarts, and keeps its text', async () => {
    const [first] = await opened();
    first.add([result('a')]);
    for (let i = 1; i < MAX_REJECTIONS; i += 1) expect(await first.reject('a:1', 'unknown')).toBe(i);
    await until(async () => (await readFile(path(), 'utf8')).includes(`"times":${MAX_REJECTIONS - 1}`));
    const [second] = await opened();
    expect(await second.reject('a:1', 'unknown')).toBe('dead');
    expect(second.size).toBe(0);
    const [file] = await readdir(join(dir, 'dead'));
    expect(JSON.parse(await readFile(join(dir, 'dead', file!), 'utf8'))).toMatchObject({
      runId: 'a',
      type: 'succeeded',
    });
  });

  it('adds many at once and each of them lasts', async () => {
    const [spool] = await opened();
    for (let i = 0; i < 200; i += 1) spool.add([result(`run${i}`)]);
    expect(await leftovers()).toHaveLength(200);
  });
});

describe('a spool on a slow gateway', () => {
  /** Counts what is forced onto the disk, of all open files of this process. */
  async function countFlushes(): Promise<{ count: number; restore(): void }> {
    const handle = await openFile(join(dir, 'probe'), 'w');
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const original = prototype.datasync;
    const flushes = {
      count: 0,
      restore: () => {
        prototype.datasync = original;
      },
    };
    prototype.datasync = function datasync(this: FileHandle) {
      flushes.count += 1;
      return original.call(this);
    };
    return flushes;
  }

  it('forces what is not answered within a moment onto the disk once, and what is answered never', async () => {
    const [spool] = await opened();
    const flushes = await countFlushes();
    try {
      spool.add([result('quick')]);
      spool.settle(['quick:1']);
      spool.add([result('slow')]);
      await until(() => flushes.count === 1, 'the flush');
      expect(await leftoversOf()).toEqual(['slow']);
      // The next that waits is flushed by itself; what is on the disk already is not again.
      spool.add([result('slower')]);
      await until(() => flushes.count === 2, 'the second flush');
      spool.settle(['slow:1', 'slower:1']);
      await until(async () => (await stat(path())).size === 0, 'an empty file');
      spool.add([result('answered')]);
      spool.settle(['answered:1']);
      await new Promise((resolve) => setTimeout(resolve, 250));
      expect(flushes.count).toBe(2);
    } finally {
      flushes.restore();
    }
  });

  it('is full when it holds more than it may, and has room again when that is answered', async () => {
    const spool = new Spool({ dir, log: silentLog, maxBytes: 2_000 });
    open.push(spool);
    await spool.open();
    expect(spool.hasRoom).toBe(true);
    spool.add([result('a', 'x'.repeat(3_000))]);
    expect(spool.hasRoom).toBe(false);
    spool.add([result('b')]);
    expect(spool.size).toBe(2);
    spool.settle(['a:1']);
    expect(spool.hasRoom).toBe(true);
  });
});

/** What is in the file, without a second spool. */
async function leftoversOf(): Promise<string[]> {
  const { records } = await readRecords(path());
  const runs = new Set<string>();
  for (const record of records as { reports?: { runId: string }[]; settled?: string[] }[]) {
    for (const { runId } of record.reports ?? []) runs.add(runId);
    for (const key of record.settled ?? []) runs.delete(key.split(':')[0]!);
  }
  return [...runs];
}

describe('reports that were put aside', () => {
  it('are counted with the reason of the newest, in the folder and in the spool, across restarts', async () => {
    expect(await deadReports(dir)).toBeUndefined();
    const [spool] = await opened();
    spool.add([result('a'), result('b')]);
    for (const [key, reason] of [
      ['a:1', 'unknown run'],
      ['b:1', 'x'.repeat(900)],
    ] as const)
      for (let i = 0; i < MAX_REJECTIONS; i += 1) await spool.reject(key, reason);
    const aside = { count: 2, reason: 'x'.repeat(500) };
    await utimes(join(dir, 'dead', 'a-1.json'), 1, 1);
    expect(await deadReports(dir)).toEqual(aside);
    expect(spool.dead).toMatchObject({ count: 2 });
    await spool.close();
    const [second, unsent] = await opened();
    expect(unsent).toEqual([]);
    expect(second.dead).toEqual(aside);
    const kept = JSON.parse(await readFile(join(dir, 'dead', 'a-1.json'), 'utf8')) as object;
    expect(kept).toMatchObject({
      runId: 'a',
      summary: 'ok',
      exitCode: 0,
      rejected: { reason: 'unknown run', times: 20 },
    });
  });

  it('count also where they cannot be read', async () => {
    await mkdir(join(dir, 'dead'));
    await writeFile(join(dir, 'dead', 'x-1.json'), 'torn');
    await writeFile(join(dir, 'dead', 'x-2.json.new'), 'a draft');
    expect(await deadReports(dir)).toEqual({ count: 1 });
  });
});

describe('a spool on a full disk', () => {
  it('keeps reports in memory, goes on, and has them on the disk as soon as there is room (real limit of a process)', async () => {
    const source = await compiledSrc();
    const module = (file: string) => JSON.stringify(pathToFileURL(join(source, file)).href);
    const script = join(dir, 'full.mjs');
    await writeFile(
      script,
      `import { Spool } from ${module('agents/worker/spool.js')};
import { outgoing } from ${module('agents/worker/outgoing.js')};
import { silentLog } from ${module('log.js')};
const spool = new Spool({ dir: process.argv[2], log: silentLog, mendMs: 20 });
await spool.open();
const result = (runId, summary) => outgoing({ runId, leaseToken: 'l', seq: 1, at: 5, type: 'succeeded', summary });
spool.add([result('small', 'ok')]);
spool.add([result('large', 'x'.repeat(20000))]);
spool.add([result('after', 'ok')]);
console.log('size ' + spool.size);
process.on('message', (key) => spool.settle([key]));
setInterval(() => undefined, 1000);
`,
    );
    const spoolDir = join(dir, 'spool');
    // 4 KiB for any file: what the large one needs is not there.
    const child = spawn('sh', ['-c', 'ulimit -f 8; exec "$0" "$@"', process.execPath, script, spoolDir], {
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    });
    let out = '';
    child.stdout!.on('data', (chunk: Buffer) => {
      out += chunk.toString();
    });
    try {
      await until(() => out.includes('size 3'), 'the spool to go on');
      expect(child.exitCode).toBeNull();
      child.send('large:1');
      const onDisk = async () =>
        (await readRecords(join(spoolDir, 'reports.log'))).records as { reports?: { runId: string }[] }[];
      await until(async () => {
        const runs = (await onDisk()).flatMap((record) => record.reports ?? []).map(({ runId }) => runId);
        return runs.join() === 'small,after';
      }, 'both small ones to be on the disk');
    } finally {
      child.kill('SIGKILL');
    }
  });
});

describe('records', () => {
  it('that are cut or altered at any place are never read as something else', async () => {
    const originals = [{ a: 1 }, { text: 'ä\n"x"' }, { list: [1, 2, 3] }];
    const whole = Buffer.from(originals.map((item) => recordLine(JSON.stringify(item))).join(''));
    let name = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.nat(whole.length - 1),
        fc.integer({ min: 1, max: 255 }),
        fc.boolean(),
        async (at, flip, cut) => {
          const bytes = Buffer.from(cut ? whole.subarray(0, at) : whole);
          if (!cut) bytes[at]! ^= flip;
          name += 1;
          const file = join(dir, `records-${name}`);
          await appendFile(file, bytes);
          const { records } = await readRecords(file);
          for (const record of records) expect(originals).toContainEqual(record);
          expect(records.length).toBeGreaterThanOrEqual(cut ? 0 : originals.length - 2);
        },
      ),
      { numRuns: 150 },
    );
  });
});
