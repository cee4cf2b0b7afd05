import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { IncomingMessage } from '../../src/channels/channel.ts';
import { OPEN_MS } from '../../src/commands/confirm.ts';
import { allowGroup, revoke, setRole } from '../../src/sessions/access.ts';
import { ERRANDS } from '../support/errands.ts';
import { direct, Rooms } from '../support/rooms.ts';

const MINUTE = 60_000;
let rooms: Rooms;
const group = { channel: 'telegram', account: 'default', chat: '-100', chatKind: 'group' } as const;
const person = { channel: 'telegram', account: 'default', userId: '7' } as const;
const texts = async (text: string, more: Partial<IncomingMessage> = {}, userId = '7') =>
  (await rooms.say(userId, text, more)).map((row) => row.text);
const old = (minutes: number) => ({ sentAt: rooms.clock.now() - minutes * MINUTE });
const names = async () => (await rooms.tasks()).map((task) => (JSON.parse(task.args) as { name: string }).name);
const idIn = (text: string) => /\/yes (\w+)/.exec(text)![1]!;
const fates = async () => (await rooms.inbox()).map((row) => row.reason);

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

describe('an old message', () => {
  it('case 37: asks before it starts an errand, and /yes runs it once with its own route', async () => {
    const route = { ...direct('7'), messageId: '55' };
    const [question] = await texts('greet Ada', { ...old(120), route });
    expect(question).toMatch(/^This is 2 h old: “greet Ada”\. Run it now\? \/yes (\w+) runs it, \/no \1 does not\.$/);
    expect(await rooms.tasks()).toEqual([]);
    const id = idIn(question!);
    await texts(`/yes ${id.toUpperCase()}`);
    expect(await names()).toEqual(['Ada']);
    const [flow] = await rooms.store.fetch(rooms.store.dialect.build.selectFrom('flow').selectAll());
    expect(JSON.parse(flow!.route!)).toEqual(route);
    expect(await texts(`/yes ${id}`)).toEqual(['There is no open question of mine to answer.']);
    expect(await rooms.tasks()).toHaveLength(1);
  });

  it('is asked about from the limit on, by the platform’s time; a time ahead of ours is a wrong clock', async () => {
    await texts('greet a', old(30));
    await texts('greet b', old(-600));
    await texts('greet c');
    expect(await names()).toEqual(['a', 'b', 'c']);
    expect(await texts('greet d', { sentAt: rooms.clock.now() - 30 * MINUTE - 1 })).toHaveLength(1);
    expect(await names()).toHaveLength(3);
  });

  it('counts from its arrival too: one that was stored and not worked off for hours is asked about', async () => {
    await rooms.intake.stop();
    await rooms.hear('7', 'greet Ada');
    rooms.clock.advance(120 * MINUTE);
    await rooms.reopen();
    await rooms.settled();
    expect((await rooms.sent()).map((row) => row.text)).toEqual([expect.stringContaining('2 h old')]);
    expect(await rooms.tasks()).toEqual([]);
  });

  it('that only looks is answered at once; one that changes something is asked about', async () => {
    expect((await texts('/status', old(120)))[0]).toContain('Nothing is running');
    await texts('greet Ada');
    expect((await texts('/cancel', old(120)))[0]).toContain('Run it now?');
    expect((await rooms.tasks())[0]!.status).toBe('queued');
    expect((await texts('/yes')).some((text) => text.startsWith('Cancelled before it started'))).toBe(true);
  });

  it('of a backlog is worked in order, and /yes all keeps it', async () => {
    await rooms.intake.stop();
    for (const name of ['a', 'b', 'c']) await rooms.hear('7', `greet ${name}`, old(60));
    await rooms.reopen();
    await rooms.settled();
    expect((await rooms.sent()).map((row) => /greet (\w)/.exec(row.text)![1])).toEqual(['a', 'b', 'c']);
    expect((await texts('/yes'))[0]).toMatch(/Which one\?[\s\S]*greet a[\s\S]*greet c/);
    await texts('/yes all');
    expect(await names()).toEqual(['a', 'b', 'c']);
  });

  it('/no leaves it, and it stays left', async () => {
    await texts('greet Ada', old(60));
    expect(await texts('/no')).toEqual(['Good, I leave it.']);
    expect((await texts('/yes'))[0]).toContain('no open question');
    expect(await fates()).toEqual(['asked_no', null, null]);
    expect(await rooms.tasks()).toEqual([]);
  });

  it('a late /yes is no answer, and the question stays open', async () => {
    await texts('greet Ada', old(60));
    expect((await texts('/yes', old(60)))[0]).toContain('reached me late');
    expect(await rooms.tasks()).toEqual([]);
    await texts('/yes');
    expect(await names()).toEqual(['Ada']);
  });

  it('can be answered for a day', async () => {
    await texts('greet a', old(60));
    rooms.clock.advance(OPEN_MS - 1);
    await texts('/yes');
    await texts('greet b', old(60));
    rooms.clock.advance(OPEN_MS);
    expect((await texts('/yes'))[0]).toContain('no open question');
    expect(await names()).toEqual(['a']);
  });

  it('case 37: is answered by who wrote it alone', async () => {
    await rooms.pair('8');
    await rooms.pair('1', 'admin');
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    const id = idIn((await texts('greet Ada', { ...old(60), route: group }))[0]!);
    for (const other of ['8', '1'])
      expect((await texts(`/yes ${id}`, { route: group }, other))[0]).toContain('no open question');
    expect((await texts(`/yes ${id}`))[0], 'from another conversation').toContain('no open question');
    await texts(`/yes ${id}`, { route: group });
    expect(await names()).toEqual(['Ada']);
  });

  it('runs with the rights of the moment of the answer', async () => {
    await texts('/run hello name=Ada', old(60));
    await rooms.store.transact('test.role', (tx) => setRole(tx, person, 'viewer', 'test'));
    expect((await texts('/yes'))[0]).toContain('not allowed to use /run');
    await rooms.store.transact('test.role', (tx) => setRole(tx, person, 'operator', 'test'));
    await texts('greet Bob', old(60));
    await rooms.store.transact('test.revoke', (tx) => revoke(tx, person, 'test'));
    expect((await texts('/yes'))[0]).toContain('access was taken away');
    expect(await rooms.tasks()).toEqual([]);
  });

  it('a crash between the answer and its commit repeats nothing', async () => {
    await texts('greet Ada', old(60));
    let faults = 1;
    rooms.sabotage = async (tx) => {
      const taken = tx.dialect.build.selectFrom('inbox').select('id').where('reason', '=', 'asked_yes');
      if ((await tx.fetch(taken)).length > 0 && faults-- > 0) throw new Error('dies here');
    };
    await texts('/yes');
    await rooms.settled();
    expect(faults).toBeLessThan(1);
    expect(await names()).toEqual(['Ada']);
  });

  it('is asked about in Chinese', async () => {
    expect((await texts('上报 302 张三', old(120)))[0]).toMatch(/^这是 .*前的消息：“上报 302 张三”。现在还要执行吗？/);
  });
});

describe('case 48: an edited message', () => {
  const version = (text: string, more: Partial<IncomingMessage> = {}) =>
    texts(text, { route: { ...direct('7'), messageId: '10' }, ...more });

  it('never starts an errand by itself and offers to run the new text', async () => {
    await version('/run hello name=a');
    const [question] = await version('/run hello name=b', { edited: true });
    expect(question).toContain('You changed a message to “/run hello name=b”. Run it with the new text?');
    expect(await names()).toEqual(['a']);
    await texts('/yes');
    expect(await names()).toEqual(['a', 'b']);
  });

  it('whose words are the same is ignored: platforms tell of previews too', async () => {
    await version('greet Ada');
    expect(await version('greet Ada', { edited: true })).toEqual([]);
    expect(await names()).toEqual(['Ada']);
    expect(await fates()).toEqual([null, 'edit_unchanged']);
  });

  it('a mended look is answered, a mended errand asked about, and small talk left alone', async () => {
    await version('/staus');
    expect((await version('/status', { edited: true }))[0]).toContain('Nothing is running');
    expect((await version('greet Ada', { edited: true }))[0]).toContain('Run it with the new text?');
    expect(await version('thanks', { edited: true })).toEqual([]);
  });

  it('takes the place of the question about its earlier text', async () => {
    const [first] = await version('greet Ada', old(60));
    const [second] = await version('greet Bob', { edited: true });
    expect((await texts(`/yes ${idIn(first!)}`))[0]).toContain('no open question');
    await texts(`/yes ${idIn(second!)}`);
    expect(await names()).toEqual(['Bob']);
  });

  it('of somebody else with the same number is another message', async () => {
    await rooms.pair('8');
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    const route = { ...group, messageId: '10' };
    await texts('greet Ada', { route });
    expect((await texts('greet Ada', { route, edited: true }, '8'))[0]).toContain('Run it with the new text?');
  });
});

describe('an album', () => {
  it('is one message: its first caption is acted on, pictures without words are nothing', async () => {
    const picture = (text: string, kind: 'text' | 'other' = 'text') => texts(text, { album: 'a1', kind });
    await picture('', 'other');
    await picture('greet Ada');
    await picture('greet Bob');
    await texts('greet Eve', { album: 'a2' });
    expect(await names()).toEqual(['Ada', 'Eve']);
    expect(await fates()).toEqual(['not_text', null, 'album', null]);
  });
});

describe('case 45: privacy mode', () => {
  const added = { route: group, kind: 'other', addressed: false, joined: true, limitedView: true } as const;

  it('is explained when somebody we know adds the bot, once, and in /start of the group', async () => {
    expect((await texts('', added))[0]).toContain('privacy mode');
    expect(await texts('', added)).toEqual([]);
    await rooms.store.transact('test.allow', (tx) => allowGroup(tx, group, 'test'));
    expect((await texts('/start', { route: group, limitedView: true }))[0]).toMatch(/^Hello[\s\S]*privacy mode/);
    expect((await texts('/start', { route: group }))[0]).not.toContain('privacy');
  });

  it('is not explained to strangers, nor where the bot sees everything', async () => {
    expect(await texts('', added, '9')).toEqual([]);
    expect(await texts('', { ...added, sender: {} })).toEqual([]);
    const { limitedView: _, ...all } = added;
    expect(await texts('', all)).toEqual([]);
    expect(await fates()).toEqual(['joined', 'joined', 'joined']);
  });
});
