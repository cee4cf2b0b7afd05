import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { hot } from '../../src/store/dialect.ts';
import { EventQueue } from '../../src/store/events.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import type { Tx, Verb } from '../../src/store/tx.ts';
import { countByStatus } from '../../src/tasks/queries.ts';

let folder: string;
let store: Store;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-store-'));
  store = openSqlite({ path: join(folder, 'errand.db') });
});
afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const put = (tx: Tx, value: string) =>
  tx.exec(tx.dialect.build.insertInto('channel_state').values({ channel: 'c', account: 'a', key: value, value: '1' }));
const stored = async (reader: Pick<Store, 'fetch' | 'dialect'> = store) =>
  (await reader.fetch(reader.dialect.build.selectFrom('channel_state').select('key').orderBy('key'))).map(
    (row) => row.key,
  );

/** Stores each item; throws over the item `bad`. Remembers the batches it was given. */
function storing(name = 'test.put', rank?: number): Verb<string, string> & { batches: string[][] } {
  const batches: string[][] = [];
  return {
    name,
    batches,
    ...(rank === undefined ? {} : { rank }),
    async run(tx, items) {
      batches.push([...items]);
      for (const item of items) {
        if (item.startsWith('bad')) throw new Error(`no ${item}`);
        await put(tx, item);
      }
      return items.map((item) => item.toUpperCase());
    },
  };
}
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

it('units that arrive while a turn is handed over belong to the next turn, and each caller gets its own answer', async () => {
  const order: string[] = [];
  let late: Promise<string[]> | undefined;
  const inner = storing('test.late');
  const verb: Verb<string, string> = {
    name: 'test.first',
    run: async (tx, items) => {
      for (const item of items) await put(tx, item);
      // Within the hand-over: after the queue was taken and before its callers are answered.
      tx.afterCommit(() => {
        late ??= store.write(inner, ['late']);
        order.push('committed');
      });
      return items.map((item) => `1:${item}`);
    },
  };
  const early = [store.write(verb, ['a']), store.write(verb, ['b'])];
  expect(await Promise.all(early)).toEqual([['1:a'], ['1:b']]);
  expect([order, store.stats().transactions, await stored()]).toEqual([['committed'], 1, ['a', 'b']]);
  expect(await late).toEqual(['LATE']);
  expect([inner.batches, store.stats().transactions]).toEqual([[['late']], 2]);
});

it('calls of one turn share one transaction and each verb runs once over all their items', async () => {
  const one = storing('test.one', 60);
  const two = storing('test.two', 10);
  const order: string[] = [];
  const note = (verb: typeof one): Verb<string, string> => ({
    ...verb,
    run: (tx, items) => {
      order.push(verb.name);
      return verb.run(tx, items);
    },
  });
  const [first, second] = [note(one), note(two)];
  const answers = await Promise.all([
    store.write(first, ['a', 'b']),
    store.write(second, ['c']),
    store.write(first, ['d']),
    store.transact('test.three', async (tx) => put(tx, 'e')),
  ]);
  expect(answers).toEqual([['A', 'B'], ['C'], ['D'], 1]);
  expect([one.batches, two.batches]).toEqual([[['a', 'b', 'd']], [['c']]]);
  expect(order).toEqual(['test.two', 'test.one']);
  expect(store.stats()).toMatchObject({ transactions: 1, units: 4, rollbacks: 0 });
});

it('500 callers of one turn cost one commit; a very large turn is cut so that nobody waits for all of it', async () => {
  const verb = storing();
  await Promise.all(Array.from({ length: 500 }, (_, n) => store.write(verb, [`k${n}`])));
  expect(store.stats().transactions).toBe(1);
  await Promise.all(
    Array.from({ length: 5 }, (_, n) =>
      store.write(
        verb,
        Array.from({ length: 400 }, (_u, m) => `m${n}.${m}`),
      ),
    ),
  );
  expect(store.stats().transactions).toBe(4);
  expect(verb.batches.every((batch) => batch.length <= 1_000)).toBe(true);
  expect(await stored()).toHaveLength(2_500);
});

it('a unit larger than a turn is still one transaction', async () => {
  await store.write(
    storing(),
    Array.from({ length: 2_500 }, (_, n) => `k${n}`),
  );
  expect(store.stats().transactions).toBe(1);
});

it('a unit that throws fails alone and its neighbours commit', async () => {
  const verb = storing();
  const results = await Promise.allSettled([
    store.write(verb, ['a']),
    store.write(verb, ['b', 'bad one', 'c']),
    store.write(verb, ['d']),
    store.transact('test.other', async (tx) => put(tx, 'e')),
  ]);
  expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
  expect((results[1] as PromiseRejectedResult).reason).toEqual(new Error('no bad one'));
  expect(await stored()).toEqual(['a', 'd', 'e']);
});

it('a caller that was answered beside a failing one may use the store at once, however deep its own calls are', async () => {
  const verb = storing();
  const readsAfter = async (steps: number) => {
    await store.write(verb, [`after ${steps}`]);
    // Every layer of a caller's own async functions is one more step of the same turn.
    for (let n = 0; n < steps; n += 1) await null;
    return stored();
  };
  const callers = Array.from({ length: 25 }, (_, steps) => readsAfter(steps));
  const results = await Promise.allSettled([...callers, store.write(verb, ['bad'])]);
  expect(results.map(({ status }) => status)).toEqual([...callers.map(() => 'fulfilled'), 'rejected']);
});

it('a verb that answers too few items is a fault of its own, not of its neighbours', async () => {
  const short: Verb<string, string> = {
    name: 'test.short',
    run: async (tx, items) => {
      await put(tx, 'short');
      return items.slice(1);
    },
  };
  const results = await Promise.allSettled([store.write(short, ['x']), store.write(storing(), ['a'])]);
  expect(results.map((result) => result.status)).toEqual(['rejected', 'fulfilled']);
  expect(String((results[0] as PromiseRejectedResult).reason)).toContain('test.short answered 0 of 1 items');
  expect(await stored()).toEqual(['a']);
});

it('what is to happen after the commit happens once, after it, and never after a rollback', async () => {
  const seen: string[] = [];
  const probe = new Database(join(folder, 'errand.db'), { readonly: true });
  const rows = probe.prepare('select count(*) from channel_state').pluck();
  const work = (value: string) => async (tx: Tx) => {
    await put(tx, value);
    tx.afterCommit(() => seen.push(`${value}: ${rows.get()} rows`));
    if (value === 'bad') throw new Error('no');
  };
  await Promise.allSettled(['a', 'bad', 'b'].map((value) => store.transact(`test.${value}`, work(value))));
  probe.close();
  expect(seen).toEqual(['a: 1 rows', 'b: 2 rows']);
});

it('the store itself, used inside a transaction, says so at once instead of hanging', async () => {
  const uses: Record<string, (inner: Store) => Promise<unknown>> = {
    write: (inner) => inner.write(storing(), ['x']),
    transact: (inner) => inner.transact('test.inner', async () => 1),
    all: (inner) =>
      inner.all(
        hot<Record<string, never>, unknown>('test.select', (d) => d.build.selectFrom('meta').selectAll()),
        {},
      ),
    fetch: (inner) => countByStatus(inner),
  };
  for (const [name, use] of Object.entries(uses)) {
    const attempt = store.transact('test.outer', async (tx) => {
      await put(tx, name);
      await use(store);
    });
    await expect(attempt, name).rejects.toThrow(/used inside a transaction/);
  }
  expect(await stored()).toEqual([]);
  await store.write(storing(), ['goes on']);
  expect(await stored()).toEqual(['goes on']);
});

it('a verb that awaits something foreign is rolled back with an error; the others and the store go on', async () => {
  let wake: () => void = () => undefined;
  const foreign = new Promise<void>((resolve) => {
    wake = resolve;
  });
  const waits = store.transact('test.waits', async (tx) => {
    await put(tx, 'half');
    await foreign;
    await put(tx, 'other half');
  });
  const results = await Promise.allSettled([waits, store.write(storing(), ['a'])]);
  expect(results.map((result) => result.status)).toEqual(['rejected', 'fulfilled']);
  expect(String((results[0] as PromiseRejectedResult).reason)).toMatch(
    /awaited something outside of itself.*test\.waits/,
  );
  expect(await stored()).toEqual(['a']);
  // What it still does when its wait is over reaches no later transaction.
  const next = store.write(storing(), ['b']);
  wake();
  await next;
  await turn();
  expect(await stored()).toEqual(['a', 'b']);
});

it('a transaction that is over refuses its tx', async () => {
  const kept: Tx[] = [];
  await store.transact('test.keep', async (tx) => void kept.push(tx));
  await expect(put(kept[0]!, 'x')).rejects.toThrow(/transaction is over/);
  await expect(kept[0]!.ids(1)).rejects.toThrow(/transaction is over/);
});

it('readers never see uncommitted rows', async () => {
  const reader = new Database(join(folder, 'errand.db'), { readonly: true });
  const count = reader.prepare('select count(*) from channel_state').pluck();
  const during: unknown[] = [];
  await store.transact('test.write', async (tx) => {
    await put(tx, 'a');
    during.push(count.get(), (await stored(tx)).length);
  });
  reader.close();
  expect(during).toEqual([0, 1]);
  expect(await stored()).toEqual(['a']);
});

it('the time of a transaction stands still, and a parameter that is undefined is refused', async () => {
  const times = await store.transact('test.now', async (tx) => {
    const first = tx.now;
    await put(tx, 'a');
    return [first, tx.now];
  });
  expect(times[0]).toBe(times[1]);
  const missing = store.transact('test.undefined', (tx) =>
    tx.exec(
      tx.dialect.build
        .updateTable('channel_state')
        .set({ value: '2' })
        .where('key', '=', undefined as never),
    ),
  );
  await expect(missing).rejects.toThrow(/undefined/);
});

it('closing answers what was accepted and refuses what comes later', async () => {
  const verb = storing();
  const accepted = store.write(verb, ['a']);
  const closed = store.close();
  await expect(store.write(verb, ['b'])).rejects.toThrow(/closed/);
  expect(await accepted).toEqual(['A']);
  await closed;
  store = openSqlite({ path: join(folder, 'errand.db') });
  expect(await stored()).toEqual(['a']);
});

it('nothing to do costs no transaction', async () => {
  expect(await store.write(storing(), [])).toEqual([]);
  await turn();
  expect(store.stats()).toMatchObject({ transactions: 0, units: 0 });
});

it('events are drained before the commit, in the order of subscription, until nobody emits more', async () => {
  const queue = new EventQueue<string>();
  const heard: string[] = [];
  queue.subscribe(async (tx, events) => {
    heard.push(`1:${events}`);
    if (events.includes('a')) queue.emit(tx, ['from 1']);
    await put(tx, `by ${events}`);
  });
  queue.subscribe(async (_tx, events) => void heard.push(`2:${events}`));
  store.onBeforeCommit((tx) => queue.drain(tx));
  await store.transact('test.emit', async (tx) => {
    queue.emit(tx, ['a']);
    queue.emit(tx, ['b']);
  });
  expect(heard).toEqual(['1:a,b', '2:a,b', '1:from 1', '2:from 1']);
  expect(await stored()).toEqual(['by a,b', 'by from 1']);
});

it('a subscriber that throws takes the change with it, and its events are gone', async () => {
  const queue = new EventQueue<string>();
  const heard: string[] = [];
  queue.subscribe(async (_tx, events) => {
    heard.push(...events);
    if (events.includes('bad')) throw new Error('no');
  });
  store.onBeforeCommit((tx) => queue.drain(tx));
  const change = (value: string) =>
    store.transact(value, async (tx) => {
      await put(tx, value);
      queue.emit(tx, [value]);
    });
  await expect(change('bad')).rejects.toThrow('no');
  heard.length = 0;
  await change('good');
  expect([heard, await stored()]).toEqual([['good'], ['good']]);
});

it('a patient unit lets the others of its turn go first, in a transaction of their own, and follows at once', async () => {
  const verb = storing();
  const order: string[] = [];
  const told = (name: string) => () => order.push(name);
  const patient = store.write(verb, ['patient'], 60_000).then(told('patient'));
  const urgent = store.write(verb, ['urgent']).then(told('urgent'));
  await Promise.all([patient, urgent]);
  expect([order, verb.batches, store.stats().transactions]).toEqual([
    ['urgent', 'patient'],
    [['urgent'], ['patient']],
    2,
  ]);
});

it('patient units alone are stored when their patience is over, all together', async () => {
  const verb = storing();
  await Promise.all([store.write(verb, ['a'], 30), store.write(verb, ['b'], 20)]);
  expect([verb.batches, await stored()]).toEqual([[['a', 'b']], ['a', 'b']]);
});

it('closing does not wait for patience, and loses nothing that was accepted', async () => {
  const patient = store.write(storing(), ['a'], 3_600_000);
  await store.close();
  expect(await patient).toEqual(['A']);
  store = openSqlite({ path: join(folder, 'errand.db') });
  expect(await stored()).toEqual(['a']);
});
