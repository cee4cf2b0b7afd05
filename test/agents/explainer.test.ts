import { afterEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/log.ts';
import { deathWords } from '../../src/notifications/wording.ts';
import { Controls, type GateOrder } from '../../src/tasks/controls.ts';
import { pauseTasksVerb, resumeTasksVerb } from '../../src/tasks/controls-tasks.ts';
import { beginEffects } from '../../src/tasks/effects.ts';
import type { TemplateLimits } from '../../src/tasks/gates.ts';
import { sweep } from '../../src/tasks/sweep.ts';
import { DEFAULT_RETRY, type NewTask } from '../../src/tasks/task.ts';
import { BreakerCore } from '../support/breakers.ts';
import { Core, type CoreOptions, GRACE_MS, LEASE_MS, newTask, SESSION } from '../support/core.ts';
import { whyOf } from '../support/explain.ts';
import { fail, makeGraph } from '../support/graphs.ts';

let core: Core;
afterEach(() => core.close());

const NO_LIMIT: TemplateLimits = { concurrency: null, rate: null };

/** A core with an agent that serves the pool `default` and has room for four. */
async function openWith(options: CoreOptions = {}, limits: Partial<TemplateLimits> = {}): Promise<Core> {
  core = await Core.open({ gates: { limitsOf: () => ({ ...NO_LIMIT, ...limits }) }, ...options });
  await core.agent('m1').register();
  return core;
}

async function change(order: Pick<GateOrder, 'kind' | 'name'> & Partial<GateOrder>): Promise<void> {
  const controls = new Controls({ line: core.line, log: silentLog, onFreed: () => undefined });
  await core.store.transact('test.gate', (tx) => controls.change(tx, { by: 'test', why: null, ...order }));
}

const create = (more: Partial<NewTask> = {}) => core.create(more);
/** One task of the same kind is taken first. */
async function behindAnother(more: Partial<NewTask> = {}): Promise<number> {
  await create(more);
  const id = await create(more);
  await core.claim('m1');
  return id;
}

describe('a queued task that people hold back', () => {
  it.each([
    ['gateway', '*', 'draining', /^Nothing new starts for now \(new disk\)/, /^目前不启动新任务（new disk）/],
    ['template', 't', 'template_paused', /^Errands of this kind are paused \(new disk\)/, /^此类任务已暂停/],
    ['pool', 'default', 'pool_paused', /^Errands of pool default are paused/, /^机器池 default 的任务已暂停/],
    ['lane', 'main', 'lane_paused', /^Errands of lane main are paused/, /^通道 main 的任务已暂停/],
    ['owner', SESSION, 'owner_paused', /^Errands of this conversation are paused/, /^本会话的任务已暂停/],
  ] as const)('by a pause of the %s', async (kind, name, reason, en, zh) => {
    await openWith();
    await change({ kind, name, paused: true, why: 'new disk' });
    const id = await create({ sessionKey: SESSION });
    const why = await whyOf(core, id);
    expect(why).toMatchObject({ reason, text: { en: expect.stringMatching(en), zh: expect.stringMatching(zh) } });
    expect(why.others).toBeUndefined();
    expect(why.text.en).not.toContain(SESSION);
    await change({ kind, name, paused: false });
    expect((await whyOf(core, id)).reason).toBe('next');
  });

  it.each([
    ['template', 't'],
    ['pool', 'default'],
    ['lane', 'main'],
    ['owner', SESSION],
  ] as const)('by a limit of 0 of the %s', async (kind, name) => {
    await openWith();
    await change({ kind, name, concurrency: 0 });
    const { reason, text } = await whyOf(core, await create({ sessionKey: SESSION }));
    expect({ reason, en: text.en, zh: text.zh }).toEqual({
      reason: `${kind}_shut`,
      en: expect.stringMatching(/: the limit is 0\.$/),
      zh: expect.stringMatching(/上限为 0，无法开始。$/),
    });
  });

  it('by setting it aside itself', async () => {
    await openWith();
    const id = await create();
    await core.store.write(pauseTasksVerb(core.emit), [{ id, by: 'test' }]);
    expect(await whyOf(core, id)).toEqual({
      status: 'paused',
      reason: 'paused',
      text: { en: 'A person has set it aside.', zh: '已被人工暂停。' },
      next: { en: 'It starts after it is resumed.', zh: '恢复后才会开始。' },
    });
    await core.store.write(resumeTasksVerb(core.emit), [{ id, by: 'test' }]);
    expect((await whyOf(core, id)).reason).toBe('next');
  });
});

describe('a queued task that must wait for others', () => {
  it.each([
    [
      'template',
      't',
      'Only 1 errand of this kind may run at once, and one is running.',
      '此类任务同时最多运行 1 个，目前已满。',
    ],
    ['owner', SESSION, 'Only 1 errand of this conversation may run at once', '本会话的任务同时最多运行 1 个'],
    ['pool', 'default', 'Only 1 errand of pool default may run at once', '机器池 default 的任务同时最多运行 1 个'],
    ['lane', 'main', 'Only 1 errand of lane main may run at once', '通道 main 的任务同时最多运行 1 个'],
  ] as const)('by the limit of the %s', async (kind, name, en, zh) => {
    await openWith();
    await change({ kind, name, concurrency: 1 });
    const id = await behindAnother({ sessionKey: SESSION });
    expect(await whyOf(core, id)).toMatchObject({
      reason: `${kind}_full`,
      text: { en: expect.stringContaining(en), zh: expect.stringContaining(zh) },
      next: { en: 'It starts when one of them has ended.' },
    });
  });

  it('by the limit that its template asks for', async () => {
    await openWith({}, { concurrency: 1 });
    expect((await whyOf(core, await behindAnother())).reason).toBe('template_full');
  });

  it('by the limit of lane cron, which nobody has set', async () => {
    await openWith();
    expect(await whyOf(core, await behindAnother({ lane: 'cron' }))).toMatchObject({
      reason: 'lane_full',
      text: { en: 'Only 1 errand of lane cron may run at once, and one is running.' },
    });
  });

  it('by its serial key, of which nothing is told', async () => {
    await openWith();
    const id = await behindAnother({ serialKey: 'room-302' });
    const why = await whyOf(core, id);
    expect(why).toMatchObject({ reason: 'serial_busy', text: { zh: expect.stringContaining('须逐个执行') } });
    expect(JSON.stringify(why)).not.toContain('302');
  });

  it('by the rate of starts, until the next one may', async () => {
    await openWith({}, { rate: { perMs: 60_000, max: 1 } });
    const id = await behindAnother();
    core.clock.advance(10_000);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'start_rate',
      untilAt: core.clock.now() + 50_000,
      text: {
        en: 'Only so many errands of this kind may start in a time; the next one may in 50 s.',
        zh: '此类任务限制了启动频率，下一个可在 50 秒后开始。',
      },
    });
    core.clock.advance(50_000);
    expect((await whyOf(core, id)).reason).toBe('next');
  });

  it('by busy machines, with its place in line', async () => {
    await openWith();
    for (let n = 0; n < 7; n += 1) await create();
    const last = await create();
    await core.claimAll('m1', { max: 4 });
    expect(await whyOf(core, last)).toMatchObject({
      reason: 'machines_busy',
      text: {
        en: 'The only machine for it in pool default is busy; it is about 4th of 4 in line.',
        zh: '机器池 default 中唯一可用的机器正忙，大约排在第 4 位，共 4 个。',
      },
      next: { en: 'It starts when one is free.', zh: '有空闲机器后会自动开始。' },
    });
  });

  it('by those before it, though a machine is free', async () => {
    await openWith();
    await create();
    await create({ priority: 'high' });
    expect(await whyOf(core, await create())).toMatchObject({
      reason: 'in_line',
      text: { en: 'It is about 3rd of 3 in line.', zh: '大约排在第 3 位，共 3 个。' },
    });
  });

  it('not by those before it that something else holds back', async () => {
    await openWith();
    for (let n = 0; n < 5; n += 1) await create({ template: 'held' });
    await change({ kind: 'template', name: 'held', paused: true });
    expect(await whyOf(core, await create())).toMatchObject({ reason: 'next', text: { zh: '马上开始。' } });
  });

  it('not by ten thousand of another owner: turns go round', async () => {
    await openWith();
    await core.createAll(Array.from({ length: 10_000 }, () => newTask({ sessionKey: 'crowd' })));
    expect(await whyOf(core, await create({ sessionKey: 'one' }))).toMatchObject({
      reason: 'in_line',
      text: { en: 'It is about 2nd of more than 101 in line.' },
    });
  });
});

describe('a queued task without a machine', () => {
  it.each([
    [{ pool: 'hotel' }, 'no_machine', 'No machine serves pool hotel.', '没有机器为机器池 hotel 服务。'],
    [{ agent: 'printer' }, 'no_machine', 'Machine printer has never been connected.', '机器 printer 从未连接过。'],
    [
      { runtime: 'http' },
      'no_runtime',
      'No machine of pool default can run http errands.',
      '机器池 default 中没有机器能运行 http 类任务。',
    ],
    [
      { agent: 'm1', runtime: 'http' },
      'no_runtime',
      'Machine m1 cannot run http errands.',
      '机器 m1 不能运行 http 类任务。',
    ],
    [
      { labels: { city: 'sz' } },
      'no_labels',
      'No machine of pool default has what it asks for (city=sz).',
      '机器池 default 中没有机器具备所需条件（city=sz）。',
    ],
    [
      { agent: 'm1', labels: { city: 'sz' } },
      'no_labels',
      'Machine m1 does not have what it asks for (city=sz).',
      '机器 m1 不具备所需条件（city=sz）。',
    ],
  ] as const)('%j', async (more, reason, en, zh) => {
    await openWith();
    expect(await whyOf(core, await create(more), [{ city: 'sz' }])).toMatchObject({ reason, text: { en, zh } });
  });

  it('because it is offline, and for how long', async () => {
    await openWith();
    const id = await create();
    core.clock.advance(300_000);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'machines_offline',
      text: {
        en: 'The only machine for it in pool default is offline; it was heard of 5 min ago.',
        zh: '机器池 default 中唯一可用的机器不在线，最后在 5 分前有过消息。',
      },
    });
    await core.agent('m1').beat([]);
    expect((await whyOf(core, id)).reason).toBe('next');
  });

  it('because no template asks for these labels any more', async () => {
    core = await Core.open();
    await core.agent('m1', { labels: { city: 'sz' } }).register();
    const id = await create({ labels: { city: 'sz' } });
    expect((await whyOf(core, id, [{ city: 'sz' }])).reason).toBe('next');
    expect(await whyOf(core, id, [{ city: 'bj' }])).toMatchObject({ reason: 'template_changed' });
  });
});

describe('a queued task that must wait for a time', () => {
  it('which was asked for', async () => {
    await openWith();
    const id = await create({ runAt: core.clock.now() + 50_400_000 });
    expect(await whyOf(core, id)).toEqual({
      status: 'queued',
      reason: 'scheduled',
      text: { en: 'It is to start later: in 14 h.', zh: '定于 14 小时后开始。' },
      untilAt: core.clock.now() + 50_400_000,
    });
  });

  it('before another try after a passing fault', async () => {
    await openWith();
    const id = await create({ retry: { max: 3, baseMs: 25_000, factor: 2, capMs: 60_000, jitter: 0 } });
    await core.tell(await core.run(), { type: 'failed', errorClass: 'transient', error: 'connection refused\nat x' });
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'retry_wait',
      text: {
        en: 'Try 1 of 3 went wrong: connection refused. The next one is in 25 s.',
        zh: '第 1 次尝试（共 3 次）未成功：connection refused。25 秒后再试。',
      },
    });
  });

  it('before another try after a time-out', async () => {
    await openWith();
    const id = await create({ retry: { max: 3, baseMs: 25_000, factor: 2, capMs: 60_000, jitter: 0 } });
    await core.tell(await core.run(), { type: 'timed_out' });
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'retry_wait',
      text: { en: 'Try 1 of 3 went wrong: it took too long. The next one is in 25 s.' },
    });
  });

  it('that the other side has asked for', async () => {
    await openWith();
    const id = await create();
    const news = { type: 'failed', errorClass: 'rate_limited', error: '429', retryAfterMs: 120_000 } as const;
    await core.tell(await core.run(), news);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'rate_limit_wait',
      text: {
        en: 'The other side asked to come back later; it is tried again in 2 min.',
        zh: '对方要求稍后再试，2 分后再试。',
      },
      next: { en: 'This does not count as a try.' },
    });
  });

  it('and says when it is given up, unless a person has asked for it again', async () => {
    await openWith();
    const id = await create({ pool: 'hotel', ttlMs: 60_000 });
    core.clock.advance(20_000);
    expect((await whyOf(core, id)).next).toEqual({
      en: 'It starts when one is connected. If nothing changes, it is given up in 40 s.',
      zh: '有机器连接后会自动开始。若一直如此，40 秒后将放弃。',
    });
    core.clock.advance(40_000);
    expect(await whyOf(core, id)).toMatchObject({ reason: 'expiring' });
    await core.sweep();
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'expired',
      text: { en: 'No machine took it before its time was over.', zh: '在有效期内没有机器领取它。' },
    });
    await core.retry(id);
    expect((await whyOf(core, id)).next!.en).toBe('It starts when one is connected.');
  });

  it('because its service is down, and then because somebody tries it', async () => {
    const breakers = await BreakerCore.open();
    core = breakers.core;
    await core.agent('m1', { pools: ['psb'] }).register();
    await breakers.trip();
    const id = await breakers.create();
    const { untilAt } = await whyOf(core, id);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'breaker_open',
      text: {
        en: 'The service it needs (psb) has failed too often; it is tried again in 30 s.',
        zh: '所需的服务（psb）多次出错，30 秒后再试。',
      },
    });
    const other = await breakers.create();
    core.clock.set(untilAt!);
    await breakers.run();
    expect(await whyOf(core, other)).toMatchObject({
      reason: 'breaker_testing',
      text: { zh: expect.stringContaining('正由一个任务试探是否恢复') },
    });
    await core.store.transact('test', (tx) => breakers.breakers.open(tx, { name: 'psb', by: 'x', why: null }, 5_000));
    expect(await whyOf(core, other)).toMatchObject({
      text: { en: expect.stringContaining('taken out by an operator') },
    });
  });
});

describe('several causes at once', () => {
  it('what only a person changes is told first, the others are counted, and all are listed', async () => {
    await openWith({}, { concurrency: 1, rate: { perMs: 60_000, max: 1 } });
    const id = await behindAnother();
    await change({ kind: 'pool', name: 'default', paused: true });
    await change({ kind: 'template', name: 't', paused: true });
    core.clock.advance(1_000);
    const why = await whyOf(core, id);
    expect(why).toMatchObject({
      reason: 'template_paused',
      text: {
        en: 'Errands of this kind are paused. There are 3 more reasons.',
        zh: '此类任务已暂停。另外还有 3 个原因。',
      },
    });
    expect(why.others!.map(({ reason }) => reason)).toEqual(['pool_paused', 'start_rate', 'template_full']);
    await change({ kind: 'pool', name: 'default', paused: false });
    await change({ kind: 'template', name: 't', paused: false });
    expect((await whyOf(core, id)).text.en).toMatch(/ in 59 s\. There is 1 more reason\.$/);
  });

  it('of a task that is not due, machines and limits of now are no reason', async () => {
    await openWith({}, { concurrency: 1 });
    await create();
    await core.claim('m1');
    const id = await create({ runAt: core.clock.now() + 1_000_000 });
    core.clock.advance(300_000);
    expect(await whyOf(core, id)).toMatchObject({ reason: 'scheduled' });
    await change({ kind: 'lane', name: 'main', paused: true });
    expect(await whyOf(core, id)).toMatchObject({ reason: 'lane_paused', others: [{ reason: 'scheduled' }] });
  });
});

describe('a task on a machine', () => {
  it('is about to start, runs, and is stopped at its time limit at the latest', async () => {
    await openWith();
    const id = await create({ timeoutMs: 100_000 });
    const grant = await core.claim('m1');
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'starting',
      text: { en: 'Machine m1 has taken it and is about to start it.', zh: '机器 m1 已领取，即将开始。' },
    });
    await core.tell(grant, { type: 'started' }, { agentId: 'm1' });
    await core.tell(grant, { type: 'progress', percent: 40, message: 'secret message' }, { agentId: 'm1' });
    core.clock.advance(10_000);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'running',
      untilAt: core.clock.now() + 90_000,
      text: {
        en: expect.stringMatching(/^It has been running on machine m1 for 10 s/),
        zh: expect.stringMatching(/^正在机器 m1 上运行，已 10 秒/),
      },
      next: { en: 'It is stopped in 1 min 30 s at the latest.', zh: '最迟 1 分 30 秒后停止。' },
    });
  });

  it.each([
    [{}, 'another try is made', '将再试一次'],
    [{ retry: { ...DEFAULT_RETRY, max: 1 } }, 'it ends as lost', '将按失联结束'],
    [{ onLost: 'ask' }, 'a person is asked what to do', '将请人工决定'],
    [{ onLost: 'fail' }, 'it ends as lost', '将按失联结束'],
  ] as const)('that does not answer any more: %j', async (more, en, zh) => {
    await openWith();
    const id = await create(more);
    await core.run('m1');
    core.clock.advance(18_000);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'machine_silent',
      untilAt: core.clock.now() + LEASE_MS - 18_000,
      text: {
        en: 'Machine m1, which holds it, has not answered for 18 s.',
        zh: '执行它的机器 m1 已 18 秒没有响应。',
      },
      next: { en: `If it stays silent, ${en} in 12 s.`, zh: `若仍无响应，12 秒后${zh}。` },
    });
  });

  it('is being stopped', async () => {
    await openWith();
    const id = await create();
    await core.run('m1');
    await core.cancel(id);
    core.clock.advance(5_000);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'cancelling',
      untilAt: core.clock.now() + GRACE_MS - 5_000,
      text: {
        en: 'It was told to stop 5 s ago; machine m1 has not confirmed it yet.',
        zh: '5 秒前已要求停止，机器 m1 尚未确认。',
      },
    });
  });

  it('has reached its time limit', async () => {
    await openWith();
    const id = await create({ timeoutMs: 20_000 });
    const agent = core.agent('m1');
    const { tasks } = await agent.pull();
    const { runId, leaseToken } = tasks[0]!;
    await agent.report({ runId, leaseToken, type: 'started', at: 0 });
    core.clock.advance(20_000);
    await agent.beat([{ runId, leaseToken }]);
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'time_limit_over',
      text: { zh: '运行时间已到，机器 m1 正在停止它。' },
      next: { en: 'It is ended in 1 min at the latest.' },
    });
  });
});

describe('a task that waits', () => {
  it('for an answer', async () => {
    await openWith();
    const id = await create({ args: { colour: 'red', n: 5 } });
    await core.tell(await core.run(), { type: 'needs_input', prompt: 'Really red, 5 times, or reddish?' });
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'question',
      text: { en: 'It asks: Really …, … times, or reddish?', zh: '它问：Really …, … times, or reddish?' },
      next: { en: 'It goes on when it is retried, and ends when it is cancelled.' },
    });
  });

  it('for a person to remove what blocks it', async () => {
    await openWith();
    const id = await create();
    await core.tell(await core.run(), { type: 'blocked', summary: 'The quota is used up.' });
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'blocked',
      text: {
        en: 'It cannot go on without a person: The quota is used up.',
        zh: expect.stringMatching(/^需要人工处理才能继续：The quota is used up/),
      },
    });
  });

  it('for a word about an effect whose fate nobody knows, and whose key is not told', async () => {
    await openWith();
    const id = await create();
    const begin = (grant: { runId: number; leaseToken: string }) => {
      const call = { type: 'payment', key: 'order-42', digest: null, policy: 'ask' } as const;
      return core.store.write(beginEffects, [
        { agentId: 'a1', ...call, runId: grant.runId, leaseToken: grant.leaseToken },
      ]);
    };
    await begin(await core.run());
    core.clock.advance(LEASE_MS);
    await core.sweep();
    const again = await core.run();
    await begin(again);
    await core.tell(again, { type: 'blocked', summary: 'not sure about order-42' });
    const why = await whyOf(core, id);
    expect(why).toMatchObject({
      reason: 'effect_uncertain',
      text: {
        en: 'Nobody knows whether its step “payment” has taken place.',
        zh: '无法确定步骤“payment”是否已经完成。',
      },
    });
    expect(JSON.stringify(why)).not.toContain('order-42');
  });

  it('for a decision after its machine was lost', async () => {
    await openWith();
    const id = await create({ onLost: 'ask' });
    await core.run();
    core.clock.advance(LEASE_MS);
    await core.sweep();
    expect(await whyOf(core, id)).toMatchObject({
      reason: 'lost_ask',
      text: {
        en: 'It needs a decision: the machine it ran on stopped answering, and nobody knows how far it came.',
        zh: '需要人工决定：运行它的机器没有响应，不清楚进行到了哪一步。',
      },
    });
  });

  it('for other tasks, and is called off when one of them fails', async () => {
    await openWith();
    const [a, b, c] = (await makeGraph(core, [{}, {}, { needs: [0, 1] }])) as [number, number, number];
    const [nameA, nameB] = [core.store.ids.encode(a), core.store.ids.encode(b)];
    expect(await whyOf(core, c)).toMatchObject({
      reason: 'needs',
      text: {
        en: `It waits for 2 other errands: ${nameA} (in line), ${nameB} (in line).`,
        zh: `正在等待 2 个任务：${nameA}（排队中）、${nameB}（排队中）。`,
      },
    });
    await fail(core, a);
    expect(await whyOf(core, c)).toMatchObject({
      status: 'cancelled',
      reason: 'dependency_failed',
      text: { en: expect.stringContaining(`${nameA} (failed)`), zh: expect.stringContaining(`${nameA}（失败）`) },
    });
  });
});

describe('a task that is over', () => {
  const once = { retry: { ...DEFAULT_RETRY, max: 1 } };
  const end = async (more: Partial<NewTask>, news: Parameters<Core['tell']>[1]) => {
    await openWith();
    const id = await create(more);
    await core.tell(await core.run(), news);
    return whyOf(core, id);
  };

  it('is done', async () => {
    expect(await end({}, { type: 'succeeded', summary: 'ok' })).toEqual({
      status: 'succeeded',
      reason: 'succeeded',
      text: { en: 'It is done; it took under 1 s.', zh: '已完成，用时 不到 1 秒。' },
    });
  });

  it('has failed for good', async () => {
    const news = { type: 'failed', errorClass: 'permanent', error: 'no such room 302' } as const;
    expect(await end({ args: { room: '302' } }, news)).toMatchObject({
      reason: 'permanent_error',
      text: { en: 'It failed: no such room …', zh: '失败：no such room …' },
    });
  });

  it('has used up its tries', async () => {
    const news = { type: 'failed', errorClass: 'transient', error: 'refused' } as const;
    expect(await end(once, news)).toMatchObject({
      reason: 'attempts_used_up',
      text: { en: 'It failed: refused.', zh: '失败：refused。' },
      next: { en: 'Retry it to run it again.', zh: '可以重试让它重新运行。' },
    });
  });

  it('has timed out', async () => {
    expect(await end({ ...once, timeoutMs: 600_000 }, { type: 'timed_out' })).toMatchObject({
      status: 'timed_out',
      text: { en: 'It took longer than the 10 min that it has.', zh: '运行时间超过了 10 分的上限。' },
    });
  });

  it('was put off too long', async () => {
    const news = { type: 'failed', errorClass: 'rate_limited', error: '429', retryAfterMs: 90_000_000 } as const;
    expect(await end({}, news)).toMatchObject({
      reason: 'rate_limited_too_long',
      text: {
        en: 'It was given up: the other side asked again and again to come back later (429).',
        zh: '已放弃：对方一再要求稍后再试（429）。',
      },
    });
  });

  it('was called off by its machine', async () => {
    expect(await end({}, { type: 'cancelled' })).toMatchObject({
      reason: 'cancelled_by_agent',
      text: { en: 'The machine that ran it called it off.', zh: '运行它的机器取消了它。' },
    });
  });

  it('was cancelled, before or after its end', async () => {
    await openWith();
    const idle = await create();
    await core.cancel(idle);
    expect(await whyOf(core, idle)).toMatchObject({ reason: 'cancel_requested', text: { zh: '已按要求取消。' } });
    const late = await create();
    const grant = await core.run();
    await core.cancel(late);
    await core.tell(grant, { type: 'succeeded', summary: 'ok' });
    expect(await whyOf(core, late)).toMatchObject({
      status: 'succeeded',
      reason: 'finished_before_cancel',
      text: { en: 'It was done before it could be cancelled.' },
    });
  });

  it.each([
    [once, 'attempts_used_up', /^The machine it ran on stopped answering; nobody knows how far it came\.$/],
    [{ onLost: 'fail' }, 'lost_not_retried', /It is not to run twice by mistake\.$/],
  ] as const)('is lost: %j', async (more, reason, en) => {
    await openWith();
    const id = await create(more);
    await core.run();
    core.clock.advance(LEASE_MS);
    await core.sweep();
    expect(await whyOf(core, id)).toMatchObject({ status: 'lost', reason, text: { en: expect.stringMatching(en) } });
  });

  it('never started on any machine', async () => {
    await openWith();
    const id = await create();
    for (let n = 0; n < 10; n += 1) {
      await core.claim('m1');
      core.clock.advance(LEASE_MS);
      await core.sweep();
    }
    expect(await whyOf(core, id)).toMatchObject({ status: 'lost', reason: 'never_started' });
  });

  it('was not to wait for its service', async () => {
    const breakers = await BreakerCore.open();
    core = breakers.core;
    await breakers.trip();
    expect(await whyOf(core, await breakers.create('psb-quick'))).toMatchObject({
      status: 'failed',
      reason: 'breaker_open',
      text: { zh: expect.stringContaining('所需的服务不可用') },
    });
  });
});

it('says nothing of a task that there is not', async () => {
  await openWith();
  await expect(whyOf(core, 999_999)).rejects.toThrow('there is no task');
});

it('reads only: no transaction is opened for it', async () => {
  await openWith({}, { concurrency: 1, rate: { perMs: 60_000, max: 1 } });
  const id = await behindAnother();
  const before = core.store.stats().transactions;
  await whyOf(core, id);
  expect(core.store.stats().transactions).toBe(before);
});

it('the end of its time names what held it back, without what it was asked to do', async () => {
  await openWith();
  const id = await create({ ttlMs: 60_000, args: { note: 'default' } });
  await change({ kind: 'pool', name: 'default', paused: true });
  core.clock.advance(60_000);
  const { line } = core;
  await core.store.transact('test', (tx) => sweep(tx, { cancelGraceMs: 1, agentsSpeakSince: 0, line }, core.emit));
  expect(await whyOf(core, id)).toMatchObject({
    reason: 'expired',
    text: {
      en: 'No machine took it before its time was over: Errands of pool … are paused.',
      zh: expect.stringMatching(/^在有效期内没有机器领取它：[^a-z]+$/i),
    },
  });
  const told = core.events.find((event) => event.type === 'task.ended');
  const zh = deathWords('zh', 'failed', told!.end);
  expect(zh).toMatch(/^失败：在有效期内没有机器领取它：.*暂停/);
  expect(zh).not.toMatch(/nobody|time to live/);
  await core.retry(id);
  expect(await core.task(id)).toMatchObject({ error: null, error_zh: null });
});
