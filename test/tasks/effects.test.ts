import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { MarkCall } from '../../src/tasks/effect-decisions.ts';
import { getEffect, listEffects } from '../../src/tasks/effect-read.ts';
import { type ResolveEffect, releaseDecided, resolveEffectsVerb } from '../../src/tasks/effect-resolve.ts';
import type { EffectPolicy } from '../../src/tasks/effect-words.ts';
import { beginEffects, type EffectBegin, markEffectsVerb } from '../../src/tasks/effects.ts';
import { Core, LEASE_MS, START } from '../support/core.ts';

let core: Core;
const open = () => Core.open({ subscriber: (emit) => (tx, events) => releaseDecided(tx, events, emit) });
beforeEach(async () => {
  core = await open();
});
afterEach(() => core.close());

type Holder = { runId: number; leaseToken: string; agentId?: string };

const callOf = (holder: Holder, more: Partial<EffectBegin> = {}): EffectBegin => ({
  agentId: 'a1',
  runId: holder.runId,
  leaseToken: holder.leaseToken,
  type: 'payment',
  key: 'order-42',
  digest: null,
  policy: 'ask',
  ...(holder.agentId === undefined ? {} : { agentId: holder.agentId }),
  ...more,
});

async function begin(holder: Holder, more: Partial<EffectBegin> = {}) {
  return (await core.store.write(beginEffects, [callOf(holder, more)]))[0]!;
}

async function mark(holder: Holder, outcome: MarkCall['outcome'], more: { result?: string; error?: string } = {}) {
  const { digest: _digest, policy: _policy, ...caller } = callOf(holder);
  const call = { ...caller, outcome, result: more.result ?? null, error: more.error ?? null };
  return (await core.store.write(markEffectsVerb, [call]))[0]!;
}

async function resolve(resolution: ResolveEffect['resolution'], more: Partial<ResolveEffect> = {}) {
  const order = { type: 'payment', key: 'order-42', resolution, result: null, reason: 'looked', by: 'ada', ...more };
  return (await core.store.write(resolveEffectsVerb(core.emit), [order]))[0]!;
}

const effect = () => getEffect(core.store, core.store.ids, 'payment', 'order-42');
const audits = () => core.store.fetch(core.store.dialect.build.selectFrom('audit').selectAll());
const blocked = { type: 'blocked', summary: 'who knows' } as const;

/** A run that began the effect and died, and the next run of its task. */
async function crashed(policy: EffectPolicy) {
  const id = await core.create();
  const first = await core.run();
  expect(await begin(first, { policy })).toEqual({ answer: 'first', repeat: false });
  core.clock.advance(LEASE_MS + 1);
  await core.sweep();
  core.clock.advance(60_000);
  const second = { ...(await core.run('a2')), agentId: 'a2' };
  return { id, first, second };
}

describe('begin', () => {
  it('the first is told to go, a later one what became of it', async () => {
    const id = await core.create();
    const grant = await core.run();
    expect(await begin(grant, { digest: 'd1', policy: 'retry' })).toEqual({ answer: 'first', repeat: false });
    expect(await effect()).toMatchObject({
      state: 'INIT',
      uncertain: false,
      policy: 'retry',
      digest: 'd1',
      begins: 1,
      taskId: core.store.ids.encode(id),
      runId: core.store.ids.encode(grant.runId),
      createdAt: START,
    });
    expect(await mark(grant, 'success', { result: 'R-7001' })).toEqual({ answer: 'done', result: 'R-7001' });
    await core.create();
    const other = await core.run();
    expect(await begin(other)).toEqual({ answer: 'done', result: 'R-7001' });
    expect(await begin(other, { digest: 'd1' })).toEqual({ answer: 'done', result: 'R-7001' });
    expect(await effect()).toMatchObject({ state: 'SUCCESS', begins: 1, runId: core.store.ids.encode(grant.runId) });
  });

  it('one that failed for good is told so with its error', async () => {
    await core.create();
    const grant = await core.run();
    await begin(grant);
    expect(await mark(grant, 'fail', { error: 'card refused' })).toEqual({ answer: 'failed', error: 'card refused' });
    expect(await begin(grant)).toEqual({ answer: 'failed', error: 'card refused' });
  });

  it('A20: the same key with another digest is a conflict in every state, and changes nothing', async () => {
    await core.create();
    const grant = await core.run();
    await begin(grant, { digest: 'a' });
    const before = await effect();
    expect(await begin(grant, { digest: 'b' })).toMatchObject({ answer: 'conflict' });
    expect(await effect()).toEqual(before);
    await mark(grant, 'success', { result: 'r' });
    expect(await begin(grant, { digest: 'b' })).toMatchObject({ answer: 'conflict' });
    expect(await begin(grant, { digest: 'a' })).toEqual({ answer: 'done', result: 'r' });
  });

  it('the run whose answer was lost is the first again', async () => {
    await core.create();
    const grant = await core.run();
    await begin(grant);
    expect(await begin(grant)).toEqual({ answer: 'first', repeat: false });
    expect(await effect()).toMatchObject({ begins: 1 });
  });

  it('type and key together name an effect', async () => {
    await core.create();
    const grant = await core.run();
    for (const [type, key] of [
      ['payment', 'a'],
      ['refund', 'a'],
      ['payment', 'b'],
      ['payment","a', ''],
    ] as const)
      expect(await begin(grant, { type, key })).toEqual({ answer: 'first', repeat: false });
  });

  it('a living run is not overtaken, whatever the policy', async () => {
    await core.create();
    await core.create();
    const [one, two] = [await core.run(), await core.run()];
    for (const policy of ['retry', 'ask', 'fail'] as const) {
      await begin(one, { policy, key: policy });
      expect(await begin(two, { policy, key: policy })).toEqual({ answer: 'busy' });
    }
  });

  it('A64: of many runs that begin at once, in one transaction and in many, exactly one is the first', async () => {
    for (let n = 0; n < 24; n += 1) await core.create();
    const runs = [];
    for (let n = 0; n < 24; n += 1) runs.push(await core.run());
    for (let round = 0; round < 20; round += 1) {
      const key = `round-${round}`;
      const together = core.store.write(
        beginEffects,
        runs.slice(0, 8).map((run) => callOf(run, { key, policy: 'retry' })),
      );
      const apart = runs.slice(8, 16).map((run) => begin(run, { key, policy: 'retry' }));
      const later = runs.slice(16).map(async (run, index) => {
        for (let turn = 0; turn <= index; turn += 1) await new Promise((done) => setImmediate(done));
        return begin(run, { key, policy: 'retry' });
      });
      const answers = [...(await together), ...(await Promise.all([...apart, ...later]))];
      expect(answers.map(({ answer }) => answer).sort()).toEqual([...Array(23).fill('busy'), 'first']);
    }
  });
});

describe('an effect that is found at INIT', () => {
  it('a crash between act and mark is visible as INIT', async () => {
    await crashed('ask');
    expect(await effect()).toMatchObject({ state: 'INIT', uncertain: true });
    expect(await listEffects(core.store, core.store.ids, { state: 'init', limit: 10 })).toHaveLength(1);
  });

  it('policy retry: the next run is the first again and is told that it is a repeat; only one of several', async () => {
    const { second } = await crashed('retry');
    await core.create();
    const third = await core.run();
    const answers = await core.store.write(beginEffects, [callOf(second), callOf(third)]);
    expect(answers).toEqual([{ answer: 'first', repeat: true }, { answer: 'busy' }]);
    expect(await begin(second)).toEqual({ answer: 'first', repeat: false });
    expect(await effect()).toMatchObject({ begins: 2, uncertain: false, runId: core.store.ids.encode(second.runId) });
  });

  it('policy fail: the next run is told to fail, and a person may still settle it', async () => {
    const { second } = await crashed('fail');
    expect(await begin(second, { policy: 'retry' })).toEqual({ answer: 'uncertain', policy: 'fail', since: START });
    expect(await effect()).toMatchObject({ state: 'INIT', uncertain: true, waiting: [] });
    expect(await resolve('SUCCESS', { result: 'r' })).toEqual({ result: 'resolved', released: [] });
    expect(await begin(second)).toEqual({ answer: 'done', result: 'r' });
  });

  it('policy ask: the task waits until a person says that it took place, then goes on and is told the result', async () => {
    const { id, second } = await crashed('ask');
    expect(await begin(second)).toEqual({ answer: 'uncertain', policy: 'ask', since: START });
    await core.tell(second, blocked, { agentId: 'a2' });
    expect((await core.task(id)).status).toBe('waiting');
    expect(await effect()).toMatchObject({ waiting: [core.store.ids.encode(id)] });
    expect(await resolve('SUCCESS', { result: 'R-1', reason: 'seen in the account' })).toEqual({
      result: 'resolved',
      released: [id],
    });
    expect((await core.task(id)).status).toBe('queued');
    expect(await effect()).toMatchObject({
      state: 'SUCCESS',
      waiting: [],
      resolvedBy: 'ada',
      reason: 'seen in the account',
      result: 'R-1',
    });
    expect(await begin(await core.run())).toEqual({ answer: 'done', result: 'R-1' });
    expect(await audits()).toMatchObject([{ actor: 'ada', action: 'effect.resolved', target: 'payment/order-42' }]);
  });

  it('a person who says AGAIN lets the next run be the first, without a doubt', async () => {
    const { id, second } = await crashed('ask');
    await begin(second);
    await core.tell(second, blocked, { agentId: 'a2' });
    expect(await resolve('AGAIN')).toEqual({ result: 'resolved', released: [id] });
    expect(await effect()).toMatchObject({ state: 'INIT', uncertain: false });
    expect(await begin(await core.run())).toEqual({ answer: 'first', repeat: false });
  });

  it('A64: a crash after the effect does it at most once more with retry, and not at all with ask', async () => {
    for (const [policy, expected] of [
      ['retry', 2],
      ['ask', 1],
    ] as const) {
      let acted = 0;
      const act = async (holder: Holder) => {
        const { answer } = await begin(holder, { policy, key: policy });
        if (answer === 'first') acted += 1;
        return answer;
      };
      await core.create();
      await act(await core.run());
      core.clock.advance(LEASE_MS + 1);
      await core.sweep();
      core.clock.advance(60_000);
      const second = await core.run();
      await act(second);
      if (policy === 'retry')
        await core.store.write(markEffectsVerb, [
          { ...callOf(second), key: policy, outcome: 'success', result: null, error: null },
        ]);
      await core.tell(second, { type: 'failed', errorClass: 'transient', error: 'later' });
      core.clock.advance(600_000);
      const third = await core.run();
      expect(await act(third)).toBe(policy === 'retry' ? 'done' : 'uncertain');
      expect([policy, acted]).toEqual([policy, expected]);
      await core.tell(third, { type: 'succeeded', summary: '' });
    }
  });
});

describe('the fence', () => {
  it('trap 10: another agent, a wrong token and a run that never was begin and mark nothing', async () => {
    await core.create();
    const grant = await core.run();
    await begin(grant);
    const before = await effect();
    for (const caller of [
      { ...grant, agentId: 'a2' },
      { ...grant, leaseToken: 'guessed' },
      { runId: 999_999, leaseToken: 'x' },
    ]) {
      expect(await begin(caller)).toMatchObject({ answer: 'rejected' });
      expect(await begin(caller, { key: 'other' })).toMatchObject({ answer: 'rejected' });
      expect(await mark(caller, 'success')).toMatchObject({ answer: 'rejected' });
    }
    expect(await effect()).toEqual(before);
    expect(await getEffect(core.store, core.store.ids, 'payment', 'other')).toBeUndefined();
  });

  it('another run cannot settle what it does not hold', async () => {
    await core.create();
    await core.create();
    const [one, two] = [await core.run(), await core.run()];
    await begin(one);
    for (const outcome of ['success', 'fail', 'again'] as const)
      expect(await mark(two, outcome)).toMatchObject({ answer: 'refused' });
    expect(await effect()).toMatchObject({ state: 'INIT', runId: core.store.ids.encode(one.runId) });
  });

  it('a run that is over begins nothing; its late word is kept for the person who decides', async () => {
    const { first, second } = await crashed('ask');
    expect(await begin(first, { key: 'new' })).toMatchObject({ answer: 'lease_lost' });
    core.clock.advance(5);
    expect(await mark(first, 'success', { result: 'R-9' })).toMatchObject({ answer: 'lease_lost' });
    expect(await effect()).toMatchObject({
      state: 'INIT',
      uncertain: true,
      late: { outcome: 'success', result: 'R-9', at: core.clock.now() },
    });
    expect(await getEffect(core.store, core.store.ids, 'payment', 'new')).toBeUndefined();
    // Of another's effect it has nothing to say.
    await resolve('AGAIN');
    await begin(second);
    await mark(first, 'success', { result: 'R-10' });
    expect((await effect())?.late).toBeUndefined();
  });

  it('the end of a run and its begin in one turn: the end comes first', async () => {
    await core.create();
    const grant = await core.run();
    const [answer] = await Promise.all([begin(grant), core.tell(grant, { type: 'succeeded', summary: '' })]);
    expect(answer).toMatchObject({ answer: 'lease_lost' });
  });
});

describe('marks', () => {
  it('a repeated word is told the same, and the first result stays', async () => {
    await core.create();
    const grant = await core.run();
    await begin(grant);
    await mark(grant, 'success', { result: 'one' });
    expect(await mark(grant, 'success', { result: 'two' })).toEqual({ answer: 'done', result: 'one' });
    expect(await mark(grant, 'fail', { error: 'x' })).toMatchObject({ answer: 'refused' });
    expect(await mark(grant, 'again')).toMatchObject({ answer: 'refused' });
    expect(await effect()).toMatchObject({ state: 'SUCCESS', result: 'one' });
  });

  it('what nobody has begun cannot be marked', async () => {
    await core.create();
    expect(await mark(await core.run(), 'success')).toMatchObject({ answer: 'unknown' });
    expect(await effect()).toBeUndefined();
  });

  it('a run may give it back: whoever begins it next is the first', async () => {
    await core.create();
    await core.create();
    const [one, two] = [await core.run(), await core.run()];
    await begin(one, { policy: 'fail' });
    expect(await mark(one, 'again')).toEqual({ answer: 'again' });
    expect(await mark(one, 'again')).toEqual({ answer: 'again' });
    expect(await mark(one, 'success')).toMatchObject({ answer: 'refused' });
    expect(await begin(two)).toEqual({ answer: 'first', repeat: false });
    expect(await mark(one, 'again')).toMatchObject({ answer: 'refused' });
  });

  it('begin and mark of one batch act on one another in order', async () => {
    await core.create();
    const grant = await core.run();
    const { digest: _d, policy: _p, ...caller } = callOf(grant);
    await begin(grant);
    const word = { ...caller, result: null, error: null };
    const answers = await core.store.write(markEffectsVerb, [
      { ...word, outcome: 'again' },
      { ...word, outcome: 'success' },
    ]);
    expect(answers.map(({ answer }) => answer)).toEqual(['again', 'refused']);
  });
});

describe('a person’s word', () => {
  it('is refused while a living run is at it', async () => {
    const id = await core.create();
    const grant = await core.run();
    await begin(grant);
    expect(await resolve('SUCCESS')).toEqual({ result: 'held', taskId: id, runId: grant.runId });
    expect(await effect()).toMatchObject({ state: 'INIT' });
    expect(await audits()).toEqual([]);
  });

  it('said twice changes and audits once; of an effect that never was it changes nothing', async () => {
    await crashed('ask');
    expect(await resolve('FAIL', { reason: 'not in the account' })).toMatchObject({ result: 'resolved' });
    expect(await resolve('FAIL')).toMatchObject({ result: 'already' });
    expect(await audits()).toHaveLength(1);
    expect(await effect()).toMatchObject({ state: 'FAIL', error: 'not in the account' });
    expect(await resolve('SUCCESS', { key: 'never' })).toEqual({ result: 'unknown' });
    expect(await audits()).toHaveLength(1);
  });

  it('releases no task that waits for something else', async () => {
    const { id, second } = await crashed('ask');
    await begin(second);
    await core.tell(second, { type: 'needs_input', prompt: 'which room?' }, { agentId: 'a2' });
    expect(await resolve('SUCCESS')).toEqual({ result: 'resolved', released: [] });
    expect((await core.task(id)).status).toBe('waiting');
  });

  it('releases no task whose program has ignored the answer', async () => {
    const { id, second } = await crashed('ask');
    await begin(second);
    await core.tell(second, { type: 'succeeded', summary: 'went on all the same' }, { agentId: 'a2' });
    expect(await resolve('SUCCESS')).toEqual({ result: 'resolved', released: [] });
    expect((await core.task(id)).status).toBe('succeeded');
  });

  it('that comes while the program is still ending lifts the block as soon as it is there', async () => {
    const { id, second } = await crashed('ask');
    await begin(second);
    expect(await resolve('AGAIN')).toEqual({ result: 'resolved', released: [] });
    await core.tell(second, blocked, { agentId: 'a2' });
    expect((await core.task(id)).status).toBe('queued');
    const third = await core.run();
    expect(await begin(third)).toEqual({ answer: 'first', repeat: false });
    // A later block of the same task has another reason and stays.
    await core.tell(third, blocked);
    expect((await core.task(id)).status).toBe('waiting');
  });

  it('releases no task that a person has retried since, and that is blocked for another reason now', async () => {
    const { id, second } = await crashed('ask');
    await begin(second);
    await core.tell(second, blocked, { agentId: 'a2' });
    await core.retry(id);
    await core.tell(await core.run(), { type: 'blocked', summary: 'out of paper' });
    expect(await resolve('SUCCESS')).toEqual({ result: 'resolved', released: [] });
    expect((await core.task(id)).status).toBe('waiting');
  });

  it('counts once: a run that is told to ask after that waits for the next word', async () => {
    const { id, second } = await crashed('ask');
    await begin(second);
    expect(await resolve('AGAIN')).toEqual({ result: 'resolved', released: [] });
    await core.tell(second, { type: 'failed', errorClass: 'permanent', error: 'gave up' }, { agentId: 'a2' });
    await core.retry(id);
    const third = await core.run();
    expect(await begin(third)).toEqual({ answer: 'first', repeat: false });
    await core.tell(third, { type: 'failed', errorClass: 'permanent', error: 'died' });
    await core.retry(id);
    const fourth = await core.run();
    expect(await begin(fourth)).toMatchObject({ answer: 'uncertain' });
    await core.tell(fourth, blocked);
    expect((await core.task(id)).status).toBe('waiting');
    expect(await effect()).toMatchObject({ waiting: [core.store.ids.encode(id)] });
  });

  it('the flow of a task that goes on is active again', async () => {
    const id = await core.ask();
    const first = await core.run();
    await begin(first);
    core.clock.advance(LEASE_MS + 1);
    await core.sweep();
    core.clock.advance(60_000);
    const second = await core.run();
    await begin(second);
    await core.tell(second, blocked);
    expect(await core.flowOf(id)).toMatchObject({ status: 'blocked', blocked_summary: 'who knows' });
    await resolve('SUCCESS');
    expect(await core.flowOf(id)).toMatchObject({ status: 'active', blocked_summary: null });
  });
});
