import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';
import { errand, type Place, startErrand } from './errand.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
  await gateway.agent();
});
afterAll(() => gateway?.stop());

const place = (): Place => ({
  cwd: gateway.folder,
  env: { ERRAND_URL: gateway.url, ERRAND_TOKEN: gateway.gateway.adminToken },
});

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function sleeper(seconds: number): Promise<string> {
  const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', {
    template: 'sleep',
    args: { seconds },
  });
  return body.taskId;
}

const statusOf = async (id: string) => (await gateway.api<{ status: string }>('GET', `/api/tasks/${id}`)).body.status;

test('Ctrl-C ends the following and leaves the task alone', async () => {
  const id = await sleeper(600);
  const following = await startErrand(['tasks', 'logs', '-f', id], place());
  await until(async () => (await statusOf(id)) === 'running', 'the task to run');
  following.child.kill('SIGINT');
  await following.ended;
  expect(await statusOf(id)).toBe('running');
  await gateway.api('POST', `/api/tasks/${id}/cancel`);
});

const COUNTS = `id: counts
command:
  - node
  - -e
  - "let n = 0; const timer = setInterval(() => { console.log(n); n += 1; if (n === 12) clearInterval(timer); }, 400)"
`;

test('it goes on through a restart of the gateway, prints no line twice and leaves none out', async () => {
  const templates = await mkdtemp(join(tmpdir(), 'errand-templates-'));
  await writeFile(join(templates, 'counts.yaml'), COUNTS);
  const port = String(await freePort());
  const other = await TestGateway.start({ ERRAND_PORT: port, ERRAND_TEMPLATES_DIR: templates });
  try {
    await other.agent('agent-2');
    const { body } = await other.api<{ taskId: string }>('POST', '/api/tasks', { template: 'counts' });
    const env = { ERRAND_URL: other.url, ERRAND_TOKEN: other.gateway.adminToken };
    const following = await startErrand(['tasks', 'logs', '-f', body.taskId], { cwd: other.folder, env });
    await until(() => following.seen() !== '', 'the first line');
    expect(following.child.exitCode).toBeNull();
    await other.gateway.stop();
    await other.startGateway();
    const { code, out, err } = await following.ended;
    const expected = Array.from({ length: 12 }, (_, n) => `${n}\n`).join('');
    expect({ code, out, err }).toEqual({ code: 0, out: expected, err: '' });
  } finally {
    await other.stop();
    await rm(templates, { recursive: true, force: true });
  }
});

test('an unknown task is 3, a gateway that is not there 5', async () => {
  expect((await errand(['tasks', 'logs', '-f', 'zzzz'], place())).code).toBe(3);
  expect((await errand(['tasks', 'logs', '-f', 'zzzz', '--url', 'http://127.0.0.1:9'], place())).code).toBe(5);
});

test('agents show tells what an agent is and what its self-checks have found', async () => {
  const shown = await errand(['agents', 'show', 'agent-1'], place());
  expect(shown).toMatchObject({ code: 0, out: expect.stringMatching(/agent: +agent-1\n/) });
  expect(shown.out).toContain('Its self-checks have found nothing.');
  expect((await errand(['agents', 'show', 'nobody'], place())).code).toBe(3);
});
