import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Grant } from '../../src/tasks/claim.ts';
import type { TemplateLimits } from '../../src/tasks/gates.ts';
import { AGING_MS } from '../../src/tasks/lineup.ts';
import type { Priority } from '../../src/tasks/states.ts';
import type { NewTask } from '../../src/tasks/task.ts';
import { BreakerCore } from '../support/breakers.ts';
import { Core, LEASE_MS, newTask, START } from '../support/core.ts';

/** The whole claim over real rows: shares, turns, limits, rates and serial keys. */

let core: Core;
let limits: Map<string, TemplateLimits>;
beforeEach(async () => {
  limits = new Map();
  core = await Core.open({ gates: { limitsOf: (template) => limits.get(template) } });
});
afterEach(() => core.close());

const many = (count: number, more: Partial<NewTask> = {}) =>
  core.createAll(Array.from({ length: count }, () => newTask(more)));
const end = (grant: Pick<Grant, 'runId' | 'leaseToken'>, agentId = 'a1') =>
  core.tell(grant, { type: 'succeeded', summary: 'ok' }, { agentId });

interface Live {
  template: string;
  owner: string;
  pool: string;
  lane: string;
  serial: string;
  live: number;
}

/** What runs at this moment, by the rows alone. */
function live(): Promise<Live[]> {
  return core.store.fetch(sql<Live>`
    select stream.template, stream.owner, substr(stream.queue, 1, instr(stream.queue, '/') - 1) as pool, stream.lane, stream.serial,
      count(*) as live
    from run join task on task.id = run.task_id join stream on stream.id = task.stream_id
    where run.lease_until is not null
    group by stream.template, stream.owner, stream.queue, stream.lane, stream.serial`);
}

function most(rows: readonly Live[], key: (row: Live) => string): number {
  const sums = new Map<string, number>();
  for (const row of rows) sums.set(key(row), (sums.get(key(row)) ?? 0) + row.live);
  return Math.max(0, ...sums.values());
}

/** Takes and ends tasks one after another. */
async function taken(count: number): Promise<number[]> {
  const ids: number[] = [];
  while (ids.length < count) {
    const [grant] = await core.claimAll('a1');
    if (!grant) break;
    ids.push(grant.taskId);
    await end(grant);
  }
  return ids;
}

const prioritiesOf = async (ids: readonly number[]) => {
  const rows = await core.store.fetch(sql<{ id: number; priority: number }>`select id, priority from task`);
  const byId = new Map(rows.map((row) => [row.id, row.priority]));
  return ids.map((id) => byId.get(id)!);
};

describe('shares', () => {
  beforeEach(async () => {
    for (const priority of ['low', 'normal', 'high'] as const) await many(150, { priority });
  });

  it('are 6 : 3 : 1 for an agent that takes one task at a time', async () => {
    const order = await prioritiesOf(await taken(100));
    expect([0, 1, 2].map((level) => order.filter((priority) => priority === level).length)).toEqual([60, 30, 10]);
    expect(order.slice(0, 10)).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 1, 2]);
  });

  it('are 6 : 3 : 1 for an agent that takes 64 at a time', async () => {
    const grants = await core.claimAll('a1', { max: 64 });
    const order = await prioritiesOf(grants.map(({ taskId }) => taskId));
    expect([0, 1, 2].map((level) => order.filter((priority) => priority === level).length)).toEqual([40, 18, 6]);
    const next = await prioritiesOf((await core.claimAll('a1', { max: 64 })).map(({ taskId }) => taskId));
    const both = [...order, ...next];
    expect([0, 1, 2].map((level) => both.filter((priority) => priority === level).length)).toEqual([78, 38, 12]);
  });

  it('go to the others once a priority has run dry, and nothing is left over', async () => {
    const all = await core.claimAll('a1', { max: 1_000 });
    expect(new Set(all.map(({ taskId }) => taskId)).size).toBe(450);
  });
});

it('a low task that has waited long weighs as much as a normal one, and later as a high one', async () => {
  await many(100, { priority: 'low' });
  core.clock.advance(AGING_MS);
  await many(100, { priority: 'high' });
  const shareOf = async () =>
    (await prioritiesOf((await core.claimAll('a1', { max: 40 })).map(({ taskId }) => taskId))).filter((p) => p === 2)
      .length;
  // 6 : 3, then 6 : 6.
  expect(await shareOf()).toBeGreaterThanOrEqual(12);
  core.clock.advance(AGING_MS);
  expect(await shareOf()).toBe(20);
});

describe('A65: a task that is tried again keeps its priority', () => {
  it.each(['fails for a moment', 'loses its agent'])('and is next among 100 low ones when it %s', async (how) => {
    const high = await core.create({ priority: 'high' });
    await many(100, { priority: 'low' });
    const grant = await core.run();
    expect(grant.taskId).toBe(high);
    if (how === 'loses its agent') {
      core.clock.advance(LEASE_MS);
      await core.sweep();
    } else {
      await core.tell(grant, { type: 'failed', errorClass: 'transient', error: 'refused' });
      const { run_at } = await core.task(high);
      const meanwhile = await core.claim();
      expect(await prioritiesOf([meanwhile.taskId])).toEqual([2]);
      await end(meanwhile);
      core.clock.set(run_at);
    }
    expect((await core.claim()).taskId).toBe(high);
  });
});

it('the burst of one owner does not starve another: its task is among the next two', async () => {
  for (let n = 0; n < 10; n += 1) await many(1_000, { sessionKey: 'burst' });
  const first = await core.claim();
  await end(first);
  const quiet = await core.create({ sessionKey: 'quiet' });
  expect(await taken(2)).toContain(quiet);
}, 60_000);

it('within a band it is first come first served, also with equal times and after a restart', async () => {
  const created = (await many(300)).map(({ id }) => id);
  expect(await taken(100)).toEqual(created.slice(0, 100));
  core = await core.reopen();
  expect(await taken(200)).toEqual(created.slice(100));
});

describe('concurrency', () => {
  const set = (kind: string, name: string, concurrency: number | null) =>
    core.store.transact('test.gate', async (tx) => {
      await tx.exec(
        sql`insert into gate (kind, name, concurrency) values (${kind}, ${name}, ${concurrency})
          on conflict (kind, name) do update set concurrency = excluded.concurrency`,
      );
      tx.afterCommit(() => core.line.settingsChanged());
    });

  /** Eight agents take what they can and end it in a scrambled order; after every step the rows are looked at. */
  async function work(queues: string[], check: (rows: readonly Live[]) => void): Promise<number> {
    const held: { grant: Grant; agentId: string }[] = [];
    let done = 0;
    for (let step = 0; step < 400; step += 1) {
      const agentIds = Array.from({ length: 8 }, (_, n) => `a${n}`);
      const answers = await Promise.all(
        agentIds.map((agentId) => core.store.write(core.line.claim, [core.claimOf(agentId, { queues, max: 3 })])),
      );
      for (const [n, [grants]] of answers.entries())
        held.push(...grants!.map((grant) => ({ grant, agentId: agentIds[n]! })));
      check(await live());
      if (held.length === 0) return done;
      for (let n = 0; n < Math.max(1, held.length / 2); n += 1) {
        const [ended] = held.splice((step * 7 + n * 3) % held.length, 1);
        await end(ended!.grant, ended!.agentId);
        done += 1;
      }
      check(await live());
    }
    throw new Error('it does not come to an end');
  }

  it('of a template, an owner, each owner, a pool and a lane is never exceeded, whoever claims at once; all work gets done', async () => {
    limits.set('t1', { concurrency: 3, rate: null });
    await set('owner', '*', 4);
    await set('owner', 'o1', 2);
    await set('pool', 'p1', 5);
    await set('lane', 'slow', 2);
    for (let n = 0; n < 240; n += 60)
      await core.createAll(
        Array.from({ length: 60 }, (_, m) =>
          newTask({
            template: `t${m % 3}`,
            sessionKey: `o${m % 5}`,
            pool: `p${m % 2}`,
            lane: m % 4 === 0 ? 'slow' : 'main',
            priority: (['high', 'normal', 'low'] as const)[m % 3]!,
          }),
        ),
      );
    const done = await work(['p0/shell', 'p1/shell'], (rows) => {
      const of = (name: keyof Live, value: string) => rows.filter((row) => row[name] === value);
      expect(most(of('template', 't1'), ({ template }) => template)).toBeLessThanOrEqual(3);
      expect(most(rows, ({ owner }) => owner)).toBeLessThanOrEqual(4);
      expect(most(of('owner', 'o1'), ({ owner }) => owner)).toBeLessThanOrEqual(2);
      expect(most(of('pool', 'p1'), ({ pool }) => pool)).toBeLessThanOrEqual(5);
      expect(most(of('lane', 'slow'), ({ lane }) => lane)).toBeLessThanOrEqual(2);
    });
    expect(done).toBe(240);
  }, 60_000);

  it('of the built-in lanes holds without being set: cron 1, nested 4, subagent 8', async () => {
    for (const lane of ['cron', 'nested', 'subagent', 'own']) await many(12, { lane, pool: lane });
    const taken = async (lane: string) => (await core.claimAll('a1', { queues: [`${lane}/shell`], max: 20 })).length;
    expect([await taken('cron'), await taken('nested'), await taken('subagent'), await taken('own')]).toEqual([
      1, 4, 8, 12,
    ]);
  });

  it('counts what already runs when the limit is new, and lets nothing start while more runs than a lowered one allows', async () => {
    await many(10);
    const running = await core.claimAll('a1', { max: 3 });
    await set('template', 't', 4);
    expect(await core.claimAll('a1', { max: 10 })).toHaveLength(1);
    await set('template', 't', 2);
    expect(await core.claimAll('a1', { max: 10 })).toEqual([]);
    for (const grant of running.slice(0, 2)) {
      await end(grant);
      expect(await core.claimAll('a1', { max: 10 })).toEqual([]);
    }
    await end(running[2]!);
    expect(await core.claimAll('a1', { max: 10 })).toHaveLength(1);
    await set('template', 't', null);
    expect(await core.claimAll('a1', { max: 10 })).toHaveLength(5);
    // Without a limit they started without being counted: the next limit counts them all the same.
    await set('template', 't', 6);
    await many(5);
    expect(await core.claimAll('a1', { max: 10 })).toEqual([]);
  });

  it('follows a template that is read again, up, down and away', async () => {
    await many(20);
    limits.set('t', { concurrency: 2, rate: null });
    const first = await core.claimAll('a1', { max: 10 });
    expect(first).toHaveLength(2);
    limits.set('t', { concurrency: 5, rate: null });
    expect(await core.claimAll('a1', { max: 10 })).toHaveLength(3);
    limits.delete('t');
    expect(await core.claimAll('a1', { max: 4 })).toHaveLength(4);
    limits.set('t', { concurrency: 9, rate: null });
    expect(await core.claimAll('a1', { max: 10 })).toEqual([]);
    await end(first[0]!);
    expect(await core.claimAll('a1', { max: 10 })).toHaveLength(1);
  });

  it('counts live runs and no others after a restart, whatever slots are left in the table', async () => {
    await many(4, { lane: 'cron' });
    const grant = await core.claim();
    await core.store.transact('test.slots', async (tx) => {
      await tx.exec(sql`insert into slot (scope, run_id) values ('lane:cron', 987654321)`);
    });
    core = await core.reopen();
    expect(await core.claimAll('a2', { max: 9 })).toEqual([]);
    await end(grant);
    expect(await core.claimAll('a2', { max: 9 })).toHaveLength(1);
    const slots = await core.store.fetch(sql<{ n: number }>`select count(*) as n from slot where scope = 'lane:cron'`);
    expect(slots[0]!.n).toBe(1);
  });

  it('leaves no slots behind that nobody counts any more', async () => {
    for (let n = 0; n < 20; n += 1) await core.create({ serialKey: `once-${n}`, lane: 'nested' });
    expect(await taken(20)).toHaveLength(20);
    await core.create({ serialKey: 'live' });
    await core.claim();
    await core.sweep();
    const slots = await core.store.fetch(sql<{ scope: string }>`select scope from slot order by scope`);
    expect(slots.map(({ scope }) => scope)).toEqual(['serial:t:live']);
  });
});

describe('rate', () => {
  beforeEach(() => limits.set('t', { concurrency: null, rate: { perMs: 60_000, max: 30 } }));

  it('of 30 a minute: a full bucket at once, then one every two seconds, exactly, also across a restart', async () => {
    await many(500);
    let started = (await core.claimAll('a1', { max: 500 })).length;
    expect(started).toBe(30);
    for (let second = 1; second <= 600; second += 1) {
      core.clock.advance(1_000);
      if (second === 301) core = await reopened();
      started += (await core.claimAll('a1', { max: 500, leaseMs: 1e9 })).length;
      expect(started, `after ${second} s`).toBe(30 + Math.floor(second / 2));
    }
    expect(started).toBe(330);
  }, 60_000);

  it('is not saved up beyond the bucket, and other templates are not held back by it', async () => {
    await many(200);
    expect(await core.claimAll('a1', { max: 200 })).toHaveLength(30);
    core.clock.advance(3_600_000);
    const other = await core.create({ template: 'u', priority: 'low' });
    const grants = await core.claimAll('a1', { max: 200 });
    expect(grants).toHaveLength(31);
    expect(grants.map(({ taskId }) => taskId)).toContain(other);
  });

  it('is not held up by a clock that was set back: the bucket counts as full, and fills again from then on', async () => {
    await many(200);
    expect(await core.claimAll('a1', { max: 40 })).toHaveLength(30);
    core.clock.advance(-3 * 3_600_000);
    await many(200);
    expect(await core.claimAll('a1', { max: 40 })).toHaveLength(30);
    expect(await core.claimAll('a1', { max: 40 })).toHaveLength(0);
    core.clock.advance(2_000);
    expect(await core.claimAll('a1', { max: 40 })).toHaveLength(1);
  });

  it('is not spent by a claim that is rolled back', async () => {
    await many(40);
    const failed = core.store.transact('test.rollback', async (tx) => {
      await core.line.claim.run(tx, [core.claimOf('a1', { max: 40 })]);
      throw new Error('lost');
    });
    await expect(failed).rejects.toThrow('lost');
    core.clock.advance(2_000);
    expect(await core.claimAll('a1', { max: 40 })).toHaveLength(30);
  });

  const reopened = async () => {
    await core.halt();
    return Core.open({
      folder: core.folder,
      clock: core.clock,
      gates: { limitsOf: (template) => limits.get(template) },
    });
  };
});

describe('serial keys', () => {
  it('are strictly one at a time and in order, across priorities of agents and restarts; other keys are not held back', async () => {
    const ids = { a: [] as number[], b: [] as number[] };
    for (let n = 0; n < 12; n += 1)
      for (const key of ['a', 'b'] as const)
        ids[key].push(await core.create({ serialKey: key, sessionKey: `o${n % 3}` }));
    const order: number[] = [];
    for (let step = 0; order.length < 24; step += 1) {
      const grants = [...(await core.claimAll('a1', { max: 5 })), ...(await core.claimAll('a1', { max: 5 }))];
      expect(grants).toHaveLength(2);
      expect(most(await live(), ({ serial }) => serial)).toBe(1);
      for (const grant of grants) {
        order.push(grant.taskId);
        await end(grant);
      }
      if (step === 5) core = await core.reopen();
    }
    expect(order.filter((id) => ids.a.includes(id))).toEqual(ids.a);
    expect(order.filter((id) => ids.b.includes(id))).toEqual(ids.b);
  });

  it.each(['is dead-lettered', 'is cancelled while leased', 'loses its agent at the last attempt'])(
    'A72: a first task that %s frees its key for the second at once, and the third still waits',
    async (how) => {
      const retry = { max: 2, baseMs: 1_000, factor: 1, capMs: 1_000, jitter: 0 };
      const first = await core.create({ serialKey: 'k', retry });
      const failed = { type: 'failed', errorClass: 'transient', error: 'no' } as const;
      await core.tell(await core.run(), failed);
      core.clock.set((await core.task(first)).run_at);
      const last = await core.run();
      expect(last.taskId).toBe(first);
      const [second, third] = (await many(2, { serialKey: 'k' })).map(({ id }) => id);
      expect(await core.claimAll('a2', { max: 5 })).toEqual([]);
      if (how === 'is dead-lettered') await core.tell(last, failed);
      else if (how === 'is cancelled while leased') {
        await core.cancel(first);
        expect(await core.claimAll('a2', { max: 5 })).toEqual([]);
        await core.tell(last, { type: 'cancelled' });
      } else {
        core.clock.advance(LEASE_MS);
        await core.sweep();
      }
      expect((await core.task(first)).status).toMatch(/failed|cancelled|lost/);
      expect((await core.claimAll('a2', { max: 5 })).map(({ taskId }) => taskId)).toEqual([second]);
      expect((await core.task(third!)).status).toBe('queued');
    },
  );

  it('A72: while the first waits for its next try, its key is free: the second may run in between', async () => {
    const [first, second] = (await many(2, { serialKey: 'k' })).map(({ id }) => id);
    await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'no' });
    const grant = await core.claim();
    expect(grant.taskId).toBe(second);
    core.clock.advance(600_000);
    expect(await core.claimAll('a2', { max: 5 })).toEqual([]);
    await core.tell(grant, { type: 'succeeded', summary: 'ok' });
    expect((await core.claim()).taskId).toBe(first);
  });
});

/** Statements and rows that the claim of one task takes, by a spy on the transaction. */
async function cost(own = core): Promise<{ statements: string[]; rows: number; grants: Grant[] }> {
  const statements: string[] = [];
  let rows = 0;
  const grants = await own.store.transact('test.cost', async (tx) => {
    const spied = new Proxy(tx, {
      get(target, name) {
        const value = Reflect.get(target, name) as unknown;
        if (name !== 'all' && name !== 'run') return typeof value === 'function' ? value.bind(target) : value;
        return async (query: { name: string }, params: never) => {
          statements.push(query.name);
          const answer = await (value as (...args: unknown[]) => Promise<unknown>).call(target, query, params);
          rows += Array.isArray(answer) ? answer.length : 0;
          return answer;
        };
      },
    });
    return (await own.line.claim.run(spied, [own.claimOf('a1')]))[0]!;
  });
  return { statements, rows, grants };
}

const PLAIN = ['task.due', 'task.lease', 'run.insert', 'line.heads'];

describe('A66: what is held costs a claim nothing', () => {
  async function held(count: number, more: Partial<NewTask>, owners: number): Promise<void> {
    for (let n = 0; n < count; n += 1_000)
      await core.createAll(
        Array.from({ length: 1_000 }, (_, m) =>
          newTask({ template: 'held', priority: 'high', sessionKey: `o${(n + m) % owners}`, ...more }),
        ),
      );
  }

  const pause = () =>
    core.store.transact('test.gate', async (tx) => {
      await tx.exec(sql`insert into gate (kind, name, paused_at) values ('template', 'held', ${tx.now})`);
      tx.afterCommit(() => core.line.settingsChanged());
    });

  it.each([
    ['delayed', { runAt: START + 1e9 }],
    ['paused', {}],
    ['at their rate', {}],
  ] as const)(
    '100,000 tasks that are %s, of 3,000 owners',
    async (why, more) => {
      if (why === 'paused') await pause();
      if (why === 'at their rate') limits.set('held', { concurrency: null, rate: { perMs: 1e9, max: 1 } });
      await held(100_000, more, 3_000);
      const due = (await many(3, { priority: 'low' })).map(({ id }) => id);
      if (why === 'at their rate') await core.claim();
      // The first look finds out; from then on nothing of them is looked at.
      expect((await cost()).grants[0]!.taskId).toBe(due[0]);
      for (const id of due.slice(1)) {
        const { statements, rows, grants } = await cost();
        expect(grants.map(({ taskId }) => taskId)).toEqual([id]);
        expect(statements).toEqual(PLAIN);
        expect(rows).toBeLessThanOrEqual(3);
      }
    },
    120_000,
  );
});

describe('A66: tasks behind an open breaker', () => {
  it('are looked at once, and again when it lets a probe through', async () => {
    const behind = await BreakerCore.open();
    try {
      const { core: own, breakers } = behind;
      const order = { name: 'psb', by: 'test', why: null };
      await own.store.transact('test.open', (tx) => breakers.open(tx, order, 3_600_000));
      for (let n = 0; n < 20; n += 1)
        await own.createAll(
          Array.from({ length: 1_000 }, (_, m) =>
            newTask({ template: 'psb', sessionKey: `o${m}`, priority: 'high', timeoutMs: 1e9 }),
          ),
        );
      const due = (await own.createAll([newTask({ priority: 'low' }), newTask({ priority: 'low' })])).map(
        ({ id }) => id,
      );
      expect((await cost(own)).grants[0]!.taskId).toBe(due[0]);
      const second = await cost(own);
      expect([second.grants[0]!.taskId, second.statements]).toEqual([due[1], PLAIN]);
      expect((await cost(own)).statements).toEqual([]);
      expect(own.line.nextAt).toBe(START + 3_600_000);
      own.clock.advance(3_600_000);
      expect(await own.claimAll('a1', { max: 9 })).toHaveLength(1);
    } finally {
      await behind.core.close();
    }
  }, 60_000);
});

describe('a claim that is rolled back', () => {
  it('loses no task, and no hint for longer than the next reading of the line', async () => {
    const ids = (await many(5)).map(({ id }) => id);
    const failed = core.store.transact('test.rollback', async (tx) => {
      core.line.forget();
      await core.line.claim.run(tx, [core.claimOf('a1', { max: 3 })]);
      core.line.forget();
      // Read while three of them are taken: those are missing from what it knows now.
      await core.line.claim.run(tx, [core.claimOf('a1', { max: 9 })]);
      throw new Error('lost');
    });
    await expect(failed).rejects.toThrow('lost');
    core.clock.advance(30_000);
    expect((await core.claimAll('a1', { max: 9 })).map(({ taskId }) => taskId)).toEqual(ids);
    const runs = await core.store.fetch(sql<{ n: number }>`select count(*) as n from run`);
    expect(runs[0]!.n).toBe(5);
  });

  it('takes its settings along: a pause that was never committed holds nothing back', async () => {
    const id = await core.create();
    const failed = core.store.transact('test.rollback', async (tx) => {
      await tx.exec(sql`insert into gate (kind, name, paused_at) values ('template', 't', ${tx.now})`);
      core.line.settingsChanged();
      expect(await core.line.claim.run(tx, [core.claimOf('a1')])).toEqual([[]]);
      throw new Error('lost');
    });
    await expect(failed).rejects.toThrow('lost');
    core.line.recall();
    expect((await core.claim()).taskId).toBe(id);
  });
});

it('any mixture of priorities, owners, templates and limits: every task is taken once, in order within its band', async () => {
  limits.set('t0', { concurrency: 2, rate: null });
  const levels: Priority[] = ['high', 'normal', 'low'];
  const wanted = Array.from({ length: 120 }, (_, n) =>
    newTask({
      template: `t${n % 3}`,
      sessionKey: n % 4 === 0 ? null : `o${n % 4}`,
      priority: levels[(n * 7) % 3]!,
      serialKey: n % 11 === 0 ? `k${n % 2}` : null,
    }),
  );
  const created = await core.createAll(wanted);
  const order = await taken(200);
  expect(order).toHaveLength(120);
  const bandOf = (n: number) => {
    const { template, sessionKey, priority, serialKey } = wanted[n]!;
    return JSON.stringify([template, serialKey ?? sessionKey, serialKey === null, priority]);
  };
  const bands = new Map<string, number[]>();
  for (const id of order) {
    const band = bandOf(created.findIndex((answer) => answer.id === id));
    bands.set(band, [...(bands.get(band) ?? []), id]);
  }
  for (const ids of bands.values()) expect(ids).toEqual([...ids].sort((a, b) => a - b));
});
