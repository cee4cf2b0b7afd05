import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { IncomingMessage } from '../../src/channels/channel.ts';
import { allowGroup, revoke, setGroupPolicy } from '../../src/sessions/access.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import { MAX_PENDING, requestPairing, SURE_MS } from '../../src/sessions/pairing.ts';
import { GROUP_MS, PERSON_MS, RIGHT_MS } from '../../src/sessions/refusals.ts';
import type { GroupPolicy } from '../../src/sessions/rights.ts';
import { ERRANDS } from '../support/errands.ts';
import { direct, Rooms } from '../support/rooms.ts';

let rooms: Rooms;
const group = { channel: 'telegram', account: 'default', chat: '-100', chatKind: 'group' } as const;
const texts = async (userId: string, text: string, more: Partial<IncomingMessage> = {}) =>
  (await rooms.say(userId, text, more)).map((row) => row.text);
const inGroup = (userId: string, text: string, more: Partial<IncomingMessage> = {}) =>
  texts(userId, text, { route: group, ...more });
const open = (policy: GroupPolicy = 'mention') =>
  rooms.store.transact('test.open', (tx) => setGroupPolicy(tx, group, policy, 'test'));
const fates = async () => (await rooms.inbox()).map((row) => row.reason);
const anonymous = { sender: { name: 'Ops' } };

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('1', 'admin');
  await rooms.pair('7');
});
afterEach(() => rooms.close());

describe('a refusal', () => {
  it('is one polite line with the person’s id, the same at most once in ten minutes, and counts each time', async () => {
    await rooms.store.transact('test.revoke', (tx) =>
      revoke(tx, { channel: 'telegram', account: 'default', userId: '7' }, 'test'),
    );
    expect((await texts('7', '你好'))[0]).toBe('抱歉，您的权限已被撤销。管理员可以恢复，您的编号是 telegram:7。');
    rooms.clock.advance(PERSON_MS - 1);
    expect(await texts('7', 'hi')).toEqual([]);
    rooms.clock.advance(1);
    expect(await texts('7', 'hi')).toHaveLength(1);
    expect([...rooms.refusals.counts()]).toEqual([['revoked', 3]]);
  });

  it('of a command is told once in a while for each command', async () => {
    expect((await texts('7', '/pair'))[0]).toContain('(you are telegram:7)');
    expect(await texts('7', '/pair')).toEqual([]);
    expect(await texts('7', '/access')).toHaveLength(1);
    rooms.clock.advance(RIGHT_MS);
    expect(await texts('7', '/pair')).toHaveLength(1);
    expect(await fates()).toEqual(['role', 'role', 'role', 'role']);
    expect(rooms.refusals.counts().get('role')).toBe(4);
  });

  it('of an errand that a viewer asks for counts too', async () => {
    await rooms.pair('5', 'viewer');
    expect((await texts('5', 'greet Ada'))[0]).toContain('not allowed to run');
    expect(rooms.refusals.counts().get('role')).toBe(1);
  });

  it('a clock that was set back silences nobody', async () => {
    expect(await texts('7', '/pair')).toHaveLength(1);
    rooms.clock.advance(-3_600_000);
    expect(await texts('7', '/pair')).toHaveLength(1);
  });

  it('a thousand of them leave no more rows than ten minutes of people', async () => {
    await open();
    for (let n = 0; n < 30; n += 1) await rooms.say(`s${n}`, '/status', { route: group });
    rooms.clock.advance(PERSON_MS);
    await rooms.say('last', '/status', { route: group });
    const rows = await rooms.store.fetch(rooms.store.dialect.build.selectFrom('refusal_notice').selectAll());
    expect(rows.map((row) => row.whom).sort()).toEqual(['chat:-100', 'user:last:not_paired']);
  });

  it('of a message whose processing is rolled back counts once', async () => {
    let faults = 1;
    rooms.sabotage = async (tx) => {
      const refused = tx.dialect.build.selectFrom('inbox').select('id').where('status', '=', 'refused');
      if ((await tx.fetch(refused)).length > 0 && faults-- > 0) throw new Error('a fault');
    };
    expect(await texts('7', '/pair')).toHaveLength(1);
    expect(rooms.refusals.counts().get('role')).toBe(1);
  });
});

describe('a stranger', () => {
  it('gets no code before the eyes of a group, and the group hears of strangers once a minute', async () => {
    await open();
    expect(await inGroup('9', '/status')).toEqual([
      'Sorry, we have not met yet (telegram:9). Write to me directly, and I tell you how to be let in.',
    ]);
    expect(await inGroup('10', '/status')).toEqual([]);
    rooms.clock.advance(GROUP_MS);
    expect(await inGroup('9', '/status')).toEqual([]);
    expect(await inGroup('10', '/status'), 'who was not told does not count as told').toHaveLength(1);
    expect((await texts('9', 'hi'))[0]).toMatch(/\/pair approve \w{8}\n.*telegram:9/);
  });

  it('gets no answer in a group that is not open', async () => {
    expect(await inGroup('9', '/status')).toEqual([]);
    expect(await fates()).toEqual(['not_paired']);
  });

  it('cannot be kept out by others who fill the list: the longest waiting makes room', async () => {
    const crowd = (from: number) =>
      rooms.store.transact('test.crowd', async (tx) => {
        for (let n = from; n < from + MAX_PENDING; n += 1) {
          const userId = `c${n}`;
          await requestPairing(tx, { channel: 'telegram', account: 'default', userId, route: direct(userId) });
        }
      });
    await crowd(0);
    expect((await texts('9', 'hi'))[0]).toContain('too many people');
    rooms.clock.advance(SURE_MS);
    expect((await texts('9', 'hi'))[0]).toContain('/pair approve');
    await crowd(1_000);
    const waiting = await rooms.store.fetch(rooms.store.dialect.build.selectFrom('pairing').select('user_id'));
    expect(waiting).toHaveLength(MAX_PENDING);
    expect(waiting.map((row) => row.user_id)).toContain('9');
  });
});

describe('a group', () => {
  it('case 46: is left alone but for commands, mentions and replies', async () => {
    await open();
    expect(await inGroup('7', 'greet Ada', { addressed: false })).toEqual([]);
    expect(await inGroup('9', 'lunch?', { addressed: false })).toEqual([]);
    expect(await rooms.tasks()).toEqual([]);
    await inGroup('7', 'greet Ada');
    expect(await rooms.tasks()).toHaveLength(1);
  });

  it('that wants commands alone gets no answer to anything else', async () => {
    await open('commands');
    expect(await inGroup('7', 'greet Ada')).toEqual([]);
    await inGroup('7', '/run hello name=Ada');
    expect(await inGroup('7', '/status', { kind: 'button' })).toHaveLength(1);
    expect(await rooms.tasks()).toHaveLength(1);
    expect((await fates())[0]).toBe('commands_only');
  });

  it('that is off hears nothing, until an administrator turns it on from within', async () => {
    await open('off');
    expect(await inGroup('7', '/status')).toEqual([]);
    expect(await inGroup('7', '/access group mention')).toEqual([]);
    expect(await inGroup('1', '/status')).toEqual([]);
    expect(await inGroup('1', '/access group mention')).toHaveLength(1);
    expect(await inGroup('7', '/status')).toHaveLength(1);
    expect((await fates()).slice(0, 3)).toEqual(['group_off', 'group_off', 'group_off']);
  });

  it('that is not open tells the people who are let in, once a minute', async () => {
    expect((await inGroup('7', 'greet Ada'))[0]).toContain('may not work in this group yet (you are telegram:7)');
    expect(await inGroup('1', 'greet Ada')).toEqual([]);
    expect(await rooms.tasks()).toEqual([]);
    expect(rooms.refusals.counts().get('group_not_allowed')).toBe(2);
  });

  it('gives anonymous administrators and channels no rights, and says so', async () => {
    expect(await inGroup('7', '/run hello', anonymous), 'not before it is open').toEqual([]);
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    expect((await inGroup('7', '/run hello', anonymous))[0]).toContain('anonymously or as a channel');
    expect(await inGroup('7', '/pair group', anonymous)).toEqual([]);
    expect(await rooms.tasks()).toEqual([]);
    expect(rooms.refusals.counts().get('anonymous')).toBe(3);
  });

  it('case 43, A32: has a conversation for each topic, and answers where it was asked', async () => {
    await open();
    const topic = { ...group, thread: '33' };
    await inGroup('7', 'greet Ada', { route: topic });
    expect((await rooms.tasks())[0]!.session_key).toBe(sessionKeyOf(topic, '7'));
    const [row] = await rooms.say('7', '/status', { route: topic });
    expect(JSON.parse(row!.route)).toMatchObject({ thread: '33' });
    expect((await inGroup('7', '/status'))[0]).toContain('Nothing is running');
  });
});
