import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

/** A template whose program prints this file. */
async function templatePrinting(text: string, more = ''): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'errand-printing-'));
  cleanups.push(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'printed'), text);
  const command = JSON.stringify(['cat', join(folder, 'printed')]);
  await writeFile(
    join(folder, 'print.yaml'),
    `id: print\ntitle: { en: Print, zh: Print }\ncommand: ${command}\n${more}`,
  );
  return folder;
}

async function printed(text: string, more = '') {
  const telegram = await startFakeTelegram();
  cleanups.push(() => telegram.stop());
  const env = { TELEGRAM_BOT_TOKEN: telegram.token, TELEGRAM_API_ROOT: telegram.url };
  const house = await startHouse({ ...env, ERRAND_TEMPLATES_DIR: await templatePrinting(text, more) });
  await house.pair('telegram', '42');
  await house.agent();
  telegram.userSends({ chat: 42, user: 42, text: '/run print' });
  const found = () => telegram.history(42).find(({ from, text }) => from === 'bot' && /— done in/.test(text));
  return until(found, 'the result');
}

describe('Telegram, how a result looks', () => {
  it('A15: what a program prints is shown as it is, in its columns, whatever markup is in it', async () => {
    const text = 'a_b *c [x](y`\n  <b>&amp; </code> \\\n**not bold**';
    const result = await printed(text);
    expect(result.text).toMatch(/^✅ Print — done in .+\n/);
    expect(result.text.slice(result.text.indexOf('\n') + 1)).toBe(text);
    expect(result.sentWith!.entities).toEqual([
      { type: 'bold', offset: 2, length: 5 },
      { type: 'pre', offset: result.text.indexOf('\n') + 1, length: text.length },
    ]);
  });

  it('a summary that its template calls Markdown is read as Markdown', async () => {
    const result = await printed('# Report\n**3** of `4` [rooms](https://x.test/rooms)\n', 'summary: markdown\n');
    expect(result.text.split('\n').slice(1)).toEqual(['Report', '3 of 4 rooms (https://x.test/rooms)']);
    const shown = (result.sentWith!.entities as { type: string; offset: number; length: number }[]).map(
      ({ type, offset, length }) => `${type}:${result.text.slice(offset, offset + length)}`,
    );
    expect(shown).toEqual(['bold:Print', 'bold:Report', 'bold:3', 'code:4', 'text_link:rooms']);
  });
});

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
