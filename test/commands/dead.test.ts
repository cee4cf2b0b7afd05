import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sweep } from '../../src/tasks/sweep.ts';
import { ERRANDS } from '../support/errands.ts';
import { Rooms } from '../support/rooms.ts';

const PAY = 'id: pay\ntitle: { en: Pay, zh: 付款 }\ncommand: [pay]\nonLost: ask\n';

let rooms: Rooms;
beforeEach(async () => {
  rooms = await Rooms.open({ templates: { ...ERRANDS, 'pay.yaml': PAY } });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

const reply = (userId: string, text: string) => rooms.reply(userId, text);

const choose = (lang: 'en' | 'zh', userId?: string) => rooms.choose(lang, userId);

/** An errand that has failed for good; its id. */
async function deadOne(userId = '7'): Promise<string> {
  await rooms.say(userId, 'greet Ada');
  const id = await rooms.lastTaskId();
  await rooms.report(
    await rooms.claim(),
    { type: 'started' },
    { type: 'failed', errorClass: 'permanent', error: 'no such room' },
  );
  return id;
}

const expire = () => {
  rooms.clock.advance(30_000);
  return rooms.store.transact('test.sweep', (tx) =>
    sweep(tx, { cancelGraceMs: 1, agentsSpeakSince: 0 }, rooms.rooms.emitTasks),
  );
};
const states = async () =>
  (await rooms.store.fetch(rooms.store.dialect.build.selectFrom('dead_letter').select('state').orderBy('seq'))).map(
    ({ state }) => state,
  );

describe('/dead', () => {
  it('lists what failed in this conversation in plain words, in both languages', async () => {
    const id = await deadOne();
    rooms.clock.advance(300_000);
    await choose('en');
    expect(await reply('7', '/dead')).toBe(
      `💀 ${id} Hello failed: no such room (5 min ago)\n/dead replay <id> runs one again, /dead discard <id> puts it away.`,
    );
    await choose('zh');
    expect(await reply('7', '/死信')).toMatch(new RegExp(`^💀 ${id} 问候 失败：no such room（5 分前）\\n`));
  });

  it('replays, once', async () => {
    const id = await deadOne();
    expect(await reply('7', `/dead replay ${id}`)).toBe('Once more: Hello (Ada).');
    expect(await reply('7', `/dead replay ${id}`)).toBe('Hello (Ada) was already run again.');
    expect(await reply('7', '/dead')).toBe('No errand has failed for good.');
    await rooms.report(await rooms.claim(), { type: 'succeeded', summary: 'ok' });
    expect(await reply('7', `/dead discard ${id}`)).toBe('Hello (Ada) was run again and is done.');
    // The failure, and the success of the next generation: each is told.
    expect((await rooms.sent()).filter(({ kind }) => kind === 'final')).toHaveLength(2);
  });

  it('discards with a reason, and the audit names the person', async () => {
    const id = await deadOne();
    expect(await reply('7', `/dead discard ${id} the guest\nhas left`)).toBe('Put away: Hello (Ada).');
    expect(await reply('7', `/dead discard ${id}`)).toBe('Hello (Ada) was already put away.');
    expect(await states()).toEqual(['discarded']);
    const { build } = rooms.store.dialect;
    const entries = await rooms.store.fetch(build.selectFrom('audit').selectAll().where('action', 'like', 'dead%'));
    expect(entries).toMatchObject([
      { actor: 'person:telegram/default/7', action: 'dead_letter.discarded', data: '{"reason":"the guest has left"}' },
    ]);
  });

  it('keeps conversations apart, but for administrators', async () => {
    const id = await deadOne();
    await rooms.pair('8');
    await rooms.pair('9', 'admin');
    expect(await reply('8', '/dead')).toBe('No errand has failed for good.');
    for (const verb of ['replay', 'discard'])
      expect(await reply('8', `/dead ${verb} ${id}`)).toContain(`no errand ${id} in this conversation`);
    expect(await reply('8', '/dead all')).toContain('That is not how it works');
    expect(await states()).toEqual(['dead']);
    expect(await reply('9', '/dead')).toBe('No errand has failed for good.');
    expect(await reply('9', '/dead all')).toContain(`💀 ${id}`);
    expect(await reply('9', `/dead replay ${id}`)).toBe('Once more: Hello (Ada).');
  });

  it('is not for those who may not run anything', async () => {
    await rooms.pair('8', 'viewer');
    expect(await reply('8', '/dead')).toContain('not allowed to use /dead');
  });

  it('says what is wrong, and changes nothing', async () => {
    const id = await deadOne();
    for (const text of ['/dead bury', '/dead replay', `/dead replay ${id} now`, '/dead discard', `/dead all ${id}`])
      expect(await reply('7', text), text).toContain('/dead [all | replay <id> | discard <id> [reason]]');
    expect(await reply('7', '/dead replay zzzz')).toContain('no errand zzzz');
    await rooms.say('7', 'greet Bob');
    expect(await reply('7', `/dead replay ${await rooms.lastTaskId()}`)).toBe('Hello (Bob) has not failed for good.');
    expect(await states()).toEqual(['dead']);
  });
});

describe('an errand of onLost: ask', () => {
  it.each([
    [
      'en',
      /^✋ Pay needs you: the machine it ran on stopped answering, and nobody knows how far it came\n\/retry \w+ to run it again · \/cancel \w+$/,
      /waits for you: the machine it ran on stopped/,
    ],
    [
      'zh',
      /^✋ 付款 需要您处理：运行它的机器没有响应，不清楚进行到了哪一步\n\/retry \w+ 重新运行 · \/cancel \w+$/,
      /等您处理：运行它的机器没有响应/,
    ],
  ] as const)('asks its person in their language (%s), and goes on with /retry', async (lang, notice, status) => {
    await choose(lang);
    await rooms.say('7', '/run pay');
    const id = await rooms.lastTaskId();
    await rooms.report(await rooms.claim(), { type: 'started' });
    const before = (await rooms.sent()).length;
    await expire();
    await expire();
    const told = (await rooms.sent()).slice(before);
    expect(told).toMatchObject([{ kind: 'notice', text: expect.stringMatching(notice) }]);
    expect(await reply('7', '/status')).toMatch(status);
    await reply('7', `/retry ${id}`);
    await rooms.report(await rooms.claim(), { type: 'succeeded', summary: 'paid' });
    expect((await rooms.sent()).at(-1)).toMatchObject({ kind: 'final', text: expect.stringContaining('paid') });
  });

  it('ends with /cancel, told once', async () => {
    await rooms.say('7', '/run pay');
    const id = await rooms.lastTaskId();
    await rooms.report(await rooms.claim(), { type: 'started' });
    await expire();
    expect(await reply('7', `/cancel ${id}`)).toContain('Pay');
    expect((await rooms.sent()).filter(({ kind }) => kind === 'final')).toHaveLength(1);
    expect(await states()).toEqual([]);
  });
});
