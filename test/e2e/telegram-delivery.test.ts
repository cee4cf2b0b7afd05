import { afterEach, describe, expect, it } from 'vitest';
import { refuse, serverError } from '../support/fake-telegram/answers.ts';
import { type FakeTelegram, startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const ADA = 42;
const OLD = -4_455;
const NEW = -1_001_234_567_890;

async function start(): Promise<{ house: TestGateway; telegram: FakeTelegram }> {
  const telegram = await startFakeTelegram();
  cleanups.push(() => telegram.stop());
  const house = await TestGateway.start({ TELEGRAM_BOT_TOKEN: telegram.token, TELEGRAM_API_ROOT: telegram.url });
  cleanups.push(() => house.stop());
  await house.pair('telegram', String(ADA));
  await house.agent();
  return { house, telegram };
}

interface Listed {
  tasks: { taskId: string; sessionKey: string; deliveryStatus: string }[];
}

/** Ada runs an errand in a group that was let in; answers its task once the result is on record as delivered. */
async function runInGroup(house: TestGateway, telegram: FakeTelegram): Promise<Listed['tasks'][number]> {
  const group = { channel: 'telegram', account: 'default', chat: String(OLD), allow: true };
  expect((await house.api('POST', '/api/access/groups', group)).status).toBe(200);
  telegram.userSends({ chat: OLD, user: ADA, text: '/run hello name=Ada', chatType: 'group' });
  return until(async () => {
    const [task] = (await house.api<Listed>('GET', '/api/tasks')).body.tasks;
    return task?.deliveryStatus === 'delivered' ? task : undefined;
  }, 'the result in the group');
}

const runFor = (house: TestGateway, sessionKey: string) =>
  house.api('POST', '/api/tasks', { template: 'hello', args: { name: 'Eve' }, sessionKey });

describe('a group that becomes a supergroup', () => {
  it('case 31: says so twice, and everything of it goes on in the new one: its permission, its conversation, its results', async () => {
    const { house, telegram } = await start();
    const { taskId } = await runInGroup(house, telegram);
    telegram.chats.of(OLD).migratedTo = NEW;
    const said = { user: ADA, text: '' } as const;
    telegram.userSends({ ...said, chat: OLD, chatType: 'group', extra: { text: undefined, migrate_to_chat_id: NEW } });
    telegram.userSends({ ...said, chat: NEW, extra: { text: undefined, migrate_from_chat_id: OLD } });
    telegram.userSends({ chat: NEW, user: ADA, text: '/tasks' });
    await until(() => telegram.botTexts(NEW).some((text) => text.includes(taskId)), 'the task in the new group');
    const [task] = (await house.api<Listed>('GET', '/api/tasks')).body.tasks;
    expect((await runFor(house, task!.sessionKey)).status).toBe(201);
    await until(() => telegram.botTexts(NEW).find((text) => /Hello, Eve/.test(text)), 'the result in the new group');
    expect(telegram.botTexts(OLD).filter((text) => /Eve/.test(text))).toEqual([]);
  });

  it('case 30: is noticed by the first message that is sent to it; the next ones go straight to the new one', async () => {
    const { house, telegram } = await start();
    const { sessionKey } = await runInGroup(house, telegram);
    telegram.chats.of(OLD).migratedTo = NEW;
    expect((await runFor(house, sessionKey)).status).toBe(201);
    await until(() => telegram.botTexts(NEW).find((text) => /Hello, Eve/.test(text)), 'the result in the new group');
    const moved = await until(async () => {
      const { tasks } = (await house.api<Listed>('GET', '/api/tasks')).body;
      return tasks.every((task) => task.sessionKey !== sessionKey) && tasks[0];
    }, 'the conversation to be moved');
    const before = telegram.callsOf('sendMessage').filter((call) => Number(call.chat_id) === OLD).length;
    expect((await runFor(house, moved.sessionKey)).status).toBe(201);
    await until(
      () => telegram.botTexts(NEW).filter((text) => /Hello, Eve/.test(text)).length === 2,
      'the second result',
    );
    expect(telegram.callsOf('sendMessage').filter((call) => Number(call.chat_id) === OLD)).toHaveLength(before);
  });
});

describe('a chat that cannot be written to', () => {
  it('case 32: gets nothing more after it has blocked the bot, others do, and all that waited once it speaks again', async () => {
    const { house, telegram } = await start();
    telegram.userSends({ chat: ADA, user: ADA, text: '/run hello name=Ada' });
    const task = await until(async () => {
      const [one] = (await house.api<Listed>('GET', '/api/tasks')).body.tasks;
      return one?.deliveryStatus === 'delivered' && one;
    }, 'the first result');
    telegram.chats.of(ADA).blocked = 'bot was blocked by the user';
    expect((await runFor(house, task.sessionKey)).status).toBe(201);
    await until(async () => {
      const { tasks } = (await house.api<Listed>('GET', '/api/tasks')).body;
      return tasks.some(({ deliveryStatus }) => deliveryStatus === 'failed');
    }, 'the failed delivery');
    const calls = telegram.callsOf('sendMessage').length;
    expect((await runFor(house, task.sessionKey)).status).toBe(201);
    await house.pair('telegram', '7');
    telegram.userSends({ chat: 7, user: 7, text: '/whoami' });
    await until(() => telegram.botTexts(7).length === 1, 'an answer to somebody else');
    expect(telegram.callsOf('sendMessage')).toHaveLength(calls + 1);
    delete telegram.chats.of(ADA).blocked;
    telegram.userSends({ chat: ADA, user: ADA, text: '/whoami' });
    await until(() => telegram.botTexts(ADA).some((text) => /Hello, Eve/.test(text)), 'what waited');
  });

  it('case 27: is left alone for as long as Telegram asks; others are written to meanwhile', async () => {
    const { house, telegram } = await start();
    await house.pair('telegram', '7');
    telegram.script('sendMessage', refuse(429, 'Too Many Requests: retry after 900', { retry_after: 900 }));
    telegram.userSends({ chat: ADA, user: ADA, text: '/whoami' });
    await until(() => telegram.callsOf('sendMessage').length === 1, 'the refused call');
    telegram.userSends({ chat: ADA, user: ADA, text: '/whoami' });
    telegram.userSends({ chat: 7, user: 7, text: '/whoami' });
    await until(() => telegram.botTexts(7).length === 1, 'an answer to somebody else');
    expect(telegram.callsOf('sendMessage').map((call) => Number(call.chat_id))).toEqual([ADA, 7]);
  });

  it('an error of the server is tried again within a second', async () => {
    const { telegram } = await start();
    telegram.script('sendMessage', serverError());
    telegram.userSends({ chat: ADA, user: ADA, text: '/whoami' });
    await until(() => telegram.botTexts(ADA).length === 1, 'the answer');
    expect(telegram.callsOf('sendMessage')).toHaveLength(2);
  });
});
