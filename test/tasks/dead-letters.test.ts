import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { compileWith, sqliteDialect } from '../../src/store/dialect.ts';
import type { DeadLetterTable } from '../../src/store/retry-tables.ts';
import type { Reader } from '../../src/store/tx.ts';
import { buryDead, discardLetters, letterState, replayLetters } from '../../src/tasks/dead-letters.ts';
import { type LetterFilter, selectLetters } from '../../src/tasks/dead-letters-queries.ts';
import type { RetryOrder } from '../../src/tasks/retry.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, LEASE_MS, newTask, SESSION, START } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

const permanent = { type: 'failed', errorClass: 'permanent', error: 'no such room' } as const;
const success = { type: 'succeeded', summary: 'ok' } as const;
const letters = (filter: Partial<LetterFilter> = {}) => selectLetters(core.store, { limit: 100, ...filter });
const replay = (...orders: (number | Partial<RetryOrder>)[]) =>
  core.store.transact('test.replay', (tx) =>
    replayLetters(
      tx,
      orders.map((order) => ({ id: 0, by: 'test', ...(typeof order === 'number' ? { id: order } : order) })),
      core.emit,
    ),
  );
const discard = (id: number, reason: string | null = 'too old') =>
  core.store.transact('test.discard', (tx) => discardLetters(tx, [{ id, by: 'test', reason }]));
const audits = () =>
  core.store.fetch(
    core.store.dialect.build.selectFrom('audit').select(['actor', 'action', 'target', 'data']).orderBy('id'),
  );

/** A task that has died once. */
async function deadOne(more = {}): Promise<number> {
  const id = await core.ask(more);
  await core.tell(await core.run(), permanent);
  return id;
}

describe('whatever ends without success leaves a letter', () => {
  it('failed, with what is known of it', async () => {
    const id = await deadOne();
    expect(await letters()).toEqual([
      {
        task_id: id,
        seq: expect.any(Number),
        template: 't',
        session_key: SESSION,
        state: 'dead',
        status: 'failed',
        generation: 1,
        attempt: 1,
        deaths: 1,
        error: 'no such room',
        errorZh: null,
        error_class: 'permanent',
        reason: 'permanent_error',
        first_died_at: START,
        died_at: START,
        decided_at: null,
        decided_by: null,
        note: null,
        task_status: 'failed',
        label: null,
        args: '{}',
      } satisfies DeadLetterTable & Record<string, unknown>,
    ]);
  });

  it('timed out, lost, and never taken before its time to live was over', async () => {
    const once = { retry: { ...DEFAULT_RETRY, max: 1 } };
    const timedOut = await core.create(once);
    await core.tell(await core.run(), { type: 'timed_out' });
    const lost = await core.create(once);
    await core.run();
    core.clock.advance(LEASE_MS);
    await core.sweep();
    const expired = await core.create({ ttlMs: 1_000 });
    core.clock.advance(1_000);
    await core.sweep();
    expect((await letters()).map(({ task_id, status }) => [task_id, status])).toEqual([
      [expired, 'failed'],
      [lost, 'lost'],
      [timedOut, 'timed_out'],
    ]);
  });

  it('but not a success, a cancel, another try or a wait', async () => {
    await core.create();
    await core.tell(await core.run(), success);
    const cancelled = await core.create();
    await core.cancel(cancelled);
    await core.create();
    await core.tell(await core.run(), { type: 'blocked', summary: 'quota' });
    await core.create();
    await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'busy' });
    expect(await letters()).toEqual([]);
  });

  it('and a success does not even look', async () => {
    await core.create();
    await core.tell(await core.run(), success);
    const events = core.events.filter(({ type }) => type === 'task.ended');
    expect(events).toHaveLength(1);
    await core.store.transact('test.bury', async (tx) => {
      const before = await tx.ids(1);
      await buryDead(tx, events);
      expect(await tx.ids(1)).toBe(before + 1);
    });
  });

  it('is part of the transaction of the end', async () => {
    const id = await core.create();
    const { runId, leaseToken } = await core.run();
    const report = { agentId: 'a1', runId, leaseToken, seq: 9_001, news: permanent };
    const both = [core.store.write(core.verbs.report, [report]), core.store.write(core.verbs.report, [report])];
    await Promise.all(both);
    expect(await letters()).toMatchObject([{ task_id: id, deaths: 1 }]);
  });
});

describe('A19: one letter per task', () => {
  it('however often it dies, with a count, and at the head of the list again', async () => {
    const id = await deadOne();
    core.clock.advance(1_000);
    const other = await deadOne();
    for (let deaths = 2; deaths <= 3; deaths += 1) {
      core.clock.advance(1_000);
      expect(await replay(id)).toEqual([{ result: 'done' }]);
      expect(await letters()).toHaveLength(2);
      await core.tell(await core.run(), { ...permanent, error: `death ${deaths}` });
      expect(await letters()).toMatchObject([
        {
          task_id: id,
          state: 'dead',
          deaths,
          generation: deaths,
          error: `death ${deaths}`,
          decided_at: null,
          first_died_at: START,
        },
        { task_id: other, deaths: 1 },
      ]);
    }
    expect(await core.runs(id)).toHaveLength(3);
    expect(core.endings(id)).toHaveLength(3);
  });

  it('two people who replay it at once make one new run', async () => {
    const id = await deadOne();
    const answers = (await Promise.all([replay(id), replay(id)])).flat();
    expect(answers).toEqual([{ result: 'done' }, { result: 'refused', state: 'replayed' }]);
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2, attempt: 0 });
    expect(await core.claimAll('a1', { max: 10 })).toHaveLength(1);
    expect(await replay(id)).toEqual([{ result: 'refused', state: 'replayed' }]);
    expect(await audits()).toHaveLength(1);
  });

  it('twice in one call is once', async () => {
    const id = await deadOne();
    await replay(id, id);
    expect(await core.task(id)).toMatchObject({ generation: 2 });
    expect(await audits()).toHaveLength(1);
  });
});

describe('replay', () => {
  it('runs the same task again, is written down, and the letter recovers with the success', async () => {
    const id = await deadOne({ priority: 'high' });
    core.clock.advance(5_000);
    await replay({ id, by: 'person:x', reason: 'the room exists now' });
    expect(await letters()).toMatchObject([
      { state: 'replayed', decided_at: START + 5_000, decided_by: 'person:x', note: 'the room exists now', deaths: 1 },
    ]);
    expect(await audits()).toEqual([
      {
        actor: 'person:x',
        action: 'dead_letter.replayed',
        target: `task#${id}`,
        data: '{"reason":"the room exists now"}',
      },
    ]);
    expect(await core.task(id)).toMatchObject({ status: 'queued', generation: 2, priority: 0, error: null });
    expect(await core.flowOf(id)).toMatchObject({ status: 'active' });
    await core.tell(await core.run(), success);
    const [letter] = await letters();
    expect(letterState(letter!)).toBe('recovered');
    expect(await letters({ state: 'replayed' })).toEqual([]);
    expect(await letters({ state: 'recovered' })).toHaveLength(1);
    expect(await replay(id)).toEqual([{ result: 'refused', state: 'recovered' }]);
    expect(await core.flowOf(id)).toMatchObject({ status: 'finished' });
  });

  it('with other arguments replaces them, forgets the checkpoint, keeps the key, and the old ones are in the audit', async () => {
    const id = await core.ask({ args: { room: '1' }, idempotencyKey: 'k' });
    const grant = await core.run();
    await core.tell(grant, { type: 'checkpoint', data: 1 });
    await core.tell(grant, permanent);
    const before = await core.task(id);
    const args = { from: { room: '1' }, to: { room: '2' } };
    await replay({ id, args });
    const { idempotency, payload_digest } = before;
    expect(await core.task(id)).toMatchObject({
      args: '{"room":"2"}',
      checkpoint_version: null,
      idempotency,
      payload_digest,
    });
    expect(await core.checkpoint(id)).toBeUndefined();
    expect(await audits()).toMatchObject([{ data: JSON.stringify({ args }) }]);
    // Who repeats the request as it was is still told about the same task.
    const again = newTask({ args: { room: '1' }, idempotencyKey: 'k', sessionKey: SESSION });
    expect(await core.createAll([again])).toMatchObject([{ result: 'existing', id }]);
  });

  it('without other arguments goes on from the checkpoint', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, { type: 'checkpoint', data: 1 });
    await core.tell(grant, permanent);
    await replay(id);
    expect(await core.checkpoint(id)).toMatchObject({ data: '1', version: 1 });
    expect((await core.claim()).task.checkpoint_version).toBe(1);
  });

  it('is what a person’s /retry is, too', async () => {
    const id = await deadOne();
    expect(await core.retry(id)).toEqual({ result: 'queued' });
    expect(await letters()).toMatchObject([{ state: 'replayed', decided_by: 'test' }]);
    expect(await audits()).toMatchObject([{ action: 'dead_letter.replayed' }]);
    await core.cancel(id);
    expect(await letters({ state: 'replayed' })).toMatchObject([{ task_status: 'cancelled' }]);
    await core.retry(id);
    expect(await audits()).toHaveLength(1);
  });

  it('of what never died is no letter', async () => {
    const id = await core.create();
    expect(await replay(id, 4_711)).toEqual([{ result: 'unknown' }, { result: 'unknown' }]);
    expect(await core.task(id)).toMatchObject({ generation: 1 });
  });
});

describe('discard', () => {
  it('puts the letter away with a reason, and the task stays as it ended', async () => {
    const id = await deadOne();
    expect(await discard(id)).toEqual([{ result: 'done' }]);
    expect(await letters()).toMatchObject([{ state: 'discarded', note: 'too old', decided_by: 'test' }]);
    expect(await core.task(id)).toMatchObject({ status: 'failed', generation: 1 });
    expect(await discard(id)).toEqual([{ result: 'refused', state: 'discarded' }]);
    expect(await audits()).toMatchObject([{ action: 'dead_letter.discarded', data: '{"reason":"too old"}' }]);
  });

  it('is no last word: it can be replayed, and one that was replayed cannot be discarded', async () => {
    const id = await deadOne();
    await discard(id, null);
    expect(await replay(id)).toEqual([{ result: 'done' }]);
    expect(await discard(id)).toEqual([{ result: 'refused', state: 'replayed' }]);
    expect((await audits()).map(({ action }) => action)).toEqual(['dead_letter.discarded', 'dead_letter.replayed']);
  });

  it('and a replay that comes right after it: the replay counts, as it may be taken back', async () => {
    const id = await deadOne();
    const answers = (await Promise.all([discard(id), replay(id)])).flat();
    expect(answers).toEqual([{ result: 'done' }, { result: 'done' }]);
    expect(await letters()).toMatchObject([{ state: 'replayed' }]);
  });
});

it('A72: a dead task holds no place that others wait for', async () => {
  const tasks = await core.createAll([newTask(), newTask()]);
  await core.tell(await core.run(), permanent);
  expect(await letters()).toMatchObject([{ task_id: tasks[0]!.id }]);
  expect((await core.claim()).taskId).toBe(tasks[1]!.id);
});

describe('lists', () => {
  it('filter by state, template, conversation and time, and go on page by page', async () => {
    const ids: number[] = [];
    for (let n = 0; n < 6; n += 1) {
      ids.push(await deadOne({ template: n % 2 ? 'odd' : 'even', ...(n < 3 ? {} : { sessionKey: 'other' }) }));
      core.clock.advance(1_000);
    }
    await discard(ids[0]!);
    const found = async (filter: Partial<LetterFilter>) =>
      (await letters(filter)).map(({ task_id }) => ids.indexOf(task_id));
    expect(await found({})).toEqual([5, 4, 3, 2, 1, 0]);
    expect(await found({ state: 'dead', template: 'even' })).toEqual([4, 2]);
    expect(await found({ sessionKey: SESSION })).toEqual([2, 1, 0]);
    expect(await found({ diedBefore: START + 2_000, oldestFirst: true })).toEqual([0, 1]);
    const page = await letters({ limit: 2 });
    expect(await found({ limit: 2, beforeSeq: page[1]!.seq })).toEqual([3, 2]);
  });

  it.each<[string, Partial<LetterFilter>]>([
    ['all', {}],
    ['a state', { state: 'dead' }],
    ['recovered', { state: 'recovered' }],
    ['a template', { state: 'dead', template: 't' }],
    ['a conversation', { state: 'dead', sessionKey: 's' }],
    ['the next to be decided', { state: 'dead', diedBefore: 5, oldestFirst: true }],
  ])('of %s read an index in order', async (_name, filter) => {
    const plan: string[] = [];
    const connection = new Database(core.path, { readonly: true });
    const reader: Reader = {
      dialect: sqliteDialect,
      all: async () => [],
      fetch: async (query) => {
        const { sql, parameters } = compileWith(sqliteDialect, query);
        const steps = connection.prepare(`explain query plan ${sql}`).all(parameters) as { detail: string }[];
        plan.push(...steps.map(({ detail }) => detail));
        return [];
      },
    };
    await selectLetters(reader, { beforeSeq: 9, limit: 50, ...filter });
    connection.close();
    expect(plan.length).toBeGreaterThan(1);
    expect(plan.filter((step) => /^SCAN|TEMP B-TREE/.test(step))).toEqual([]);
  });
});
