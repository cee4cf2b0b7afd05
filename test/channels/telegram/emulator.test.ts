import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Emulator, startEmulator } from '../../support/fake-telegram/emulator.ts';
import { until } from '../../support/until.ts';
import { say, type TelegramRig, telegramRig } from './rig.ts';

const TOKEN = '5100200300:AAEmulatorEmulatorEmulatorEmulator1';

/** An emulator nobody here wrote; it never waits, answers some calls with a bare 500 and some with null. */
describe('against telegram-test-api', () => {
  let server: Emulator;
  let rig: TelegramRig;

  beforeEach(async () => {
    server = await startEmulator();
    const menus = [{ scope: 'private', commands: [{ command: 'status', description: 'What runs' }] }] as const;
    rig = await telegramRig({ token: TOKEN, apiRoot: server.config.apiURL, menus });
  });

  afterEach(async () => {
    await rig.stop();
    await server.stop();
  });

  it('what its client writes arrives once, in order, and an answer shows in its history', async () => {
    const client = server.getClient(TOKEN, { chatId: 7, userId: 7, firstName: 'Ann' });
    await client.sendCommand(client.makeCommand('/run hello name=你好'));
    await client.sendMessage(client.makeMessage('and then 😀'));
    await until(() => rig.port.rows.length === 2, 'both messages');
    expect(rig.port.rows).toMatchObject([
      {
        kind: 'text',
        text: '/run hello name=你好',
        addressed: true,
        sender: { id: '7' },
        route: { chat: '7', chatKind: 'direct' },
      },
      { kind: 'text', text: 'and then 😀' },
    ]);
    expect(await say(rig.channel, 'hello Ann', rig.port.rows[0]!.route)).toMatchObject({ outcome: 'sent' });
    const history = await client.getUpdatesHistory();
    expect(JSON.stringify(history)).toContain('hello Ann');
    expect(rig.channel.health().ok).toBe(true);
  });

  it('a pressed button arrives; the empty answer to answerCallbackQuery disturbs nothing', async () => {
    const client = server.getClient(TOKEN, { chatId: 7, userId: 7 });
    await client.sendCallback(client.makeCallbackQuery('approve:K7'));
    await until(() => rig.port.rows.length === 1, 'the press');
    expect(rig.port.rows[0]).toMatchObject({ kind: 'button', text: 'approve:K7', sender: { id: '7' } });
    await client.sendMessage(client.makeMessage('still there?'));
    await until(() => rig.port.rows.length === 2, 'the next message');
  });
});
