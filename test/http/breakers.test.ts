import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { errand } from '../cli/errand.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

interface Breaker {
  name: string;
  state: string;
  untilAt?: number;
  calls: number;
}

const TEMPLATES = {
  'a.yaml': `
id: psb-report
command: [sh, -c, 'echo "gateway timeout" >&2; exit 75']
retry: { max: 1 }
breaker: { name: psb, threshold: 0.5, window: 10m, minimum: 3, cooldown: 1d }
`,
  'b.yaml': `
id: psb-ask
command: [echo, hi]
breaker: { name: psb, threshold: 0.5, window: 10m, minimum: 3, cooldown: 1d, onOpen: fail }
`,
  'c.yaml': 'id: plain\ncommand: [echo, hi]\n',
  'd.yaml': 'id: other\ncommand: [echo, hi]\nbreaker: { name: Other.1 }\n',
};

let folder: string;
let gateway: TestGateway;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-breakers-'));
  for (const [name, text] of Object.entries(TEMPLATES)) await writeFile(join(folder, name), text);
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: folder });
  await gateway.agent('agent-1', { AGENT_CONCURRENCY: '4' });
});
afterAll(async () => {
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => gateway.api('POST', '/api/breakers/psb/reset'));

const get = <T = Breaker>(path: string) => gateway.api<T>('GET', path);
const post = <T = Breaker>(path: string, body?: unknown) => gateway.api<T>('POST', path, body);
const cli = (...args: string[]) =>
  errand(args, {
    cwd: folder,
    env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') },
  });

interface Task {
  taskId: string;
  status: string;
  reason?: string;
  attempt: number;
}

async function ended(template: string): Promise<Task> {
  const { taskId } = (await post<Task>('/api/tasks', { template })).body;
  return until(async () => {
    const { body } = await get<Task>(`/api/tasks/${taskId}`);
    return ['succeeded', 'failed'].includes(body.status) && body;
  }, `${template} to end`);
}

test('real failures open the breaker; it is listed, measured, audited and told; a task that must not wait fails at once', async () => {
  for (let n = 0; n < 3; n += 1) expect(await ended('psb-report')).toMatchObject({ status: 'failed', attempt: 1 });
  const { body } = await get('/api/breakers/psb');
  expect(body).toEqual({
    name: 'psb',
    state: 'open',
    reason: 'failure_rate',
    calls: 0,
    failures: 0,
    openedAt: expect.any(Number),
    untilAt: expect.any(Number),
    lastError: expect.stringContaining('gateway timeout'),
    lastFailureAt: expect.any(Number),
    settings: { threshold: 0.5, windowMs: 600_000, minimum: 3, cooldownMs: 86_400_000 },
    templates: [
      { id: 'psb-ask', onOpen: 'fail' },
      { id: 'psb-report', onOpen: 'wait' },
    ],
  });
  const list = (await get<{ breakers: Breaker[] }>('/api/breakers')).body.breakers;
  expect(list.map(({ name, state }) => [name, state])).toEqual([
    ['Other.1', 'closed'],
    ['psb', 'open'],
  ]);
  await until(
    async () => (await metrics()).includes('errand_breaker_state{name="psb"} 2'),
    'the metric to show the open breaker',
  );
  expect(await metrics()).toContain('errand_breaker_state{name="Other.1"} 0');
  const audit = (await get<{ entries: { actor: string; action: string; target: string }[] }>('/api/audit')).body;
  expect(audit.entries[0]).toMatchObject({ actor: 'gateway', action: 'breaker.opened', target: 'psb' });
  expect(await ended('psb-ask')).toMatchObject({ status: 'failed', reason: 'breaker_open', attempt: 0 });
  expect(await ended('plain')).toMatchObject({ status: 'succeeded' });
});

const metrics = async () => (await fetch(`${gateway.url}/metrics`)).text();

describe('by hand', () => {
  test('it is opened for a time and closed again, with who and why in the audit', async () => {
    const before = Date.now();
    const { status, body } = await post('/api/breakers/psb/open', { for: '2h', why: 'maintenance' });
    expect([status, body]).toMatchObject([200, { state: 'open', reason: 'operator' }]);
    expect(body.untilAt! - before).toBeGreaterThanOrEqual(7_200_000);
    expect(await ended('psb-ask')).toMatchObject({ reason: 'breaker_open' });
    expect((await post('/api/breakers/psb/reset', { why: 'over' })).body).toMatchObject({ state: 'closed', calls: 0 });
    expect(await ended('psb-ask')).toMatchObject({ status: 'succeeded' });
    const { entries } = (await get<{ entries: { action: string }[] }>('/api/audit')).body;
    expect(entries.slice(0, 2)).toMatchObject([
      { actor: 'api:admin', action: 'breaker.reset', target: 'psb', data: { why: 'over' } },
      { actor: 'api:admin', action: 'breaker.opened', target: 'psb', data: { why: 'maintenance' } },
    ]);
  });

  test('without a time it is an hour, also without a body', async () => {
    const before = Date.now();
    const { body } = await post('/api/breakers/psb/open');
    expect(body.untilAt! - before).toBeGreaterThanOrEqual(3_600_000);
    expect(body.untilAt! - Date.now()).toBeLessThanOrEqual(3_600_000);
  });

  test.each([
    ['open', { for: 'soon' }, 'for'],
    ['open', { for: '500ms' }, 'for'],
    ['open', { for: '366d' }, 'for'],
    ['open', { until: 1 }, 'until'],
    ['open', { why: '' }, 'why'],
    ['reset', { why: 'x'.repeat(501) }, 'why'],
  ])('%s with %j is refused, the field is named, and nothing changes', async (verb, sent, field) => {
    const { status, body } = await post<{ detail: string }>(`/api/breakers/psb/${verb}`, sent);
    expect([status, JSON.stringify(body)]).toEqual([400, expect.stringContaining(field)]);
    expect((await get('/api/breakers/psb')).body.state).toBe('closed');
  });

  test('a name that no template and no row knows is not found, however it is written', async () => {
    for (const name of ['nope', 'PSB', '%00', `${'x'.repeat(64)}`, '..%2fpsb']) {
      for (const verb of ['open', 'reset']) expect((await post(`/api/breakers/${name}/${verb}`)).status).toBe(404);
      expect((await get(`/api/breakers/${name}`)).status).toBe(404);
    }
  });
});

test('only the administrator may look and act', async () => {
  for (const [method, path] of [
    ['GET', '/api/breakers'],
    ['GET', '/api/breakers/psb'],
    ['POST', '/api/breakers/psb/open'],
    ['POST', '/api/breakers/psb/reset'],
  ] as const)
    expect((await fetch(gateway.url + path, { method })).status).toBe(401);
});

test('the command line lists, shows, opens and resets', async () => {
  const opened = await cli('breakers', 'open', 'psb', '--for', '2h', '--why', 'maintenance');
  expect(opened).toMatchObject({ code: 0, out: expect.stringMatching(/^Breaker psb is open until \d{4}-/) });
  const list = await cli('breakers', 'list');
  expect(list.out).toMatch(/psb +open +\d{4}-.* psb-ask psb-report/);
  const shown = await cli('breakers', 'show', 'psb');
  expect(shown.out).toContain('open (operator)');
  expect(shown.out).toContain('at 50 % of at least 3 calls within 600 s');
  expect(JSON.parse((await cli('breakers', 'show', 'psb', '--json')).out)).toMatchObject({
    name: 'psb',
    state: 'open',
  });
  expect(await cli('breakers', 'reset', 'psb')).toMatchObject({
    code: 0,
    out: 'Breaker psb is closed; nothing is counted.\n',
  });
  expect(await cli('breakers', 'open', 'psb', '--for', 'soon')).toMatchObject({ code: 2 });
  expect(await cli('breakers', 'show', 'nope')).toMatchObject({ code: 3, err: 'errand: there is no breaker "nope"\n' });
});
