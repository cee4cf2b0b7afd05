import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SendOutcome } from '../../src/channels/channel.ts';
import { AppError } from '../../src/errors.ts';
import { REPEAT_MARK } from '../../src/outbox/sending.ts';
import { scriptedChannel } from '../support/scripted-channel.ts';
import { until } from '../support/until.ts';
import { final, Rig, route, START } from './rig.ts';

const SENT: SendOutcome = { outcome: 'sent', platformId: 'x' };
const BUSY: SendOutcome = { outcome: 'retry', error: '429', afterMs: 30_000, scope: 'chat' };
const AWAY: SendOutcome = { outcome: 'retry', error: 'no connection', scope: 'channel' };
const LOST: SendOutcome = { outcome: 'unknown', error: 'cut', safe: false };
const LOST_SAFE: SendOutcome = { outcome: 'unknown', error: 'cut', safe: true };
const marked = (text: string) => `${REPEAT_MARK}\n${text}`;
const never = () => new Promise<SendOutcome>(() => undefined);

let rig: Rig;
beforeEach(async () => {
  rig = await Rig.create();
});
afterEach(() => rig.end());

const settled = (...statuses: string[]) =>
  until(async () => (await rig.statuses()).join() === statuses.join(), `the states ${statuses.join()}`);

describe('order and pace', () => {
  it('each chat gets its messages in the order they were stored, one at a time', async () => {
    const channel = scriptedChannel();
    const chats = ['a', 'b', 'c', 'd'];
    const busy = new Set<string>();
    let collisions = 0;
    channel.otherwise(async (message) => {
      if (busy.has(message.route.chat)) collisions += 1;
      busy.add(message.route.chat);
      await new Promise((resolve) => setImmediate(resolve));
      busy.delete(message.route.chat);
      return SENT;
    });
    for (let n = 0; n < 10; n += 1) await rig.enqueue(...chats.map((chat) => final(chat, `${chat}${n}`)));
    await rig.deliver([channel]);
    await until(async () => (await rig.statuses()).every((status) => status === 'sent'), 'all to be sent');
    for (const chat of chats)
      expect(channel.arrived(chat)).toEqual(Array.from({ length: 10 }, (_, n) => `${chat}${n}`));
    expect(collisions).toBe(0);
  });

  it('a wake-up is enough for a new message to go', async () => {
    const channel = scriptedChannel();
    const delivery = await rig.deliver([channel]);
    await rig.enqueue(final('1', 'now'));
    delivery.wake();
    await settled('sent');
    expect(await rig.row('now')).toMatchObject({
      platform_ids: '["p1"]',
      sent_at: START,
      error: null,
      lease_until: null,
    });
    expect(rig.events.at(-1)).toMatchObject({ type: 'outbox.sent', kind: 'final', chat: '1' });
  });

  it('a held chat blocks nobody else and resumes in order when its time has come', async () => {
    const channel = scriptedChannel();
    channel.next(BUSY);
    await rig.enqueue(final('slow', 's1'), final('slow', 's2'));
    const delivery = await rig.deliver([channel]);
    await until(async () => (await rig.row('s1')).error === '429', 's1 to be refused');
    await rig.enqueue(final('quick', 'q1'));
    delivery.wake();
    await settled('pending', 'pending', 'sent');
    expect(channel.texts()).toEqual(['s1', 'q1']);

    rig.clock.advance(29_999);
    await rig.enqueue(final('quick', 'q2'));
    delivery.wake();
    await settled('pending', 'pending', 'sent', 'sent');
    rig.clock.advance(1);
    delivery.wake();
    await settled('sent', 'sent', 'sent', 'sent');
    expect(channel.arrived('slow')).toEqual(['s1', 's2']);
  });

  it('A33: a pause that the platform asks for is kept, twice if need be, and the result comes once', async () => {
    const channel = scriptedChannel();
    const wait: SendOutcome = { outcome: 'retry', error: 'retry after 37', afterMs: 37_000, scope: 'chat' };
    let refused = 0;
    channel.otherwise(({ route: { chat } }) => (chat === 'slow' && refused++ < 2 ? wait : SENT));
    await rig.enqueue(final('slow', 'result'));
    const delivery = await rig.deliver([channel]);
    for (const refusals of [1, 2]) {
      await until(async () => (await rig.row('result')).attempts === refusals, `refusal ${refusals}`);
      await until(async () => (await rig.row('result')).status === 'pending', 'it to wait');
      rig.clock.advance(36_999);
      await rig.enqueue(final('other', `other ${refusals}`));
      delivery.wake();
      await until(() => channel.texts().includes(`other ${refusals}`), 'another chat to be served');
      expect(channel.calls.filter(({ route: { chat } }) => chat === 'slow').length).toBe(refusals);
      rig.clock.advance(1);
      delivery.wake();
    }
    await settled('sent', 'sent', 'sent');
    expect(channel.arrived('slow')).toEqual(['result']);
  });

  it('a channel in trouble is probed by one message at a time and does not hold up other channels', async () => {
    const telegram = scriptedChannel();
    const wecom = scriptedChannel('wecom');
    telegram.otherwise(() => AWAY);
    await rig.enqueue(...['1', '2', '3'].map((chat) => final(chat, `t${chat}`)));
    const delivery = await rig.deliver([telegram, wecom]);
    await until(
      async () => (await rig.rows()).every((row) => row.error === 'no connection' && row.status === 'pending'),
      'all to fail',
    );
    await rig.enqueue({ route: route('w', 'wecom'), kind: 'reply', text: 'w1' });
    delivery.wake();
    await settled('pending', 'pending', 'pending', 'sent');

    const before = telegram.calls.length;
    rig.clock.advance(2_000);
    delivery.wake();
    await until(() => telegram.calls.length > before, 'the probe');
    await until(async () => (await rig.rows()).every((row) => row.status !== 'sending'), 'the probe to fail');
    expect(telegram.calls.length).toBe(before + 1);

    telegram.otherwise(() => SENT);
    rig.clock.advance(600_000);
    delivery.wake();
    await settled('sent', 'sent', 'sent', 'sent');
  });

  it('not more than the set number of chats are written to at the same time', async () => {
    const channel = scriptedChannel();
    let open = 0;
    let most = 0;
    const release: (() => void)[] = [];
    channel.otherwise(async () => {
      open += 1;
      most = Math.max(most, open);
      await new Promise<void>((resolve) => release.push(resolve));
      open -= 1;
      return SENT;
    });
    await rig.enqueue(...Array.from({ length: 9 }, (_, n) => final(`c${n}`, `m${n}`)));
    await rig.deliver([channel], { parallel: 3 });
    for (let n = 0; n < 9; n += 1) {
      const free = await until(() => release.shift(), 'a call to be open');
      free();
    }
    await until(async () => (await rig.statuses()).every((status) => status === 'sent'), 'all to be sent');
    expect(most).toBe(3);
  });

  it('messages of a channel that is not configured wait, however many, and block nobody', async () => {
    const channel = scriptedChannel();
    await rig.enqueue(final('1', 'other account', { route: { ...route('1'), account: 'gone' } }), final('1', 'mine'));
    await rig.deliver([channel]);
    await settled('pending', 'sent');
  });

  it('a result goes before updates and supersedes those of its task; other updates are sent', async () => {
    const channel = scriptedChannel();
    const update = (text: string, taskId: number, chat = '1') => final(chat, text, { kind: 'update', taskId });
    await rig.enqueue(
      update('1 of 2', 5),
      update('begun', 7),
      update('alone', 6),
      update('2 of 2', 5),
      update('elsewhere', 5, '2'),
    );
    await rig.enqueue(final('1', 'result', { taskId: 5 }), final('1', 'result 7', { taskId: 7 }));
    await rig.deliver([channel]);
    await settled('superseded', 'superseded', 'sent', 'superseded', 'sent', 'sent', 'sent');
    expect(channel.arrived('1')).toEqual(['result', 'result 7', 'alone']);
    expect((await rig.row('1 of 2')).error).toMatch(/result/);
  });
});

describe('failures', () => {
  it('a refused connection is tried again with growing pauses until it works', async () => {
    const channel = scriptedChannel();
    channel.next({ ...AWAY, scope: 'chat' }, { ...AWAY, scope: 'chat' });
    await rig.enqueue(final('1', 'm'));
    const delivery = await rig.deliver([channel]);
    const pauses: number[] = [];
    for (let n = 1; n <= 2; n += 1) {
      await until(
        async () => (await rig.row('m')).attempts === n && (await rig.row('m')).status === 'pending',
        `failure ${n}`,
      );
      pauses.push((await rig.row('m')).next_at - rig.clock.now());
      rig.clock.advance(pauses.at(-1)!);
      delivery.wake();
    }
    await settled('sent');
    expect(pauses).toEqual([500, 1_000]);
    expect(channel.calls.map((call) => call.mayBeRepeat)).toEqual([false, false, false]);
    expect(new Set(channel.calls.map((call) => call.id)).size).toBe(1);
  });

  it('while the platform is away an update is given up at its time and a result waits; where a chat refuses it too', async () => {
    const channel = scriptedChannel();
    channel.otherwise(() => AWAY);
    await rig.enqueue(final('1', 'result'), final('2', 'update', { kind: 'update' }));
    rig.clock.advance(3_600_000);
    const delivery = await rig.deliver([channel]);
    await settled('pending', 'expired');
    rig.clock.advance(23 * 3_600_000);
    const calls = channel.calls.length;
    delivery.wake();
    await until(
      async () => channel.calls.length > calls && (await rig.statuses()).join() === 'pending,expired',
      'a try that fails',
    );
    channel.otherwise(() => ({ ...AWAY, scope: 'chat' }));
    rig.clock.advance(3_600_000);
    delivery.wake();
    await settled('expired', 'expired');
    expect(rig.events.filter((event) => event.type === 'outbox.dead').map((event) => event.status)).toEqual([
      'expired',
      'expired',
    ]);
  });

  it('case 40: a lost answer of a result: once more and marked, then a person decides', async () => {
    const channel = scriptedChannel();
    channel.otherwise(() => LOST);
    await rig.enqueue(final('1', 'result', { taskId: 3 }));
    const delivery = await rig.deliver([channel]);
    await until(async () => (await rig.row('result')).maybe_repeat === 1, 'the first loss');
    expect(channel.calls).toHaveLength(1);
    rig.clock.advance(2_000);
    delivery.wake();
    await settled('unknown');
    expect(channel.texts()).toEqual(['result', marked('result')]);
  });

  it('case 40: a lost answer of anything but a result is not repeated', async () => {
    const channel = scriptedChannel();
    channel.otherwise(() => LOST);
    await rig.enqueue(final('1', 'u', { kind: 'update' }));
    const delivery = await rig.deliver([channel]);
    await settled('unknown');
    rig.clock.advance(600_000);
    await rig.enqueue(final('1', 'n', { kind: 'notice' }));
    delivery.wake();
    await settled('unknown', 'unknown');
    expect(channel.texts()).toEqual(['u', 'n']);
  });

  it('where a repeat is safe it is verbatim, at most five times; then a result comes marked', async () => {
    const channel = scriptedChannel('wecom');
    channel.otherwise(() => LOST_SAFE);
    await rig.enqueue({ route: route('w', 'wecom'), kind: 'final', text: 'result' });
    const delivery = await rig.deliver([channel]);
    for (let n = 1; n <= 6; n += 1) {
      await until(
        async () => (await rig.row('result')).attempts === n && (await rig.row('result')).status === 'pending',
        `loss ${n}`,
      );
      rig.clock.advance(300_000);
      delivery.wake();
    }
    await settled('unknown');
    expect(channel.texts()).toEqual([...Array.from({ length: 6 }, () => 'result'), marked('result')]);
    expect(channel.calls.map((call) => call.mayBeRepeat)).toEqual([false, true, true, true, true, true, true]);
  });

  it('a dead message does not block the next one', async () => {
    const channel = scriptedChannel();
    channel.next({ outcome: 'permanent', error: 'message is too long', unreachable: false });
    await rig.enqueue(final('1', 'bad', { taskId: 4, flowId: 2 }), final('1', 'good'));
    await rig.deliver([channel]);
    await settled('dead', 'sent');
    expect(rig.events).toContainEqual(
      expect.objectContaining({ type: 'outbox.dead', status: 'dead', taskId: 4, flowId: 2, kind: 'final' }),
    );
    expect((await rig.row('bad')).error).toBe('message is too long');
  });

  it('an unreachable chat is left alone until it speaks, then gets what waited', async () => {
    const channel = scriptedChannel();
    channel.next({ outcome: 'permanent', error: 'blocked by the user', unreachable: true });
    await rig.enqueue(final('1', 'a'), final('1', 'b'), final('2', 'c'));
    const delivery = await rig.deliver([channel]);
    await settled('dead', 'pending', 'sent');
    rig.clock.advance(30 * 86_400_000);
    await rig.enqueue(final('1', 'd'), final('2', 'e'));
    delivery.wake();
    await settled('dead', 'pending', 'sent', 'pending', 'sent');

    rig.events.length = 0;
    await rig.store.transact('test', (tx) => rig.outbox.clearHold(tx, [route('1'), route('1'), route('2')]));
    expect(rig.events).toEqual([
      { type: 'outbox.enqueued', chats: [{ channel: 'telegram', account: 'default', chat: '1' }] },
    ]);
    delivery.wake();
    await settled('expired', 'expired', 'sent', 'sent', 'sent', 'sent');
    const [list, ...rest] = channel.arrived('1');
    expect(list).toMatch(/a\n.*b/);
    expect(rest).toEqual(['d']);
  });

  it('A29: the result that found a person gone is told to have failed, and comes when the person speaks again', async () => {
    const channel = scriptedChannel();
    channel.next(
      { ...AWAY, error: '500' },
      { outcome: 'permanent', error: 'Forbidden: bot was blocked by the user', unreachable: true },
    );
    await rig.enqueue(final('1', 'result'), { route: route('1'), kind: 'reply', text: 'answer' });
    const delivery = await rig.deliver([channel]);
    await until(async () => (await rig.row('result')).error === '500', 'the failure');
    rig.clock.advance(600_000);
    delivery.wake();
    await settled('dead', 'pending');
    expect(rig.events).toContainEqual(expect.objectContaining({ type: 'outbox.dead', status: 'dead', kind: 'final' }));
    const calls = channel.calls.length;
    rig.clock.advance(3_600_000);
    await rig.enqueue(final('2', 'to somebody else'));
    delivery.wake();
    await settled('dead', 'pending', 'sent');
    expect(channel.calls.length).toBe(calls + 1);

    await rig.store.transact('test', (tx) => rig.outbox.clearHold(tx, [route('1')]));
    delivery.wake();
    await settled('sent', 'sent', 'sent');
    expect(channel.arrived('1')).toEqual(['result', 'answer']);
    expect(rig.events).toContainEqual(expect.objectContaining({ type: 'outbox.sent', kind: 'final', chat: '1' }));
  });

  it('A29: what a person has put away, or died of something else, stays dead when the chat speaks', async () => {
    const channel = scriptedChannel();
    channel.next(
      { outcome: 'permanent', error: 'message is too long', unreachable: false },
      { outcome: 'permanent', error: 'blocked by the user', unreachable: true },
    );
    await rig.enqueue(final('1', 'too long'), final('1', 'update', { kind: 'update' }));
    await rig.deliver([channel]);
    await settled('dead', 'dead');
    await rig.store.transact('test', (tx) => rig.outbox.clearHold(tx, [route('1')]));
    expect(await rig.statuses()).toEqual(['dead', 'dead']);
  });

  it('speaking does not end a pause the platform has asked for', async () => {
    const channel = scriptedChannel();
    channel.next(BUSY);
    await rig.enqueue(final('1', 'a'));
    const delivery = await rig.deliver([channel]);
    await until(async () => (await rig.row('a')).error === '429', 'the refusal');
    await rig.store.transact('test', (tx) => rig.outbox.clearHold(tx, [route('1')]));
    await rig.enqueue(final('2', 'b'));
    delivery.wake();
    await settled('pending', 'sent');
    expect(channel.texts()).toEqual(['a', 'b']);
  });

  it('a channel that throws or never answers costs its message only', async () => {
    const channel = scriptedChannel();
    channel.next(() => {
      throw new Error('bug in the adapter');
    }, never);
    await rig.enqueue(final('1', 'throws', { kind: 'reply' }));
    const delivery = await rig.deliver([channel], { limits: { timeoutMs: 5, graceMs: 1 } });
    await settled('unknown');
    expect((await rig.row('throws')).error).toContain('bug in the adapter');
    rig.clock.advance(60_000);
    await rig.enqueue(final('2', 'hangs', { kind: 'reply' }));
    delivery.wake();
    await settled('unknown', 'unknown');
    rig.clock.advance(60_000);
    await rig.enqueue(final('1', 'fine'));
    delivery.wake();
    await settled('unknown', 'unknown', 'sent');
  });

  it('a receipt that cannot be stored is stored later; the message is not sent twice', async () => {
    const channel = scriptedChannel();
    let failures = 0;
    rig.store.onBeforeCommit(async (tx) => {
      const [row] = await tx.fetch(tx.dialect.build.selectFrom('outbox').select('id').where('status', '=', 'sent'));
      if (!row || failures >= 3) return;
      failures += 1;
      throw new AppError('storage_full', 'the disk is full');
    });
    await rig.enqueue(final('1', 'm'));
    await rig.deliver([channel]);
    await settled('sent');
    expect(failures).toBe(3);
    expect(channel.texts()).toEqual(['m']);
  });
});

describe('parts', () => {
  it('a message resumes at the part that failed; only the first part replies', async () => {
    const channel = scriptedChannel();
    channel.next(SENT, BUSY);
    await rig.enqueue(final('1', 'one|two|three'));
    const delivery = await rig.deliver([channel]);
    await until(async () => (await rig.rows())[0]!.error === '429', 'the refusal');
    expect((await rig.rows())[0]).toMatchObject({ parts_sent: 1, platform_ids: '["x"]' });
    rig.clock.advance(30_000);
    delivery.wake();
    await settled('sent');
    expect(channel.texts()).toEqual(['one', 'two', 'two', 'three']);
    expect(channel.calls.map((call) => call.first)).toEqual([true, false, false, false]);
    expect((await rig.rows())[0]).toMatchObject({ parts_sent: 3, platform_ids: '["x","p3","p4"]' });
  });

  it('after a crash in the second part only that part is repeated, marked', async () => {
    const channel = scriptedChannel();
    channel.next(SENT, never);
    await rig.enqueue(final('1', 'one|two|three'));
    await rig.deliver([channel]);
    await until(() => channel.calls.length === 2, 'the second part to be under way');
    await rig.crash();
    const next = scriptedChannel();
    await rig.deliver([next]);
    await settled('sent');
    expect(next.texts()).toEqual([marked('two'), 'three']);
    expect(next.calls.map((call) => [call.first, call.mayBeRepeat])).toEqual([
      [false, true],
      [false, false],
    ]);
  });

  it('a part that was repeated and accepted leaves the next part its own repeat', async () => {
    const texts: string[][] = [];
    for (const answers of [[never], [SENT, never], [SENT]]) {
      const channel = scriptedChannel();
      channel.next(...answers);
      if (texts.length === 0) await rig.enqueue(final('1', 'one|two'));
      await rig.deliver([channel]);
      await until(() => channel.calls.length === answers.length, 'the calls');
      if (answers.includes(never)) await rig.crash();
      texts.push(channel.texts());
    }
    await settled('sent');
    expect(texts).toEqual([['one'], [marked('one'), 'two'], [marked('two')]]);
  });

  it('a mark that makes a part too long is cut off, and the part still counts as one', async () => {
    const first = scriptedChannel();
    first.next(never);
    await rig.enqueue(final('1', `${'x'.repeat(50)}|tail`));
    await rig.deliver([first]);
    await until(() => first.calls.length === 1, 'the call');
    await rig.crash();
    const channel = scriptedChannel('telegram', 'default', 60);
    await rig.deliver([channel]);
    await settled('sent');
    expect(channel.texts().join('')).toBe(`${marked('x'.repeat(50))}tail`);
    expect(channel.calls.map((call) => call.text.length <= 60)).toEqual([true, true, true]);
    expect(channel.calls.map((call) => call.first)).toEqual([true, false, false]);
    expect((await rig.rows())[0]).toMatchObject({ parts_sent: 2, maybe_repeat: 0 });
  });

  it('a sender that lost its lease between two parts sends no more', async () => {
    const channel = scriptedChannel();
    channel.next(async () => {
      await rig.store.transact('test.steal', async (tx) => {
        await tx.exec(tx.dialect.build.updateTable('outbox').set({ attempts: 9 }));
      });
      return SENT;
    });
    await rig.enqueue(final('1', 'one|two'));
    const delivery = await rig.deliver([channel]);
    await until(() => channel.arrived('1').length === 1, 'the first part');
    await delivery.stop();
    expect(channel.texts()).toEqual(['one']);
    expect(await rig.row('one|two')).toMatchObject({ status: 'sending', parts_sent: 0, attempts: 9 });
  });
});

describe('a crash between sending and marking', () => {
  async function crashWhileSending(message: Parameters<Rig['enqueue']>[0]) {
    const channel = scriptedChannel(message.route.channel);
    channel.otherwise(never);
    await rig.enqueue(message);
    await rig.deliver([channel]);
    await until(() => channel.calls.length === 1, 'the call');
    await rig.crash();
  }

  it('a result is sent once more, marked; after a second crash a person decides', async () => {
    await crashWhileSending(final('1', 'result', { taskId: 8 }));
    const second = scriptedChannel();
    second.otherwise(never);
    await rig.deliver([second]);
    await until(() => second.calls.length === 1, 'the second call');
    expect(second.calls[0]).toMatchObject({ text: marked('result'), mayBeRepeat: true, first: true });
    await rig.crash();
    const third = scriptedChannel();
    await rig.deliver([third]);
    await settled('unknown');
    expect(third.calls).toEqual([]);
    expect(rig.events.at(-1)).toMatchObject({ type: 'outbox.dead', status: 'unknown', taskId: 8 });
  });

  it('an update is not sent again', async () => {
    await crashWhileSending(final('1', 'update', { kind: 'update' }));
    const channel = scriptedChannel();
    await rig.enqueue(final('1', 'after'));
    await rig.deliver([channel]);
    await settled('unknown', 'sent');
    expect(channel.texts()).toEqual(['after']);
  });

  it('where the platform drops a repeat, anything is sent again verbatim', async () => {
    await crashWhileSending({ route: route('w', 'wecom'), kind: 'reply', text: 'answer' });
    const channel = scriptedChannel('wecom');
    await rig.deliver([channel]);
    await settled('sent');
    expect(channel.texts()).toEqual(['answer']);
    expect(channel.calls[0]!.mayBeRepeat).toBe(true);
  });

  it('where the platform has forgotten it meanwhile, a result is marked', async () => {
    await crashWhileSending({ route: route('w', 'wecom'), kind: 'final', text: 'answer' });
    rig.clock.advance(1_800_000);
    const channel = scriptedChannel('wecom');
    await rig.deliver([channel]);
    await settled('sent');
    expect(channel.texts()).toEqual([marked('answer')]);
  });
});

it('a receipt that was lost to a fault of ours is treated as a crash once the lease is over', async () => {
  const channel = scriptedChannel();
  let faults = 1;
  rig.store.onBeforeCommit(async (tx) => {
    const [row] = await tx.fetch(tx.dialect.build.selectFrom('outbox').select('id').where('status', '=', 'sent'));
    if (row && faults-- > 0) throw new Error('a bug');
  });
  await rig.enqueue(final('1', 'm'));
  const delivery = await rig.deliver([channel]);
  await until(() => faults === 0, 'the fault');
  rig.clock.advance(59_999);
  await rig.enqueue(final('2', 'other'));
  delivery.wake();
  await settled('sending', 'sent');
  rig.clock.advance(10_000);
  delivery.wake();
  await settled('sent', 'sent');
  expect(channel.arrived('1')).toEqual(['m', marked('m')]);
});

it('a call that takes longer than the lease is not taken for a crash by its own process', async () => {
  const channel = scriptedChannel();
  let release: () => void = () => undefined;
  channel.next(async () => {
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    return SENT;
  });
  await rig.enqueue(final('1', 'slow'));
  const delivery = await rig.deliver([channel]);
  await until(() => channel.calls.length === 1, 'the call');
  rig.clock.advance(70_000);
  await rig.enqueue(final('2', 'other'));
  delivery.wake();
  await settled('sending', 'sent');
  release();
  await settled('sent', 'sent');
  expect(channel.texts()).toEqual(['slow', 'other']);
});

describe('resend', () => {
  it('revives what ended without being sent, in its old place, and nothing else', async () => {
    const channel = scriptedChannel();
    channel.next({ outcome: 'permanent', error: 'no', unreachable: false }, LOST);
    await rig.enqueue(final('1', 'dead'), final('2', 'lost', { kind: 'reply' }));
    const delivery = await rig.deliver([channel]);
    await settled('dead', 'unknown');
    rig.clock.advance(60_000);
    await rig.enqueue(final('3', 'sent'));
    delivery.wake();
    await settled('dead', 'unknown', 'sent');
    const ids = (await rig.rows()).map((row) => row.id);
    expect(await rig.resend(...ids, 999_999)).toEqual([true, true, false, false]);
    delivery.wake();
    await settled('sent', 'sent', 'sent');
    expect(channel.arrived('1')).toEqual(['dead']);
    expect(channel.arrived('2')).toEqual([marked('lost')]);
  });

  it('a person’s wish goes before the hold of an unreachable chat', async () => {
    const channel = scriptedChannel();
    channel.next({ outcome: 'permanent', error: 'blocked', unreachable: true });
    await rig.enqueue(final('1', 'a'));
    const delivery = await rig.deliver([channel]);
    await settled('dead');
    await rig.resend((await rig.row('a')).id);
    delivery.wake();
    await settled('sent');
  });
});

it('stop waits for running calls, tells them to end, and a later start goes on', async () => {
  const channel = scriptedChannel();
  channel.next(
    (_message, signal) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve({ outcome: 'retry', error: 'stopped', scope: 'chat' }));
      }),
  );
  await rig.enqueue(final('1', 'm'));
  const delivery = await rig.deliver([channel]);
  await until(() => channel.calls.length === 1, 'the call');
  await Promise.all([delivery.stop(), delivery.stop()]);
  expect(await rig.row('m')).toMatchObject({ status: 'pending', error: 'stopped' });
  rig.clock.advance(60_000);
  await delivery.start();
  await settled('sent');
});

it('A30: five results over three restarts while the platform is slow are told once each, however often they are told to the outbox', async () => {
  const channel = scriptedChannel();
  let answer: () => void = () => undefined;
  channel.otherwise(async () => {
    await new Promise<void>((resolve) => {
      answer = resolve;
    });
    return SENT;
  });
  const results = ['a', 'b', 'c', 'd', 'e'].map((name) => final('1', name, { dedupeKey: `task:${name}:1:final` }));
  for (let restart = 0; restart < 3; restart += 1) {
    await rig.enqueue(...results);
    const before = channel.calls.length;
    const delivery = await rig.deliver([channel], { stopGraceMs: 60_000 });
    await until(() => channel.calls.length === before + 1, 'a call to be on its way');
    const stopped = delivery.stop();
    answer();
    await stopped;
  }
  channel.otherwise(() => SENT);
  await rig.enqueue(...results);
  await rig.deliver([channel]);
  await settled('sent', 'sent', 'sent', 'sent', 'sent');
  expect(channel.arrived('1')).toEqual(['a', 'b', 'c', 'd', 'e']);
});

it('while stopping, what is on its way is finished and nothing new is begun', async () => {
  const channel = scriptedChannel();
  let release: () => void = () => undefined;
  channel.next(async () => {
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    return SENT;
  });
  await rig.enqueue(final('1', 'on its way'), final('2', 'waits'), final('1', 'later'));
  const delivery = await rig.deliver([channel], { parallel: 1, stopGraceMs: 60_000 });
  await until(() => channel.calls.length === 1, 'the call');
  const stopped = delivery.stop();
  release();
  await stopped;
  // Whatever the delivery has still asked the store for comes before this.
  await rig.store.transact('test.flush', async () => undefined);
  expect(await rig.statuses()).toEqual(['sent', 'pending', 'pending']);
  expect(channel.texts()).toEqual(['on its way']);
});
