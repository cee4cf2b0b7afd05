import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';
import { type Ended, errand } from './errand.ts';

let templates: string;
let gateway: TestGateway;
beforeAll(async () => {
  templates = await mkdtemp(join(tmpdir(), 'errand-dead-cli-'));
  await writeFile(
    join(templates, 'door.yaml'),
    'id: door\nargs: { room: { required: true } }\ncommand: [open, "{{room}}"]\n',
  );
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: templates });
});
afterAll(async () => {
  await gateway?.stop();
  await rm(templates, { recursive: true, force: true });
});

/** There is no agent: a task dies of its time to live. */
async function deadOnes(count: number): Promise<string[]> {
  const task = { template: 'door', args: { room: '1' }, ttl: 1 };
  const { body } = await gateway.api<{ tasks: { taskId: string }[] }>(
    'POST',
    '/api/tasks/batch',
    Array.from({ length: count }, () => task),
  );
  const ids = body.tasks.map(({ taskId }) => taskId);
  const isDead = async (id: string) => (await gateway.api('GET', `/api/dead-letters/${id}`)).status === 200;
  for (const id of ids) await until(() => isDead(id), `${id} to die`);
  return ids;
}

const call = (...args: string[]): Promise<Ended> =>
  errand(['dead-letters', ...args], {
    cwd: gateway.folder,
    env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') },
  });

test('list, show, replay with another argument, discard: in words and as JSON', async () => {
  const [first, second] = (await deadOnes(2)) as [string, string];
  const listed = await call('list', '--state', 'dead');
  expect(listed.out).toMatch(/^TASK +STATE +TEMPLATE +DEATHS +DIED +HOW\n/);
  expect(listed.out).toMatch(
    new RegExp(`${first} +dead +door +1 .* failed: nobody took it before its time to live was over`),
  );
  const replayed = await call('replay', first, '--arg', 'room=2=3', '--reason', 'try again');
  expect(replayed).toMatchObject({ code: 0, out: `1 replayed: ${first}\n`, err: '' });
  const shown = await call('show', first);
  expect(shown.out).toMatch(/state: +replayed\n/);
  expect(shown.out).toMatch(/arguments: +\{"room":"2=3"\}\n/);
  expect(shown.out).toMatch(/because: +try again\n/);
  const both = await call('discard', first, second, '--reason', 'x', '--json');
  expect(both.code).toBe(4);
  expect(JSON.parse(both.out)).toEqual({ discarded: [second], skipped: [{ taskId: first, state: 'replayed' }] });
  expect(await call('discard', first, '--reason', 'x')).toMatchObject({
    code: 4,
    err: expect.stringContaining(`${first} is replayed`),
  });
}, 60_000);

test('--all decides on more than one call of the gateway does', async () => {
  await deadOnes(201);
  const { code, out } = await call('discard', '--all', '--template', 'door', '--reason', 'too many', '--json');
  expect(code).toBe(0);
  expect(new Set((JSON.parse(out) as { discarded: string[] }).discarded).size).toBe(201);
  expect((await call('replay', '--all')).out).toBe('There was nothing to decide on.\n');
}, 60_000);

test.each([
  [['replay'], 'name tasks, or give --all'],
  [['replay', 'k3f9', '--all'], '--all goes without tasks'],
  [['replay', 'k3f9', '--arg', 'room'], 'is not name=value'],
  [['replay', '--all', '--arg', 'room=1'], 'need ids, or all of one template'],
  [['replay', '--all', '--before', 'soon'], '--before: "soon" is no time'],
  [['replay', 'k3f9', '--template', 'door'], 'template'],
  [['discard', 'k3f9'], '--reason'],
  [['list', '--state', 'gone'], 'gone'],
])('%j ends with 2 and says why', async (args, message) => {
  const { code, err } = await call(...args);
  expect({ code, err }).toMatchObject({ code: 2, err: expect.stringContaining(message) });
});

test('what is not there ends with 3', async () => {
  expect((await call('show', 'zzzz')).code).toBe(3);
  expect((await call('replay', 'zzzz')).code).toBe(3);
});
