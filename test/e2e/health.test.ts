import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const CHAT = 42;
const MUTE = `id: mute
title: { en: Mute }
command: [node, -e, "setTimeout(() => {}, 600000)"]
timeout: 1h
quietAfter: 10s
`;

it('a run that says nothing is asked for a sign of life, and a conversation hears that its agent is gone', async () => {
  const telegram = await startFakeTelegram();
  cleanups.push(() => telegram.stop());
  const env: Record<string, string> = {
    TELEGRAM_BOT_TOKEN: telegram.token,
    TELEGRAM_API_ROOT: telegram.url,
    ERRAND_ALERT_SESSIONS: `agent:main:telegram:direct:${CHAT}`,
    ERRAND_HEARTBEAT_MS: '500',
    ERRAND_OFFLINE_MS: '2000',
  };
  const processes = new Processes(env);
  cleanups.push(() => processes.end());
  env.ERRAND_TEMPLATES_DIR = join(processes.folder, 'templates');
  await mkdir(env.ERRAND_TEMPLATES_DIR);
  await writeFile(join(env.ERRAND_TEMPLATES_DIR, 'mute.yaml'), MUTE);
  await processes.gateway();
  const agent = await processes.agent('agent-1', await processes.agentToken('agent-1'));
  telegram.userSends({ chat: CHAT, user: CHAT, text: '/start' });
  const code = await until(
    () => /\b[0-9A-HJKMNP-TV-Z]{8}\b/.exec(telegram.botTexts(CHAT).join('\n'))?.[0],
    'a pairing code',
  );
  await processes.api('POST', '/api/access/pairings/approve', { code });
  telegram.userSends({ chat: CHAT, user: CHAT, text: '/run mute' });
  const taskId = await until(
    async () => (await processes.api<{ tasks: { taskId: string }[] }>('GET', '/api/tasks')).tasks[0]?.taskId,
    'the task',
  );
  const snapshot = await until(
    async () => {
      const path = `/api/tasks/${taskId}/events`;
      const { events } = await processes.api<{ events: { type: string; data: unknown }[] }>('GET', path);
      return events.find(({ type }) => type === 'snapshot');
    },
    'a sign of life',
    90_000,
  );
  expect(snapshot.data).toMatchObject({ processes: [{ name: expect.stringContaining('node') }] });
  await processes.kill(agent);
  await until(
    () => telegram.botTexts(CHAT).some((text) => text.includes('agent-1') && /offline/i.test(text)),
    'the alert',
    90_000,
  );
}, 240_000);
