import { appendFile, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Outgoing, outgoing } from '../../../src/agents/worker/outgoing.ts';
import { readRecords, recordLine } from '../../../src/agents/worker/records.ts';
import { MAX_REJECTIONS, Spool } from '../../../src/agents/worker/spool.ts';
import { silentLog } from '../../../src/log.ts';
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
