import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Grant } from '../../src/tasks/claim.ts';
import { pulseRuns } from '../../src/tasks/heartbeat.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { allows, isHeld, TASK_STATES, TASK_VERBS, type TaskState, type TaskVerb } from '../../src/tasks/states.ts';
import { loseOtherInstances } from '../../src/tasks/sweep.ts';
import { DEFAULT_RETRY } from '../../src/tasks/task.ts';
import { Core, GRACE_MS, LEASE_MS } from '../support/core.ts';

/** A task in some state, with the last run that it had: for a state without a lease, one whose fence has moved on. */
interface Subject {
  id: number;
  queue: string;
  grant: Grant;
}

let core: Core;
let pools = 0;
beforeAll(async () => {
  core = await Core.open();
});
afterAll(() => core.close());

const TTL_MS = 1_000;
const TIMEOUT_MS = 2_000;

async function subject(state: TaskState, max: number, ttlMs: number | null = TTL_MS): Promise<Subject> {
  pools += 1;
  const pool = `p${pools}`;
  const queue = `${pool}/shell`;
  // An earlier run was given back, so that every subject has a history and a stale fence.
  const id = await core.create({ pool, retry: { ...DEFAULT_RETRY, max }, ttlMs, timeoutMs: TIMEOUT_MS });
  let grant = await core.run('a1', { queues: [queue] });
  await core.tell(grant, { type: 'released' });
  const take = async () => {
    grant = await core.claim('a1', { queues: [queue] });
  };
  const end = async (news: RunNews) => {
    await take();
    await core.tell(grant, news);
  };
  switch (state) {
    case 'queued':
      break;
    case 'leased':
      await take();
      break;
    case 'running':
      await end({ type: 'started' });
      break;
    case 'waiting':
      await end({ type: 'blocked', summary: 'help' });
      break;
    case 'succeeded':
      await end({ type: 'succeeded', summary: 'ok' });
      break;
    case 'failed':
      await end({ type: 'failed', errorClass: 'permanent', error: 'no' });
      break;
    case 'cancelled':
      await end({ type: 'cancelled' });
      break;
    // No verb of this version leads into these with the given number of executions: set as the verbs would.
    case 'paused':
      await core.store.transact('test.pause', (tx) =>
        tx.exec(tx.dialect.build.updateTable('task').set({ status: 'paused' }).where('id', '=', id)),
      );
      break;
    case 'timed_out':
    case 'lost':
      await end({ type: 'failed', errorClass: 'permanent', error: 'no' });
      await core.store.transact('test.end', (tx) =>
        tx.exec(tx.dialect.build.updateTable('task').set({ status: state }).where('id', '=', id)),
      );
      break;
  }
  expect((await core.task(id)).status).toBe(state);
  return { id, queue, grant };
}

const reports = (...news: RunNews[]) =>
  news.map(
    (item) =>
      async ({ grant }: Subject) =>
        void (await core.tell(grant, item)),
  );
const later = (ms: number, work: (s: Subject) => Promise<unknown>) => async (s: Subject) => {
  core.clock.advance(ms);
  await work(s);
};

/** Every way in which this version applies a verb. `release` and `retry` are one order of a person: "again". */
const WAYS: readonly { verbs: readonly TaskVerb[]; ways: readonly ((s: Subject) => Promise<unknown>)[] }[] = [
  { verbs: ['claim'], ways: [({ queue }) => core.claimAll('a2', { queues: [queue] })] },
  { verbs: ['start'], ways: reports({ type: 'started' }) },
  {
    verbs: ['heartbeat'],
    ways: [
      later(1, ({ grant: { runId, leaseToken } }) =>
        core.store.write(pulseRuns, [{ agentId: 'a1', runId, leaseToken, leaseMs: LEASE_MS }]),
      ),
    ],
  },
  { verbs: ['ask'], ways: reports({ type: 'needs_input', prompt: 'which?' }, { type: 'blocked', summary: 'quota' }) },
  { verbs: ['succeed'], ways: reports({ type: 'succeeded', summary: 'ok' }) },
  {
    verbs: ['fail'],
    ways: reports(
      { type: 'failed', errorClass: 'transient', error: 'x' },
      { type: 'failed', errorClass: 'rate_limited', error: 'x' },
      { type: 'failed', errorClass: 'permanent', error: 'x' },
    ),
  },
  { verbs: ['time_out'], ways: reports({ type: 'timed_out' }) },
  { verbs: ['release_lease'], ways: reports({ type: 'released' }) },
  {
    verbs: ['expire'],
    ways: [
      ({ id }) =>
        core.store.transact(
          'test.replace',
          async (tx) => void (await loseOtherInstances(tx, 'a1', `not of ${id}`, core.emit)),
        ),
    ],
  },
  { verbs: ['confirm_cancel'], ways: reports({ type: 'cancelled' }) },
  { verbs: ['give_up'], ways: [later(TTL_MS, () => core.sweep())] },
  { verbs: ['cancel'], ways: [({ id }) => core.cancel(id)] },
  { verbs: ['release', 'retry'], ways: [({ id }) => core.retry(id)] },
];
/** In the table, not yet in the program: the day they are built, they belong above. */
const VERBS_TO_COME: readonly TaskVerb[] = ['pause', 'resume'];
/** Of needs (needs.test.ts), of `onLost` (on-lost.test.ts), of hand-backs without end (retries.test.ts), and of the verbs to come. */
const RESULTS_TO_COME: readonly string[] = [
  'retry → waiting',
  'release → cancelled',
  'expire → waiting',
  'release_lease → failed',
  'pause → paused',
  'resume → queued',
];

const rowsOf = async (id: number) => ({ task: await core.task(id), runs: await core.runs(id) });
const reached = new Set<string>();

it('every verb of the table is walked here or listed as one to come', () => {
  const walked = WAYS.flatMap(({ verbs }) => verbs);
  expect([...walked, ...VERBS_TO_COME].sort()).toEqual(Object.keys(TASK_VERBS).sort());
});

const SITUATIONS = [
  { max: 1, cancelled: false },
  { max: 3, cancelled: false },
  { max: 3, cancelled: true },
];
describe.each(SITUATIONS)('with $max executions, cancel requested: $cancelled', ({ max, cancelled }) => {
  it.each(WAYS.map(({ verbs, ways }) => [verbs.join('/'), verbs, ways] as const))(
    '%s is possible from the states of the table and changes nothing in others',
    async (_name, verbs, ways) => {
      for (const state of TASK_STATES) {
        for (const way of ways) {
          const one = await subject(state, max);
          if (cancelled) {
            if (!isHeld(state)) continue;
            await core.cancel(one.id);
          }
          const before = await rowsOf(one.id);
          await way(one);
          const after = await rowsOf(one.id);
          const place = `${verbs} on ${state}`;
          const allowed = verbs.find((verb) => allows(verb, state));
          if (allowed) {
            expect(after, place).not.toEqual(before);
            expect(TASK_VERBS[allowed].to as readonly string[], place).toContain(after.task.status);
            if (cancelled && allowed !== 'start' && allowed !== 'heartbeat') {
              expect(after.task.status, place).toBe(allowed === 'succeed' ? 'succeeded' : 'cancelled');
            }
            reached.add(`${allowed} → ${after.task.status}`);
          } else if (verbs[0] === 'cancel' && isHeld(state) && !cancelled) {
            // Not a transition: the wish is noted for the agent.
            const { cancel_requested_at, last_event_at } = after.task;
            expect(cancel_requested_at, place).toBe(core.clock.now());
            expect(after, place).toEqual({ ...before, task: { ...before.task, cancel_requested_at, last_event_at } });
          } else {
            expect(after, place).toEqual(before);
          }
        }
      }
    },
  );
});

it('the server itself applies expire, time_out and confirm_cancel when their time has come, to held tasks only', async () => {
  const cases: { verb: TaskVerb; prepare?: (s: Subject) => Promise<unknown>; afterMs: number }[] = [
    { verb: 'expire', afterMs: LEASE_MS },
    // Kept alive by its agent, past the wall limit and its margin.
    { verb: 'time_out', prepare: (s) => alive(s, TIMEOUT_MS + 60_000 + LEASE_MS), afterMs: TIMEOUT_MS + 60_000 },
    { verb: 'confirm_cancel', prepare: ({ id }) => core.cancel(id), afterMs: GRACE_MS },
  ];
  for (const { verb, prepare, afterMs } of cases) {
    for (const state of TASK_STATES) {
      if (verb === 'confirm_cancel' && !isHeld(state)) continue; // a cancel ends or refuses those at once
      for (const max of [1, 3]) {
        const one = await subject(state, max, null);
        await prepare?.(one);
        const before = await rowsOf(one.id);
        core.clock.advance(afterMs - 1);
        await core.sweep();
        expect(await rowsOf(one.id), `${verb} on ${state}, a millisecond early`).toEqual(before);
        core.clock.advance(1);
        await core.sweep();
        const after = await rowsOf(one.id);
        if (allows(verb, state)) {
          expect(TASK_VERBS[verb].to as readonly string[], `${verb} on ${state}`).toContain(after.task.status);
          reached.add(`${verb} → ${after.task.status}`);
          expect(after.runs.at(-1)!.ended_at).toBe(core.clock.now());
        } else expect(after, `${verb} on ${state}`).toEqual(before);
      }
    }
  }
  async function alive({ grant: { runId, leaseToken } }: Subject, leaseMs: number) {
    await core.store.write(pulseRuns, [{ agentId: 'a1', runId, leaseToken, leaseMs }]);
  }
});

it('every result of the table was reached by the walk, but for those to come', () => {
  const table = Object.entries(TASK_VERBS).flatMap(([verb, { to }]) => to.map((state) => `${verb} → ${state}`));
  expect(table.filter((result) => !reached.has(result)).sort()).toEqual([...RESULTS_TO_COME].sort());
  expect([...reached].filter((result) => !table.includes(result))).toEqual([]);
});
