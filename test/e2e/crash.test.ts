import { afterEach, describe, expect, it } from 'vitest';
import { startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

type Telegram = Awaited<ReturnType<typeof startFakeTelegram>>;

const CHAT = 42;
const REPEAT = /possibly a repeat/;

async function house(env: Record<string, string> = {}): Promise<{ telegram: Telegram; processes: Processes }> {
  const telegram = await startFakeTelegram();
  cleanups.push(() => telegram.stop());
  const processes = new Processes({ TELEGRAM_BOT_TOKEN: telegram.token, TELEGRAM_API_ROOT: telegram.url, ...env });
  cleanups.push(() => processes.end());
  return { telegram, processes };
}

async function pair(telegram: Telegram, processes: Processes): Promise<void> {
  telegram.userSends({ chat: CHAT, user: CHAT, text: '/start' });
  const code = await until(
    () => /\b[0-9A-HJKMNP-TV-Z]{8}\b/.exec(telegram.botTexts(CHAT).join('\n'))?.[0],
    'a pairing code',
  );
  await processes.api('POST', '/api/access/pairings/approve', { code });
}

interface TaskSeen {
  taskId: string;
  status: string;
  attempt: number;
  args: { name?: string };
  runs: { agentId: string; outcome?: string }[];
  deliveryStatus: string;
}
const tasks = async (processes: Processes) =>
  (await processes.api<{ tasks: TaskSeen[] }>('GET', '/api/tasks?limit=100')).tasks;

/** Delays are drawn from a fixed seed, so that a failing run can be told from its number. */
function draws(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe('kill -9', () => {
  it('of the gateway at 20 random moments between message and result: every result arrives, once, or twice and then marked', async () => {
    const { telegram, processes } = await house();
    let gateway = await processes.gateway();
    await processes.agent('agent-1', await processes.agentToken('agent-1'));
    await pair(telegram, processes);
    const random = draws(20);
    for (let round = 0; round < 20; round += 1) {
      const words = `Hello, Crash${round}x`;
      telegram.userSends({ chat: CHAT, user: CHAT, text: `/run hello name=Crash${round}x` });
      await new Promise((resolve) => setTimeout(resolve, random() * 700));
      await processes.kill(gateway);
      gateway = await processes.gateway();
      await until(
        () => telegram.botTexts(CHAT).some((text) => text.includes(words)),
        `the result of round ${round}`,
        60_000,
      );
    }
    await until(
      async () => (await tasks(processes)).filter((task) => task.deliveryStatus === 'delivered').length === 20,
      'all 20 deliveries',
    );
    for (let round = 0; round < 20; round += 1) {
      const copies = telegram.botTexts(CHAT).filter((text) => text.includes(`Hello, Crash${round}x`));
      const [first, ...more] = copies;
      expect(first, `round ${round}`).toBeDefined();
      expect(more.length, `round ${round}: ${JSON.stringify(copies)}`).toBeLessThanOrEqual(1);
      for (const copy of more) expect(copy).toMatch(REPEAT);
    }
    const seen = await tasks(processes);
    expect(seen.map((task) => task.status)).toEqual(Array.from({ length: 20 }, () => 'succeeded'));
  }, 240_000);

  it('of an agent in the middle of a task: a second agent finishes it, one notification, two attempts on record', async () => {
    const { telegram, processes } = await house({ ERRAND_LEASE_MS: '2000', ERRAND_HEARTBEAT_MS: '500' });
    await processes.gateway();
    const first = await processes.agent('agent-1', await processes.agentToken('agent-1'));
    await pair(telegram, processes);
    telegram.userSends({ chat: CHAT, user: CHAT, text: '/run sleep seconds=3' });
    await until(async () => (await tasks(processes))[0]?.status === 'running', 'the task to run');
    await processes.kill(first);
    await processes.agent('agent-2', await processes.agentToken('agent-2'));
    await until(
      async () => (await tasks(processes))[0]?.deliveryStatus === 'delivered',
      'the result to be delivered',
      60_000,
    );
    const [task] = await tasks(processes);
    expect(task).toMatchObject({ status: 'succeeded', attempt: 2 });
    expect(task!.runs.map(({ agentId, outcome }) => [agentId, outcome])).toEqual([
      ['agent-1', 'lost'],
      ['agent-2', 'succeeded'],
    ]);
    expect(telegram.botTexts(CHAT).filter((text) => text.includes('✅'))).toHaveLength(1);
  }, 120_000);

  it('of the gateway while a task runs: its agent goes on and brings the result home', async () => {
    const { telegram, processes } = await house();
    const gateway = await processes.gateway();
    await processes.agent('agent-1', await processes.agentToken('agent-1'));
    await pair(telegram, processes);
    telegram.userSends({ chat: CHAT, user: CHAT, text: '/run sleep seconds=2' });
    await until(async () => (await tasks(processes))[0]?.status === 'running', 'the task to run');
    await processes.kill(gateway);
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    await processes.gateway();
    await until(
      async () => (await tasks(processes))[0]?.deliveryStatus === 'delivered',
      'the result to be delivered',
      60_000,
    );
    const [task] = await tasks(processes);
    expect(task).toMatchObject({ status: 'succeeded', attempt: 1 });
    expect(task!.runs).toHaveLength(1);
  }, 120_000);
});
