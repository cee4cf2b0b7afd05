import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { accessIn, allowGroup, getPerson, listAccess } from '../../src/sessions/access.ts';
import { ERRANDS } from '../support/errands.ts';
import { Rooms } from '../support/rooms.ts';

let rooms: Rooms;
const group = { channel: 'telegram', account: 'default', chat: '-100', chatKind: 'group' } as const;
const person = (userId: string) => getPerson(rooms.store, { channel: 'telegram', account: 'default', userId });
const idOf = async (userId: string) => rooms.store.ids.encode((await person(userId))!.id);
const entries = () => rooms.store.fetch(rooms.store.dialect.build.selectFrom('audit').selectAll().orderBy('id'));
const inGroup = async (userId: string, text: string) =>
  (await rooms.say(userId, text, { route: group }))[0]?.text ?? '';

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('1', 'admin', { name: 'Root' });
  await rooms.pair('7', 'operator', { name: 'Ann' });
});
afterEach(() => rooms.close());

describe('/access', () => {
  it('lists people with their ids and roles', async () => {
    expect(await rooms.reply('1', '/access')).toBe(
      `• ${await idOf('1')} Root (telegram:1) — admin\n• ${await idOf('7')} Ann (telegram:7) — operator`,
    );
    await rooms.choose('zh', '1');
    expect(await rooms.reply('1', '/权限')).toContain('管理员');
  });

  it('changes a role, by id or by place, and writes down who did', async () => {
    expect(await rooms.reply('1', `/access role ${(await idOf('7')).toUpperCase()} approver`)).toBe(
      'Ann is approver now.',
    );
    expect(await rooms.reply('1', '/access role telegram:7 Viewer')).toBe('Ann is viewer now.');
    expect((await person('7'))!.role).toBe('viewer');
    expect((await entries()).slice(-2)).toMatchObject([
      { actor: 'person:telegram/default/1', target: 'telegram/default/7', data: '{"from":"operator","to":"approver"}' },
      { actor: 'person:telegram/default/1', target: 'telegram/default/7', data: '{"from":"approver","to":"viewer"}' },
    ]);
  });

  it('takes rights away and gives them back', async () => {
    expect(await rooms.reply('1', '/access revoke telegram:7')).toBe('Ann has no rights any more.');
    expect(await rooms.reply('1', '/access')).toContain('revoked');
    await rooms.say('1', '/access role telegram:7 operator');
    expect((await person('7'))!.revokedAt).toBeNull();
  });

  it.each([
    [
      'nobody by a bare user id, which some platforms let people choose',
      '/access role 7 admin',
      /I know nobody called 7/,
    ],
    ['a role there is not', '/access role telegram:7 king', /That is not how it works/],
    ['too much', '/access role telegram:7 admin now', /That is not how it works/],
    ['oneself', '/access role telegram:1 viewer', /Nobody changes their own rights/],
    ['oneself, for good', '/access revoke telegram:1', /Nobody changes their own rights/],
    ['a group outside of it', '/access group mention', /Send this in the group itself/],
  ])('does not change %s', async (_what, text, answer) => {
    const before = [await listAccess(rooms.store, 0), await entries()];
    expect(await rooms.reply('1', text)).toMatch(answer);
    expect([await listAccess(rooms.store, 0), await entries()]).toEqual(before);
  });

  it('is for administrators', async () => {
    expect(await rooms.reply('7', '/access role telegram:7 admin')).toContain('not allowed to use /access');
    expect((await person('7'))!.role).toBe('operator');
  });

  it('opens a group, says what is acted on there, and closes it', async () => {
    expect(await inGroup('1', '/access group commands')).toBe('In this group I act on commands only.');
    expect((await accessIn(rooms.store, group, '7')).group).toBe('commands');
    expect(await inGroup('1', '/access')).toContain('commands only');
    expect(await inGroup('1', '/access group close')).toContain('not open to me');
    expect((await accessIn(rooms.store, group, '7')).may('run')).toBe(false);
    expect((await entries()).slice(-2).map((row) => row.action)).toEqual(['group.allowed', 'group.denied']);
  });
});

describe('in a group', () => {
  beforeEach(async () => {
    await rooms.pair('8', 'operator');
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    await rooms.say('7', 'greet Ada', { route: group });
  });

  it.each(['/cancel <id>', '/retry <id>', '/notify silent <id>', '/dead discard <id>'])(
    '%s of somebody else’s errand is refused, by its own person and an administrator it is not',
    async (command) => {
      const text = command.replace('<id>', await rooms.lastTaskId());
      expect(await inGroup('8', text)).toContain('Somebody else has asked for');
      expect(await inGroup('7', text)).not.toContain('Somebody else');
      expect(await inGroup('1', text)).not.toContain('Somebody else');
    },
  );

  it('/cancel without an id looks at one’s own errands only', async () => {
    expect(await inGroup('8', '/cancel')).toContain('Nothing is running or waiting here');
    expect((await rooms.tasks())[0]!.status).toBe('queued');
    await rooms.say('8', 'greet Bob', { route: group });
    expect(await inGroup('7', '/cancel')).toContain('Cancelled before it started');
    expect((await rooms.tasks()).map((task) => task.status)).toEqual(['cancelled', 'queued']);
  });

  it('everybody who is let in sees it', async () => {
    expect(await inGroup('8', `/task ${await rooms.lastTaskId()}`)).toContain('Hello (Ada)');
  });
});
