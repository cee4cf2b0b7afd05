import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Core } from '../support/core.ts';

let core: Core;
const children: ChildProcess[] = [];
beforeEach(async () => {
  core = await Core.open();
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await core.close();
});

/** Another process that writes to the file (a backup, a shell) and holds its transaction for so long; resolves when it has it. */
async function holder(holdMs: number): Promise<void> {
  const script = join(core.folder, `holder-${holdMs}.cjs`);
  const driver = createRequire(import.meta.url).resolve('better-sqlite3');
  await writeFile(
    script,
    `
    const Database = require(${JSON.stringify(driver)});
    const other = new Database(${JSON.stringify(core.path)});
    other.exec("begin immediate; insert into meta (key, value) values ('other', '1') on conflict do nothing");
    process.send('held');
    setTimeout(() => { other.exec('commit'); other.close(); process.disconnect(); }, ${holdMs});
  `,
  );
  const child = fork(script);
  children.push(child);
  await once(child, 'message');
}

describe('A42: another process writes to the same file', () => {
  it('for a moment: a pull waits for it, and what it leases is committed', async () => {
    const id = await core.create();
    await holder(700);
    const grant = await core.claim();
    const reader = new Database(core.path, { readonly: true });
    expect(reader.prepare('select status, run_id from task where id = ?').get(id)).toEqual({
      status: 'leased',
      run_id: grant.runId,
    });
    reader.close();
  });

  it('for too long: everybody is told that it is unavailable, nothing is half done, and it goes on by itself', async () => {
    const id = await core.create();
    await holder(60_000);
    const calls = await Promise.allSettled([core.claim(), core.create(), core.cancel(id)]);
    expect(calls.map((call) => call.status === 'rejected' && (call.reason as { code?: string }).code)).toEqual([
      'unavailable',
      'unavailable',
      'unavailable',
    ]);
    children[0]!.kill('SIGKILL');
    await once(children[0]!, 'exit');
    expect(await core.task(id)).toMatchObject({ status: 'queued', cancel_requested_at: null });
    expect(await core.runs(id)).toEqual([]);
    await core.claim();
  }, 60_000);

  it('between a read and a write of one transaction: the transaction has the file from its first statement on', async () => {
    await core.create();
    const other = new Database(core.path, { timeout: 0 });
    const seen = await core.store.transact('test.read_then_write', async (tx) => {
      const before = await tx.fetch(tx.dialect.build.selectFrom('task').select('id'));
      const refused = (() => {
        try {
          other.exec("insert into meta (key, value) values ('other', '1')");
          return 'written';
        } catch (error) {
          return (error as { code: string }).code;
        }
      })();
      await tx.exec(tx.dialect.build.updateTable('task').set({ label: 'mine' }));
      return { before: before.length, refused };
    });
    other.close();
    expect(seen).toEqual({ before: 1, refused: 'SQLITE_BUSY' });
  });
});
