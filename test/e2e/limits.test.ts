import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { startAgentProcess } from '../agents/worker/agent-process.ts';
import { processesWith, uniqueSleep } from '../agents/worker/rig.ts';
import { startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const CHAT = 42;

/** A folder with one template. */
async function folderOf(template: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'errand-limits-'));
  cleanups.push(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'one.yaml'), template);
  return folder;
}

interface TaskSeen {
  taskId: string;
  status: string;
  error?: string;
  errorClass?: string;
  errorType?: string;
  runs: { outcome: string }[];
}

it('A70: a program whose child takes more memory than it may is killed whole, and chat and API say that memory was the reason', async () => {
  const telegram = await startFakeTelegram();
  cleanups.push(() => telegram.stop());
  const mark = uniqueSleep();
  // 200 MiB and not more, for at most a minute, in the child of a shell that would go on to call itself a success.
  const hog = `node -e 'const b = Buffer.alloc(200 * 1048576, 1); setTimeout(() => {}, 60000, b, "${mark}")'; echo fine`;
  const gateway = await TestGateway.start({
    TELEGRAM_BOT_TOKEN: telegram.token,
    TELEGRAM_API_ROOT: telegram.url,
    ERRAND_TEMPLATES_DIR: await folderOf(
      `id: hog\ntitle: { en: Hog }\ncommand: ${JSON.stringify(['sh', '-c', hog])}\nlimits: { memory: 64MiB }\nretry: { max: 3 }\n`,
    ),
  });
  cleanups.push(() => gateway.stop());
  await gateway.pair('telegram', String(CHAT));
  const token = await gateway.gateway.rooms.tokens.issue({ agentId: 'agent-1', pools: ['default'], labels: {} });
  const agent = await startAgentProcess(
    gateway.url,
    gateway.folder,
    { AGENT_TOKEN: token },
    { limits: { sampleMs: 50, overMs: 300 } },
  );
  cleanups.push(() => agent.kill());
  telegram.userSends({ chat: CHAT, user: CHAT, text: '/run hog' });
  const told = await until(
    () => telegram.botTexts(CHAT).find((text) => text.includes('resource_exceeded')),
    'the chat to be told',
    60_000,
  );
  expect(told).toMatch(/memory: over the limit of 64 MiB/);
  const { body } = await gateway.api<{ tasks: TaskSeen[] }>('GET', '/api/tasks');
  const task = (await gateway.api<TaskSeen>('GET', `/api/tasks/${body.tasks[0]!.taskId}`)).body;
  expect(task).toMatchObject({ status: 'failed', runs: [{ outcome: 'failed' }] });
  expect(task.error).toMatch(/^resource_exceeded: memory: over the limit of 64 MiB for .* s, \d+ MiB at its peak/);
  expect(await processesWith(mark)).toEqual([]);
}, 120_000);
