import { afterEach, beforeEach, expect, it } from 'vitest';
import { ERRANDS } from '../support/errands.ts';
import { Rooms } from '../support/rooms.ts';

let rooms: Rooms;
beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS, lang: 'en' });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

const reply = (userId: string, text: string) => rooms.reply(userId, text);

it('says what is the matter and what would change it, without what the errand was asked to do', async () => {
  await rooms.say('7', 'greet Ada');
  const id = await rooms.lastTaskId();
  expect(await reply('7', `/why ${id}`)).toBe(
    `Hello · ${id}\nNo machine serves pool default.\nIt starts when one is connected.`,
  );
  await rooms.report(
    await rooms.claim(),
    { type: 'started' },
    { type: 'failed', errorClass: 'permanent', error: 'Ada is not there' },
  );
  expect(await reply('7', `/为什么 ${id.toUpperCase()}`)).toBe(
    `Hello · ${id}\nIt failed: … is not there.\nA repeat by itself would not help; retry it once the cause is gone.`,
  );
});

it('without an id it is the newest errand that is not over, whatever its state', async () => {
  expect(await reply('7', '/why')).toBe('Nothing is running or waiting here. /why <id> tells how an errand ended.');
  await rooms.say('7', 'greet Ada');
  const [first] = await rooms.tasks();
  await rooms.report(await rooms.claim(), { type: 'started' }, { type: 'needs_input', prompt: 'Which Ada?' });
  await rooms.say('7', 'greet Bob');
  const second = await rooms.lastTaskId();
  expect(await reply('7', '/why')).toMatch(new RegExp(`^Hello · ${second}\\nNo machine`));
  await rooms.report(await rooms.claim(), { type: 'succeeded', summary: 'ok' });
  expect(await reply('7', '/why')).toBe(
    `Hello · ${rooms.store.ids.encode(first!.id)}\nIt asks: Which …?\nIt goes on when it is retried, and ends when it is cancelled.`,
  );
});

it('errands of other conversations do not exist, except for administrators', async () => {
  await rooms.pair('8');
  await rooms.pair('9', 'admin');
  await rooms.say('7', 'greet Ada');
  const id = await rooms.lastTaskId();
  expect(await reply('8', `/why ${id}`)).toBe(await reply('8', '/why zzzz').then((text) => text.replace('zzzz', id)));
  expect(await reply('8', '/why')).toMatch(/^Nothing is running/);
  expect(await reply('9', `/why ${id}`)).toMatch(/No machine serves pool default/);
});

it('in Chinese', async () => {
  await rooms.close();
  rooms = await Rooms.open({ templates: ERRANDS, lang: 'zh' });
  await rooms.pair('7');
  await rooms.say('7', 'greet Ada');
  expect(await reply('7', '/why')).toMatch(/^问候 · \w+\n没有机器为机器池 default 服务。\n有机器连接后会自动开始。$/);
});
