import { afterEach, describe, expect, it } from 'vitest';
import { startEmulator } from '../support/fake-telegram/emulator.ts';
import { startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function startHouse(env: Record<string, string>): Promise<TestGateway> {
  const house = await TestGateway.start(env);
  cleanups.push(() => house.stop());
  return house;
}

describe('Telegram, from a message to its result', () => {
  it('through an emulator that is not ours: /run hello name=Ada ends as one result in its history', async () => {
    const token = '123456:emulator-token-of-a-test';
    const emulator = await startEmulator();
    cleanups.push(() => emulator.stop());
    const house = await startHouse({ TELEGRAM_BOT_TOKEN: token, TELEGRAM_API_ROOT: emulator.config.apiURL });
    await house.pair('telegram', '7');
    await house.agent();
    const client = emulator.getClient(token, { chatId: 7, userId: 7, firstName: 'Ada', timeout: 20_000 });
    await client.sendMessage(client.makeMessage('/run hello name=Ada'));
    const said = async () => JSON.stringify(await client.getUpdatesHistory());
    await until(async () => /Hello, Ada/.test(await said()), 'the result in the history of the emulator', 60_000);
    // Everything that was asked is over and delivered: nothing is left that could send a second one.
    await until(async () => {
      const { body } = await house.api<{ tasks: { deliveryStatus: string }[] }>('GET', '/api/tasks');
      return body.tasks.length === 1 && body.tasks[0]!.deliveryStatus === 'delivered';
    }, 'the delivery to be on record');
    expect((await said()).match(/Hello, Ada/g)).toHaveLength(1);
  });

  it('a stranger gets a pairing code and nothing else; once approved, plain words run an errand and the answer replies to them', async () => {
    const telegram = await startFakeTelegram();
    cleanups.push(() => telegram.stop());
    const house = await startHouse({ TELEGRAM_BOT_TOKEN: telegram.token, TELEGRAM_API_ROOT: telegram.url });
    await house.agent();
    telegram.userSends({ chat: 42, user: 42, text: '/run hello name=Eve' });
    const code = await until(
      () => /\b[0-9A-HJKMNP-TV-Z]{8}\b/.exec(telegram.botTexts(42).join('\n'))?.[0],
      'a pairing code',
    );
    expect((await house.api<{ tasks: unknown[] }>('GET', '/api/tasks')).body.tasks).toEqual([]);
    const approved = await house.api('POST', '/api/access/pairings/approve', { code });
    expect(approved.status).toBe(200);
    telegram.userSends({ chat: 42, user: 42, text: '/run hello name=Eve' });
    const result = await until(
      () => telegram.history(42).find((message) => message.from === 'bot' && /Hello, Eve/.test(message.text)),
      'the result',
    );
    const asked = telegram
      .history(42)
      .filter((message) => message.from === 42)
      .at(-1)!;
    expect(result.replyTo).toBe(asked.message_id);
  });

  it('/cancel ends a running errand, and one message says so', async () => {
    const telegram = await startFakeTelegram();
    cleanups.push(() => telegram.stop());
    const house = await startHouse({ TELEGRAM_BOT_TOKEN: telegram.token, TELEGRAM_API_ROOT: telegram.url });
    await house.pair('telegram', '42');
    await house.agent();
    telegram.userSends({ chat: 42, user: 42, text: '/run sleep seconds=600' });
    await until(
      async () =>
        (await house.api<{ tasks: { status: string }[] }>('GET', '/api/tasks')).body.tasks[0]?.status === 'running',
      'it to run',
    );
    telegram.userSends({ chat: 42, user: 42, text: '/cancel' });
    await until(async () => {
      const { body } = await house.api<{ tasks: { status: string; deliveryStatus: string }[] }>('GET', '/api/tasks');
      return body.tasks[0]!.status === 'cancelled' && body.tasks[0]!.deliveryStatus === 'delivered';
    }, 'the cancel to be confirmed and told');
    expect(telegram.botTexts(42).filter((text) => text.startsWith('🚫'))).toHaveLength(1);
  });
});
