import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ARTIFACT_LIMITS, isArtifactName } from '../../src/agents/artifact-protocol.ts';
import { Artifacts, type Bringer, type Piece } from '../../src/artifacts/artifacts.ts';
import * as queries from '../../src/artifacts/queries.ts';
import { silentLog } from '../../src/log.ts';
import { createArchive } from '../../src/retention/archive.ts';
import { Retention } from '../../src/retention/retention.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import { Core, newTask } from '../support/core.ts';
import { planOf } from '../support/plans.ts';

let core: Core;
let folder: string;
let artifacts: Artifacts;
let taskId: number;
let bringer: Bringer;
beforeEach(async () => {
  core = await Core.open();
  folder = await mkdtemp(join(tmpdir(), 'errand-artifacts-'));
  artifacts = new Artifacts({ store: core.store, log: silentLog, folder });
  await core.store.write(core.verbs.create, [newTask()]);
  const [grant] = await core.claimAll('a1', { max: 1 });
  taskId = grant!.taskId;
  bringer = { agentId: 'a1', runId: grant!.runId, leaseToken: grant!.leaseToken };
});
afterEach(async () => {
  await core.close();
  await rm(folder, { recursive: true, force: true });
});

const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');
function piece(name: string, whole: Buffer, offset = 0, size = whole.length): Piece {
  return { name, bytes: whole.length, sha256: sha256(whole), offset, data: whole.subarray(offset, offset + size) };
}
const bring = (name: string, content: string) => artifacts.receive(bringer, piece(name, Buffer.from(content)));
const kept = () => readdir(join(folder, 'kept')).catch(() => []);
const incoming = () => readdir(join(folder, 'incoming')).catch(() => []);
const records = async () => (await artifacts.ofTasks([taskId])).get(taskId) ?? [];
const end = () =>
  core.store.write(core.verbs.report, [{ ...bringer, seq: 1, news: { type: 'succeeded', summary: 's', exitCode: 0 } }]);

describe('a file of a run', () => {
  it('in one piece or in many is kept under a name of our own and can be read', async () => {
    expect(await bring('a/report.txt', 'hello')).toEqual({ answer: 'stored' });
    const long = Buffer.alloc(10, 'x');
    expect(await artifacts.receive(bringer, piece('b', long, 0, 4))).toEqual({ answer: 'more', offset: 4 });
    expect(await artifacts.receive(bringer, piece('b', long, 4, 4))).toEqual({ answer: 'more', offset: 8 });
    expect(await artifacts.receive(bringer, piece('b', long, 8, 2))).toEqual({ answer: 'stored' });
    expect(await bring('empty', '')).toEqual({ answer: 'stored' });
    const listed = await records();
    expect(listed.map(({ name, bytes }) => [name, bytes])).toEqual([
      ['a/report.txt', 5],
      ['b', 10],
      ['empty', 0],
    ]);
    const found = await artifacts.open(core.store.ids.decode(listed[0]!.artifactId)!);
    expect(found).toMatchObject({ name: 'a/report.txt', sha256: sha256(Buffer.from('hello')), sessionKey: null });
    expect(await text(found!.body)).toBe('hello');
    for (const name of await kept()) expect(name).toMatch(/^[0-9a-f]{32}$/);
    expect(await incoming()).toEqual([]);
  });

  it('is taken on where it stopped, by another gateway process too, and stored once however often it is sent', async () => {
    const whole = Buffer.alloc(100, 'y');
    await artifacts.receive(bringer, piece('f', whole, 0, 60));
    const restarted = new Artifacts({ store: core.store, log: silentLog, folder });
    // The answer was lost: the same piece again, then the rest, then the last once more.
    expect(await restarted.receive(bringer, piece('f', whole, 0, 60))).toEqual({ answer: 'more', offset: 60 });
    expect(await restarted.receive(bringer, piece('f', whole, 60))).toEqual({ answer: 'stored' });
    expect(await restarted.receive(bringer, piece('f', whole, 60))).toEqual({ answer: 'stored' });
    expect(await records()).toHaveLength(1);
    expect(await kept()).toHaveLength(1);
  });

  it('sent by several calls at once is whole all the same', async () => {
    const whole = Buffer.alloc(1_000, 'z');
    const answers = await Promise.all(Array.from({ length: 5 }, () => artifacts.receive(bringer, piece('f', whole))));
    expect(answers).toEqual(answers.map(() => ({ answer: 'stored' })));
    expect(await kept()).toHaveLength(1);
  });

  it('that is not what was promised is begun anew and never kept', async () => {
    const whole = Buffer.from('right');
    const wrong = { ...piece('f', whole), data: Buffer.from('wrong') };
    expect(await artifacts.receive(bringer, wrong)).toEqual({ answer: 'more', offset: 0 });
    expect([await kept(), await incoming()]).toEqual([[], []]);
    expect(await artifacts.receive(bringer, piece('f', whole))).toEqual({ answer: 'stored' });
  });

  it('with the name of another one is refused', async () => {
    await bring('f', 'one');
    expect(await bring('f', 'two')).toMatchObject({ answer: 'refused' });
  });

  it('beyond the number or the bytes of a run is refused before it is read', async () => {
    for (let n = 0; n < ARTIFACT_LIMITS.files; n += 1) await bring(`f${n}`, String(n));
    expect(await bring('one-more', 'x')).toMatchObject({
      answer: 'refused',
      reason: expect.stringContaining('32 files'),
    });
    expect(await incoming()).toEqual([]);
  });

  it('replaces what the run had begun before, so that beginnings do not pile up', async () => {
    for (let n = 0; n < 5; n += 1) await artifacts.receive(bringer, piece(`f${n}`, Buffer.alloc(50, `${n}`), 0, 10));
    expect(await incoming()).toHaveLength(1);
  });

  it('is not taken from a run that is over, of another agent, or with another token', async () => {
    const lost = { answer: 'lease_lost' };
    const p = piece('f', Buffer.from('x'));
    expect(await artifacts.receive({ ...bringer, agentId: 'a2' }, p)).toMatchObject(lost);
    expect(await artifacts.receive({ ...bringer, leaseToken: 'x' }, p)).toMatchObject(lost);
    await end();
    expect(await artifacts.receive(bringer, p)).toMatchObject(lost);
    expect([await kept(), await incoming()]).toEqual([[], []]);
  });

  it('whose run ends while its last piece is taken in leaves nothing behind', async () => {
    const whole = Buffer.from('late');
    await artifacts.receive(bringer, piece('f', whole, 0, 2));
    // Both in flight: whichever is first, file and row agree.
    const [answer] = await Promise.all([artifacts.receive(bringer, piece('f', whole, 2)), end()]);
    expect(await kept()).toHaveLength(answer.answer === 'stored' ? 1 : 0);
    expect(await records()).toHaveLength(answer.answer === 'stored' ? 1 : 0);
  });
});

it.each([
  '..',
  '../x',
  'a/../b',
  '/etc/passwd',
  'a//b',
  '.',
  '',
  'a\\b',
  'a\0b',
  'a\nb',
  '\u202Eexe.txt',
  'x'.repeat(300),
  'a/.',
  ' ',
])('A37: %j is no name of a file', (name) => expect(isArtifactName(name)).toBe(false));
it.each(['report.pdf', 'a/b/c.txt', '入住 302.xlsx', '...', '~', 'CON', '%2e%2e', 'a\u2215b'])('%j is one', (name) =>
  expect(isArtifactName(name)).toBe(true),
);

describe('the sweep', () => {
  it('removes files without a row and uploads that stand still, and nothing else', async () => {
    await bring('kept', 'k');
    await artifacts.receive(bringer, piece('open', Buffer.alloc(50), 0, 10));
    await writeFile(join(folder, 'kept', 'f'.repeat(32)), 'orphan');
    await writeFile(join(folder, 'kept', 'notes.txt'), 'a person put this here');
    expect(await artifacts.sweep(Date.now() - 60_000)).toBe(0);
    for (const name of await incoming()) await utimes(join(folder, 'incoming', name), 1, 1);
    expect(await artifacts.sweep(Date.now() + 60_000)).toBe(2);
    expect((await kept()).sort()).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), 'notes.txt']);
    expect(await incoming()).toEqual([]);
    expect(await text((await artifacts.open(core.store.ids.decode((await records())[0]!.artifactId)!))!.body)).toBe(
      'k',
    );
  });

  it('takes the files of tasks that were pruned', async () => {
    await bring('f', 'x');
    await end();
    const { store, clock } = core;
    const archive = createArchive({ folder: join(core.folder, 'archive'), clock });
    const retention = new Retention({
      store,
      clock,
      log: silentLog,
      archive,
      retentionMs: 7 * 86_400_000,
      pauseMs: 0,
      monotonic: () => clock.now(),
    });
    core.pass(8 * 86_400_000);
    expect((await retention.runOnce()).pruned).toMatchObject({ task: 1 });
    expect(await records()).toEqual([]);
    expect(await artifacts.sweep(Date.now() + 60_000)).toBe(1);
    expect(await kept()).toEqual([]);
  });
});

it('no statement walks a table', () => {
  const connection = new Database(core.path, { readonly: true });
  const statements = Object.values(queries) as unknown as HotQuery<Record<string, unknown>, unknown>[];
  for (const query of statements) {
    const scans = planOf(connection, query).filter((step) => /^SCAN (?!jsonb_each|CONSTANT ROW|r\b)/.test(step));
    expect([query.name, scans]).toEqual([query.name, []]);
  }
  connection.close();
});
