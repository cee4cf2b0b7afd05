import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { setRole } from '../../src/sessions/access.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import { setSession } from '../../src/sessions/sessions.ts';
import { ERRANDS } from '../support/errands.ts';
import { direct, Rooms } from '../support/rooms.ts';
import { until } from '../support/until.ts';

let rooms: Rooms;

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

describe('an errand that waits', () => {
  it('starts after a crash between the mark on its message and its start, once', async () => {
    await rooms.followup.stop();
    await rooms.hear('7', 'greet Ada');
    await until(async () => (await rooms.inbox())[0]!.status === 'done', 'the mark');
    expect(await rooms.tasks()).toEqual([]);
    expect((await rooms.followups())[0]).toMatchObject({ status: 'queued', template: 'hello', user_id: '7' });
    await rooms.reopen();
    await rooms.settled();
    await rooms.reopen();
    await rooms.settled();
    expect(await rooms.tasks()).toHaveLength(1);
    expect((await rooms.followups())[0]!.status).toBe('started');
  });

  it('keeps the day on which it was asked, however late it starts', async () => {
    await rooms.followup.stop();
    await rooms.hear('7', '上报 302 张三');
    await until(async () => (await rooms.followups()).length === 1, 'the errand');
    rooms.clock.advance(86_400_000);
    await rooms.reopen();
    await rooms.settled();
    expect(JSON.parse((await rooms.tasks())[0]!.args)).toMatchObject({ day: '2026-03-01' });
  });

  it('is refused when the person has lost the right meanwhile', async () => {
    await rooms.followup.stop();
    await rooms.hear('7', 'greet Ada');
    await until(async () => (await rooms.followups()).length === 1, 'the errand');
    const key = { channel: 'telegram', account: 'default', userId: '7' } as const;
    await rooms.store.transact('test.role', (tx) => setRole(tx, key, 'viewer', 'test'));
    await rooms.reopen();
    await rooms.settled();
    expect(await rooms.tasks()).toEqual([]);
    expect((await rooms.followups())[0]).toMatchObject({ status: 'failed', reason: 'not_allowed' });
    expect((await rooms.sent())[0]!.text).toBe('You are not allowed to run “Hello”.');
  });

  it('is told to be gone when its template is', async () => {
    await rooms.followup.stop();
    await rooms.hear('7', 'greet Ada');
    await until(async () => (await rooms.followups()).length === 1, 'the errand');
    await rooms.removeTemplate('hello.yaml');
    await rooms.reopen();
    await rooms.settled();
    expect((await rooms.sent())[0]!.text).toContain('no errand hello any more');
  });
});

it('a message asks for one errand, however often it is stored', async () => {
  await rooms.followup.stop();
  await rooms.hear('7', 'greet Ada');
  await until(async () => (await rooms.followups()).length === 1, 'the errand');
  const inboxId = (await rooms.inbox())[0]!.id;
  const again = { inboxId, sessionKey: 'k', route: direct('7'), userId: '7', template: 'quiet', args: {} };
  await rooms.store.transact('test.again', (tx) => rooms.followup.ask(tx, [again, again]));
  expect((await rooms.followups()).map((row) => row.template)).toEqual(['hello']);
});

describe('starting', () => {
  it('says what is wrong with an argument and the right form, in the language of the person', async () => {
    const [english] = await rooms.say('7', '/report x Ada');
    expect(english).toMatchObject({ kind: 'reply' });
    expect(english!.text).toMatch(/room does not have the right form[\s\S]*\/run report room=… guest=… \[day=today\]/);
    const [chinese] = await rooms.say('7', '上报 x 张三');
    expect(chinese!.text).toMatch(/无法开始：room 的格式不对[\s\S]*用法：\/run report/);
    expect(await rooms.tasks()).toEqual([]);
  });

  it('does not repeat what was asked for before, and says so', async () => {
    await rooms.say('7', '/report 302 Ada');
    const [same] = await rooms.say('7', '/report 302 Ada');
    const id = await rooms.lastTaskId();
    expect(same!.text).toContain(`was asked for before (${id})`);
    expect(await rooms.tasks()).toHaveLength(1);
    expect((await rooms.followups()).map((row) => [row.status, row.reason])).toEqual([
      ['started', null],
      ['started', 'existing'],
    ]);
  });

  it('is open to the roles of the template only, and to administrators', async () => {
    expect((await rooms.say('7', '/run secret'))[0]!.text).toBe('You are not allowed to run “Secret”.');
    await rooms.pair('1', 'admin');
    expect(await rooms.say('1', '/run secret')).toEqual([]);
    expect(await rooms.tasks()).toHaveLength(1);
  });

  it('takes the notify policy that the conversation has chosen', async () => {
    await rooms.say('7', '/start');
    const key = sessionKeyOf(direct('7'), '7');
    await rooms.store.transact('test.choose', (tx) => setSession(tx, key, { notifyPolicy: 'silent' }));
    await rooms.say('7', 'greet Ada');
    expect((await rooms.tasks())[0]).toMatchObject({ notify_policy: 'silent', delivery_status: 'not_applicable' });
  });

  it('gives up an errand whose start always throws, apologises once, and starts the others', async () => {
    rooms.sabotage = async (tx) => {
      const rows = await tx.fetch(tx.dialect.build.selectFrom('task').select('args').where('args', 'like', '%poison%'));
      if (rows.length > 0) throw new Error('poison');
    };
    await rooms.followup.stop();
    for (const name of ['a', 'poison', 'b']) await rooms.hear('7', `greet ${name}`);
    await until(async () => (await rooms.followups()).length === 3, 'the errands');
    await rooms.followup.start();
    await rooms.settled();
    expect((await rooms.followups()).map((row) => row.status)).toEqual(['started', 'failed', 'started']);
    expect((await rooms.sent()).map((row) => row.text)).toEqual([expect.stringContaining('went wrong on my side')]);
  });
});
