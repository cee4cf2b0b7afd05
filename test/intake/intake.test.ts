import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AppError } from '../../src/errors.ts';
import { createIntake, MAX_ATTEMPTS } from '../../src/intake/intake.ts';
import { listParked, retryParked } from '../../src/intake/parked.ts';
import { silentLog } from '../../src/log.ts';
import { allowGroup, revoke } from '../../src/sessions/access.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import { MAX_PENDING, requestPairing } from '../../src/sessions/pairing.ts';
import { getSession } from '../../src/sessions/sessions.ts';
import { ERRANDS } from '../support/errands.ts';
import { direct, Rooms } from '../support/rooms.ts';
import { until } from '../support/until.ts';

let rooms: Rooms;
const key = sessionKeyOf(direct('7'), '7');
const group = { channel: 'telegram', account: 'default', chat: '-100', chatKind: 'group' } as const;

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
});
afterEach(() => rooms.close());

describe('a paired person', () => {
  it('starts an errand with plain words: task, flow and the message own route', async () => {
    await rooms.pair('7');
    const route = { ...direct('7'), messageId: '55', thread: '3' };
    await rooms.say('7', '上报  302 张三 李四', { route });
    const [task] = await rooms.tasks();
    expect(task).toMatchObject({ template: 'report', source: 'chat', status: 'queued' });
    expect(JSON.parse(task!.args)).toEqual({ room: '302', guest: '张三 李四', day: '2026-03-01' });
    const [flow] = await rooms.store.fetch(rooms.store.dialect.build.selectFrom('flow').selectAll());
    expect(flow).toMatchObject({
      id: task!.flow_id,
      owner_session_key: task!.session_key,
      goal: '上报  302 张三 李四',
    });
    expect(JSON.parse(flow!.route!)).toEqual(route);
    expect((await rooms.inbox())[0]).toMatchObject({ status: 'done', session_key: task!.session_key });
    expect((await rooms.followups())[0]).toMatchObject({ status: 'started', flow_id: task!.flow_id });
  });

  it('is remembered as a conversation with the latest route', async () => {
    await rooms.pair('7');
    await rooms.say('7', '/start', { route: { ...direct('7'), messageId: '1' } });
    rooms.clock.advance(1_000);
    await rooms.say('7', '/start', { route: { ...direct('7'), messageId: '2' } });
    expect((await getSession(rooms.store, key))!.route.messageId).toBe('2');
  });

  it('gets one helpful line for words that fit nothing, in their language', async () => {
    await rooms.pair('7');
    expect((await rooms.say('7', 'what is the weather'))[0]!.text).toBe(
      'I did not find an errand for that. /help lists what I can do.',
    );
    expect((await rooms.say('7', '今天天气怎么样'))[0]!.text).toContain('没有找到对应的任务');
    expect(await rooms.tasks()).toEqual([]);
  });

  it('is told what an incomplete phrase lacks', async () => {
    await rooms.pair('7');
    const [reply] = await rooms.say('7', '/report 302');
    expect(reply!.text).toContain('guest');
    expect(await rooms.followups()).toEqual([]);
  });

  it('is told that a message is too long to be acted on', async () => {
    await rooms.pair('7');
    const [reply] = await rooms.say('7', `greet ${'a'.repeat(9_000)}`);
    expect(reply!.text).toContain('too long');
    expect(await rooms.tasks()).toEqual([]);
  });

  it('uses a button as if its words were typed', async () => {
    await rooms.pair('7');
    const replies = await rooms.say('7', '/status', { kind: 'button' });
    expect(replies).toHaveLength(1);
  });

  it('loses every right when revoked, and is told so once', async () => {
    await rooms.pair('7');
    await rooms.store.transact('test.revoke', (tx) =>
      revoke(tx, { channel: 'telegram', account: 'default', userId: '7' }, 'test'),
    );
    expect((await rooms.say('7', '/status')).map((row) => row.text)).toEqual([
      'Sorry, your access was taken away. An administrator can give it back; your id is telegram:7.',
    ]);
    expect(await rooms.say('7', 'greet Ada')).toEqual([]);
    expect((await rooms.inbox())[0]).toMatchObject({ status: 'refused', reason: 'revoked' });
  });
});

describe('an unpaired person', () => {
  it('gets a pairing code and nothing else, once a minute', async () => {
    const replies = await rooms.say('9', '/run hello');
    expect(replies).toHaveLength(1);
    expect(replies[0]!.text).toMatch(/\/pair approve [0-9A-Z]{8}\n/);
    expect(await rooms.say('9', 'greet Ada')).toEqual([]);
    rooms.clock.advance(61_000);
    const [again] = await rooms.say('9', '你好');
    expect(again!.text).toContain('配对码');
    expect(again!.text).not.toContain(/approve (\w{8})/.exec(replies[0]!.text)![1]);
    expect(await rooms.tasks()).toEqual([]);
    expect((await rooms.inbox()).map((row) => row.status)).toEqual(['refused', 'refused', 'refused']);
    expect(await getSession(rooms.store, sessionKeyOf(direct('9'), '9'))).toBeUndefined();
  });

  it('is told to come later when too many wait', async () => {
    await rooms.store.transact('test.crowd', async (tx) => {
      for (let index = 0; index < MAX_PENDING; index += 1) {
        const userId = `crowd${index}`;
        await requestPairing(tx, { channel: 'telegram', account: 'default', userId, route: direct(userId) });
      }
    });
    expect((await rooms.say('9', 'hi'))[0]!.text).toContain('too many people are waiting');
    expect(await rooms.say('9', 'hi?')).toEqual([]);
    expect((await rooms.say('10', '你好'))[0]!.text).toContain('请稍后再试');
  });

  it('is told where they asked when an administrator approves the code', async () => {
    await rooms.pair('1', 'admin');
    const [asked] = await rooms.say('9', '/start', {
      route: { ...direct('9'), messageId: '4' },
      sender: { id: '9', name: 'Ada' },
    });
    const code = /approve (\w{8})/.exec(asked!.text)![1]!;
    const answers = await rooms.say('1', `/pair approve ${code.toLowerCase()}`);
    expect(answers.map((row) => row.chat).sort()).toEqual(['1', '9']);
    expect(answers.find((row) => row.chat === '1')!.text).toBe('Ada is in now, as operator.');
    const welcome = answers.find((row) => row.chat === '9')!;
    expect(welcome.text).toContain('Welcome, Ada');
    expect(JSON.parse(welcome.route).messageId).toBe('4');
    await rooms.say('9', 'greet Ada');
    expect(await rooms.tasks()).toHaveLength(1);
  });
});

describe('groups', () => {
  it('are left alone while nobody speaks to the bot', async () => {
    await rooms.pair('7');
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    expect(await rooms.say('7', 'greet Ada', { route: group, addressed: false })).toEqual([]);
    expect(await rooms.tasks()).toEqual([]);
    expect((await rooms.inbox())[0]).toMatchObject({ status: 'ignored', reason: 'not_addressed' });
  });

  it('must be allowed, which an administrator does from within', async () => {
    await rooms.pair('7');
    await rooms.pair('1', 'admin');
    expect((await rooms.say('7', 'greet Ada', { route: group }))[0]!.text).toContain('may not work in this group');
    expect(await rooms.tasks()).toEqual([]);
    expect((await rooms.say('7', '/pair group', { route: group }))[0]!.text).toContain('not allowed to use /pair');
    await rooms.say('1', '/pair group', { route: group });
    await rooms.say('7', 'greet Ada', { route: group });
    expect((await rooms.tasks())[0]!.session_key).toBe(sessionKeyOf(group, '7'));
  });

  it('give no rights to who has no id', async () => {
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    const [row, ...more] = await rooms.say('7', '/status', { route: group, sender: { name: 'Anonymous' } });
    expect([row!.text, more]).toEqual([expect.stringContaining('has no rights here'), []]);
    expect((await rooms.inbox())[0]).toMatchObject({ status: 'refused', reason: 'anonymous' });
  });
});

describe('what can go wrong', () => {
  it('photos and joins are kept as rows and not acted on', async () => {
    await rooms.pair('7');
    expect(await rooms.say('7', '', { kind: 'other', addressed: false })).toEqual([]);
    expect((await rooms.inbox())[0]).toMatchObject({ status: 'ignored', reason: 'not_text' });
  });

  it('a message that always throws is put aside after three tries with an apology, and the others are answered', async () => {
    await rooms.pair('7');
    rooms.sabotage = async (tx) => {
      const rows = await tx.fetch(
        tx.dialect.build.selectFrom('inbox').selectAll().where('text', '=', '/whoami').where('status', '=', 'done'),
      );
      if (rows.length > 0) throw new Error('poison');
    };
    await rooms.intake.stop();
    for (const text of ['/status', '/whoami', '/tasks']) await rooms.hear('7', text);
    await rooms.intake.start();
    await rooms.settled();
    const rows = await rooms.inbox();
    expect(rows.map((row) => row.status)).toEqual(['done', 'failed', 'done']);
    expect(rows[1]).toMatchObject({ attempts: MAX_ATTEMPTS, reason: 'poison' });
    const texts = (await rooms.sent()).map((row) => row.text);
    expect(texts).toHaveLength(3);
    expect(texts.filter((text) => text.includes('went wrong'))).toHaveLength(1);
  });

  it('a message that was put aside is listed, and works when it is tried again; that is written down', async () => {
    await rooms.pair('7');
    rooms.sabotage = async (tx) => {
      const done = tx.dialect.build.selectFrom('inbox').select('id').where('status', '=', 'done');
      if ((await tx.fetch(done)).length > 0) throw new Error('poison');
    };
    await rooms.say('7', '/whoami');
    const [parked] = await listParked(rooms.store, { before: undefined, limit: 10 });
    expect(parked).toMatchObject({ text: '/whoami', reason: 'poison', attempts: MAX_ATTEMPTS });
    rooms.sabotage = async () => undefined;
    const again = () => rooms.store.transact('test.retry', (tx) => retryParked(tx, parked!.id, 'inbox/x', 'cli'));
    expect([await again(), await again()]).toEqual([true, false]);
    rooms.intake.wake();
    await rooms.settled();
    expect((await rooms.sent()).at(-1)!.text).toContain('telegram:7');
    expect(await listParked(rooms.store, { before: undefined, limit: 10 })).toEqual([]);
    const entries = await rooms.store.fetch(rooms.store.dialect.build.selectFrom('audit').selectAll());
    expect(entries.filter((row) => row.action === 'inbox.retried')).toHaveLength(1);
  });

  it('a row whose route cannot be read does not stop the others', async () => {
    await rooms.intake.stop();
    await rooms.pair('7');
    await rooms.hear('7', '/status');
    await rooms.store.transact('test.break', (tx) =>
      tx.exec(tx.dialect.build.updateTable('inbox').set({ route: '{' })),
    );
    await rooms.intake.start();
    await rooms.say('7', '/whoami');
    expect((await rooms.inbox()).map((row) => row.status)).toEqual(['failed', 'done']);
  });

  it('a full disk is no fault of the message: it is tried again until it is answered', async () => {
    await rooms.pair('7');
    let failures = 0;
    rooms.sabotage = async (tx) => {
      const done = await tx.fetch(tx.dialect.build.selectFrom('inbox').select('id').where('status', '=', 'done'));
      if (done.length > 0 && failures < MAX_ATTEMPTS + 1) {
        failures += 1;
        throw new AppError('storage_full', 'the disk is full: nothing was stored');
      }
    };
    await rooms.hear('7', '/status');
    await until(async () => {
      rooms.intake.wake();
      return (await rooms.inbox())[0]!.status === 'done';
    }, 'the message to be answered');
    expect(failures).toBe(MAX_ATTEMPTS + 1);
    expect((await rooms.inbox())[0]!.attempts).toBe(0);
    expect(await rooms.sent()).toHaveLength(1);
  });

  it('a crash before the commit repeats neither effect nor answer', async () => {
    await rooms.pair('7');
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    await rooms.intake.stop();
    await rooms.hear('7', `/cancel ${id}`);
    let deaths = 0;
    rooms.sabotage = async (tx) => {
      const waiting = await tx.fetch(tx.dialect.build.selectFrom('inbox').select('id').where('status', '=', 'new'));
      if (waiting.length > 0) return;
      deaths += 1;
      throw new AppError('unavailable', 'the process dies here');
    };
    await rooms.intake.start();
    await until(() => deaths > 0, 'the crash');
    expect((await rooms.tasks())[0]!.status).toBe('queued');
    expect(await rooms.sent()).toEqual([]);
    await rooms.intake.stop();
    rooms.sabotage = async () => undefined;
    await rooms.reopen();
    await rooms.settled();
    await rooms.reopen();
    await rooms.settled();
    expect((await rooms.tasks())[0]!.status).toBe('cancelled');
    expect((await rooms.sent()).map((row) => row.kind).sort()).toEqual(['final', 'reply']);
  });

  it('messages stored while nothing ran are acted on at the next start, in order', async () => {
    await rooms.pair('7');
    await rooms.intake.stop();
    for (let index = 0; index < 120; index += 1) await rooms.hear('7', `/run hello name=n${index}`);
    await rooms.reopen();
    await rooms.settled();
    const names = (await rooms.tasks()).map((task) => (JSON.parse(task.args) as { name: string }).name);
    expect(names).toEqual(Array.from({ length: 120 }, (_, index) => `n${index}`));
  });

  it('two loops over one store act on each message once', async () => {
    await rooms.pair('7');
    await rooms.intake.stop();
    for (let index = 0; index < 10; index += 1) await rooms.hear('7', `greet n${index}`);
    await rooms.hear('7', '/whoami');
    const second = createIntake({ store: rooms.store, log: silentLog, rooms: rooms.rooms, retryPauseMs: 1 });
    await Promise.all([rooms.intake.start(), second.start()]);
    await rooms.settled();
    await second.stop();
    expect((await rooms.inbox()).map((row) => row.status)).toEqual(Array(11).fill('done'));
    expect(await rooms.tasks()).toHaveLength(10);
    expect(await rooms.sent()).toHaveLength(1);
  });

  it('the same update delivered twice starts one errand', async () => {
    await rooms.pair('7');
    const message = { identity: 'update:1' };
    await rooms.say('7', 'greet Ada', message);
    await rooms.say('7', 'greet Ada', message);
    expect(await rooms.tasks()).toHaveLength(1);
  });
});
