import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';
import { startErrand } from './errand.ts';

/** Tells its process id, and does not listen to SIGTERM. */
const STUBBORN = `id: stubborn
command: [node, -e, "process.on('SIGTERM', () => {}); console.log(process.pid); setInterval(() => {}, 1000)"]
grace: 10s
`;

let folder: string;
let gateway: TestGateway;
const running: { kill(signal: NodeJS.Signals): boolean }[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-agent-'));
  await mkdir(join(folder, 'templates'));
  await writeFile(join(folder, 'templates', 'stubborn.yaml'), STUBBORN);
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: join(folder, 'templates') });
});
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function startAgent(agentId: string, spool = agentId) {
  const token = await gateway.gateway.rooms.tokens.issue({ agentId, pools: [agentId], labels: {} });
  const env = {
    AGENT_GATEWAY_URL: gateway.url,
    AGENT_TOKEN: token,
    AGENT_ID: agentId,
    AGENT_POOLS: agentId,
    AGENT_SPOOL_DIR: join(folder, spool),
  };
  const started = await startErrand(['agent'], { cwd: folder, env });
  running.push(started.child);
  return started;
}

async function runs(pid: string): Promise<boolean> {
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return state !== '' && !/\) Z /.test(state);
}

test('a second signal kills what still runs and ends the agent at once with 128 and its number', async () => {
  const agent = await startAgent('stopper');
  const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', {
    template: 'stubborn',
    pool: 'stopper',
  });
  const pid = await until(async () => {
    const { logs } = (await gateway.api<{ logs: { text: string }[] }>('GET', `/api/tasks/${body.taskId}/logs`)).body;
    return logs[0]?.text.trim();
  }, 'the program to run');
  agent.child.kill('SIGTERM');
  await until(() => agent.seen().includes('agent.stopping'), 'the agent to stop');
  expect(await runs(pid)).toBe(true);
  agent.child.kill('SIGTERM');
  expect((await agent.ended).code).toBe(143);
  await until(async () => !(await runs(pid)), 'the program to be gone');
});

test('an agent whose id is registered elsewhere ends with exit code 4 and says why', async () => {
  const first = await startAgent('twice');
  const isOnline = async () =>
    (await gateway.api<{ agents: { agentId: string }[] }>('GET', '/api/agents')).body.agents.some(
      ({ agentId }) => agentId === 'twice',
    );
  await until(isOnline, 'the first to register');
  await startAgent('twice', 'twice-again');
  const { code, err } = await first.ended;
  expect(code).toBe(4);
  expect(err).toContain('errand: a newer instance of agent twice has registered; this one has ended\n');
});
