import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { silentLog } from '../../src/log.ts';
import type { Store } from '../../src/store/store.ts';
import type { Grant } from '../../src/tasks/claim.ts';
import { LogFollows, type LogFollowsOptions, type LogItem } from '../../src/tasks/log-follow.ts';
import { logsAfter, logsAtEnd, logTaskState } from '../../src/tasks/log-queries.ts';
import { LOG_BEGINNING, type LogCursor, readLogPage } from '../../src/tasks/log-reading.ts';
import { Core } from '../support/core.ts';
import { planOf } from '../support/plans.ts';
import { until } from '../support/until.ts';

let core: Core;
const aborts: AbortController[] = [];
beforeEach(async () => {
  core = await Core.open();
});
afterEach(async () => {
  for (const abort of aborts.splice(0)) abort.abort();
  await core.close();
});

function open(more: Partial<LogFollowsOptions> = {}): LogFollows {
  return new LogFollows({ store: core.store, log: silentLog, everyMs: 5, ...more });
}

/** Follows in the background; answers what came so far. */
function follow(follows: LogFollows, task: number, after: LogCursor = LOG_BEGINNING) {
  const abort = new AbortController();
  aborts.push(abort);
  const items: LogItem[] = [];
  const done = (async () => {
    for await (const item of follows.follow({ task, after, signal: abort.signal })) items.push(item);
  })();
  return { items, done, abort, texts: () => items.flatMap((item) => (item.type === 'log' ? [item.text] : [])) };
}

/** A follower that has read what there was and is live, read by hand; and another that reads at once. */
async function oneLive(follows: LogFollows, task: number, grant: Grant) {
  const abort = new AbortController();
  aborts.push(abort);
  const items = follows.follow({ task, after: LOG_BEGINNING, signal: abort.signal });
  const other = follow(open(), task);
  await core.tell(grant, line('begin\n'));
  expect((await items.next()).value).toMatchObject({ type: 'attempt' });
  expect((await items.next()).value).toMatchObject({ text: 'begin\n' });
  // It is live once it asks for what is not there yet.
  const next = items.next();
  await until(() => other.texts().length === 1);
  await core.tell(grant, line('live\n'));
  expect((await next).value).toMatchObject({ text: 'live\n' });
  return { items, witness: other.texts };
}

const line = (text: string) => ({ type: 'log', stream: 'stdout', text, offset: 0 }) as const;
const END = { type: 'succeeded', summary: 'ok' } as const;

describe('following the log of a task', () => {
  test('what is there comes first, then what is printed, then the end', async () => {
    const id = await core.create();
    const grant = await core.run();
    await core.tell(grant, line('one\n'));
    const following = follow(open(), id);
    await until(() => following.texts().length === 1);
    await core.tell(grant, line('two\n'));
    await until(() => following.texts().length === 2);
    await core.tell(grant, line('three\n'));
    await core.tell(grant, END);
    await following.done;
    expect(following.items.map(({ type }) => type)).toEqual(['attempt', 'log', 'log', 'log', 'end']);
    expect(following.texts()).toEqual(['one\n', 'two\n', 'three\n']);
    expect(following.items.at(-1)).toEqual({ type: 'end', status: 'succeeded' });
  });

  test('it goes on through a retry and says which try follows', async () => {
    const id = await core.create();
    const first = await core.run();
    const following = follow(open(), id);
    await core.tell(first, line('first\n'));
    await core.tell(first, { type: 'failed', errorClass: 'transient', error: 'no' });
    core.pass(600_000);
    const second = await core.run();
    await core.tell(second, line('second\n'));
    await core.tell(second, END);
    await following.done;
    expect(following.items.filter(({ type }) => type === 'attempt')).toMatchObject([{ attempt: 1 }, { attempt: 2 }]);
    expect(following.texts()).toEqual(['first\n', 'second\n']);
  });

  test('a task that a person retries after its end is followed anew from where the reader was', async () => {
    const id = await core.create();
    const first = await core.run();
    await core.tell(first, line('first\n'));
    await core.tell(first, { type: 'failed', errorClass: 'permanent', error: 'no' });
    const follows = open();
    const before = follow(follows, id);
    await before.done;
    expect(before.items.at(-1)).toEqual({ type: 'end', status: 'failed' });
    const { cursor } = await readLogPage(core.store, core.store.ids, id, LOG_BEGINNING);
    await core.retry(id);
    const after = follow(follows, id, cursor);
    const second = await core.run();
    await core.tell(second, line('second\n'));
    await core.tell(second, END);
    await after.done;
    expect(after.texts()).toEqual(['second\n']);
  });

  test('a hundred followers of one task cost the reads of one, and all get all of it once', async () => {
    let reads = 0;
    const store = new Proxy(core.store, {
      get: (target, key) => {
        if (key === 'all')
          return (query: { name: string }, params: never) => {
            if (query === (logsAfter as unknown)) reads += 1;
            return target.all(query as never, params);
          };
        return Reflect.get(target, key, target) as unknown;
      },
    }) as Store;
    const id = await core.create();
    const grant = await core.run();
    // Its looks are an hour apart: what all followers read to catch up is counted, and nothing else.
    const follows = open({ store, everyMs: 3_600_000 });
    const crowd = Array.from({ length: 100 }, () => follow(follows, id));
    await until(() => reads >= 101);
    const before = reads;
    await new Promise((resolve) => setImmediate(resolve));
    expect(reads).toBe(before);
    expect(reads).toBe(101);
    for (const { abort } of crowd) abort.abort();
    await Promise.all(crowd.map(({ done }) => done));
    expect(follows.size).toBe(0);
    await core.tell(grant, END);
  });

  test('who comes while others follow misses nothing and gets nothing twice', async () => {
    const id = await core.create();
    const grant = await core.run();
    const follows = open({ everyMs: 1 });
    const all = [follow(follows, id)];
    for (let n = 0; n < 60; n += 1) {
      await core.tell(grant, line(`${n}\n`));
      if (n % 5 === 0) all.push(follow(follows, id));
    }
    await core.tell(grant, END);
    await Promise.all(all.map(({ done }) => done));
    const expected = Array.from({ length: 60 }, (_, n) => `${n}\n`);
    for (const following of all) expect(following.texts()).toEqual(expected);
  });

  test('a live reader that is too slow gets the newest, and is told how many lines it has missed', async () => {
    const id = await core.create();
    const grant = await core.run();
    const follows = open({ maxWaiting: 1_000, everyMs: 1, patienceMs: 0 });
    const { items, witness } = await oneLive(follows, id, grant);
    for (let n = 0; n < 50; n += 1) await core.tell(grant, line(`${'x'.repeat(98)}\n${n}\n`));
    await until(() => witness().length === 52, 'the other to have read all');
    await core.tell(grant, END);
    const rest: LogItem[] = [];
    for await (const item of items) rest.push(item);
    const kept = rest.filter(({ type }) => type === 'log');
    const omitted = rest.flatMap((item) => (item.type === 'omitted' ? [item.lines] : []));
    expect(kept.length).toBeLessThan(25);
    expect(omitted.reduce((sum, lines) => sum + lines, 0)).toBe(2 * (50 - kept.length));
    expect(kept.at(-1)).toMatchObject({ text: expect.stringMatching(/\n49\n$/) });
    expect(rest.at(-1)).toMatchObject({ type: 'end' });
  });

  test('a burst that is larger than what may wait reaches a reader that keeps up, whole', async () => {
    const id = await core.create();
    const grant = await core.run();
    const follows = open({ maxWaiting: 1_000, everyMs: 1, patienceMs: 3_600_000 });
    const { items } = await oneLive(follows, id, grant);
    for (let n = 0; n < 500; n += 1) await core.tell(grant, line(`${'x'.repeat(98)}${n}\n`));
    await core.tell(grant, END);
    const rest: string[] = [];
    for await (const item of items) if (item.type === 'log') rest.push(item.text.replaceAll('x', ''));
    expect(rest).toEqual(Array.from({ length: 500 }, (_, n) => `${n}\n`));
  });

  test('an aborted follower ends at once, and nothing reads on for it', async () => {
    const id = await core.create();
    await core.run();
    const follows = open();
    const following = follow(follows, id);
    await until(() => follows.size === 1);
    following.abort.abort();
    await following.done;
    expect(follows.size).toBe(0);
  });

  test('a task that is gone ends its followers', async () => {
    const following = follow(open(), 999_999);
    await following.done;
    expect(following.items).toEqual([{ type: 'end', status: 'gone' }]);
  });

  test('a late word of a lost run is not among what was printed', async () => {
    const id = await core.create();
    const grant = await core.run();
    core.pass(600_000);
    await core.sweep();
    await core.tell(grant, line('too late\n'));
    expect((await readLogPage(core.store, core.store.ids, id, LOG_BEGINNING)).chunks).toEqual([]);
  });
});

test('every read goes by a primary key', () => {
  const connection = new Database(core.path, { readonly: true });
  try {
    for (const query of [logsAfter, logsAtEnd, logTaskState])
      expect(planOf(connection, query as never).filter((step) => /SCAN|TEMP B-TREE/.test(step))).toEqual([]);
  } finally {
    connection.close();
  }
});
