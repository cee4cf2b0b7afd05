import { join } from 'node:path';
import { sql } from 'kysely';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/log.ts';
import { createArchive } from '../../src/retention/archive.ts';
import { Retention } from '../../src/retention/retention.ts';
import type { Store } from '../../src/store/store.ts';
import { Core, newTask } from '../support/core.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** From now on the file may not grow; it is filled up to its last page. */
async function fillUp(store: Store): Promise<void> {
  await store.transact('test.limit', async (tx) => {
    const [row] = await tx.fetch(sql<{ page_count: number }>`pragma page_count`);
    await tx.fetch(sql`pragma max_page_count = ${sql.lit(row!.page_count + 50)}`);
  });
  for (const bytes of [40_000, 3_000, 300]) {
    for (let n = 0; ; n += 1) {
      const key = `${bytes}.${n}`;
      const full = await store
        .transact('test.fill', (tx) =>
          tx.exec(sql`insert into channel_state values ('fill', 'a', ${key}, ${'x'.repeat(bytes)})`),
        )
        .then(
          () => false,
          (error: { code: string }) => error.code === 'storage_full',
        );
      if (full) break;
    }
  }
}

const makeRoom = (store: Store) =>
  store.transact('test.room', (tx) => tx.fetch(sql`pragma max_page_count = 1000000`)).then(() => undefined);

describe('A44: a full disk', () => {
  it('refuses new work clearly, keeps what was accepted, and heals without a restart', async () => {
    const gateway = await TestGateway.start();
    cleanups.push(() => gateway.stop());
    const { store } = gateway.gateway.rooms;
    await gateway.agent('agent-1', { AGENT_CONCURRENCY: '2' });
    const submit = (args: Record<string, unknown>, template = 'hello') =>
      gateway.api<{ taskId?: string; code?: string }>('POST', '/api/tasks', { template, args });
    const accepted = [(await submit({ seconds: 2 }, 'sleep')).body.taskId!];
    const statusOf = async (id: string) =>
      (await gateway.api<{ status: string }>('GET', `/api/tasks/${id}`)).body.status;
    await until(async () => (await statusOf(accepted[0]!)) === 'running', 'the task to run');
    await fillUp(store);
    const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => submit({ name: `${n}-`.repeat(8) })));
    const refused = answers.filter(({ status }) => status === 507);
    expect(refused.length).toBeGreaterThan(0);
    expect(refused[0]!.body.code).toBe('storage_full');
    expect(new Set(answers.map(({ status }) => status))).toEqual(
      new Set([...answers.filter(({ status }) => status === 201).map(() => 201), 507]),
    );
    for (const { status, body } of answers) if (status === 201) accepted.push(body.taskId!);
    expect(await gateway.api('GET', '/healthz')).toMatchObject({ status: 200 });
    const said: { status: number; code?: string }[] = [];
    for (let n = 0; n < 60; n += 1) {
      const { status, body } = await gateway.api<{ code?: string }>('POST', '/api/chat/messages', {
        text: `/status ${n} ${'x'.repeat(3_000)}`,
      });
      said.push({ status, ...body });
    }
    const unheard = said.filter(({ status }) => status !== 202);
    expect(unheard.length).toBeGreaterThan(0);
    for (const answer of unheard) expect(answer).toMatchObject({ status: 507, code: 'storage_full' });
    await makeRoom(store);
    for (const id of accepted) await until(async () => (await statusOf(id)) === 'succeeded', `task ${id}`);
    const heard = await store.fetch(store.dialect.build.selectFrom('inbox').select('id'));
    expect(heard).toHaveLength(said.length - unheard.length);
    expect(await gateway.api('GET', '/readyz')).toMatchObject({ status: 200 });
    expect((await submit({ name: 'Ada' })).status).toBe(201);
  }, 120_000);

  it('tasks still end, what is old is still pruned, and that makes room', async () => {
    const core = await Core.open();
    cleanups.push(() => core.close());
    const { store, clock } = core;
    let uptime = 0;
    const ids = (
      await core.createAll(Array.from({ length: 400 }, (_, n) => newTask({ args: { n: `${n}`.repeat(300) } })))
    ).map(({ id }) => id);
    for (const id of ids.slice(0, 300)) await core.cancel(id);
    core.pass(7 * 86_400_000);
    uptime += 7 * 86_400_000;
    await fillUp(store);
    const more = Array.from({ length: 200 }, (_, n) => newTask({ args: { n: `${n}`.repeat(300) } }));
    await expect(core.createAll(more)).rejects.toMatchObject({ code: 'storage_full', status: 507 });
    expect(await core.cancel(ids.at(-1)!)).toEqual({ result: 'cancelled' });
    const archive = createArchive({ folder: join(core.folder, 'archive'), clock });
    const service = new Retention({
      store,
      clock,
      log: silentLog,
      archive,
      retentionMs: 7 * 86_400_000,
      pauseMs: 0,
      monotonic: () => uptime,
    });
    expect((await service.runOnce()).pruned).toEqual({ task: 300 });
    expect((await core.createAll(more)).every(({ result }) => result === 'created')).toBe(true);
  });
});
