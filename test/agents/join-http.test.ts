import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

interface Problem {
  code: string;
  detail: string;
  field?: string;
}
interface Issued {
  joinToken: string;
  expiresAt: number;
  agentId?: string;
  gatewayUrl: string;
  agentToken: string;
}

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start({
    ERRAND_PUBLIC_URL: 'https://errand.example.com',
    ERRAND_LEASE_MS: '3000',
    ERRAND_HEARTBEAT_MS: '1000',
  });
});
afterAll(() => gateway?.stop());

async function call(path: string, body: unknown, token?: string) {
  const response = await fetch(gateway.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) },
    body: JSON.stringify(body),
  });
  return { status: response.status, headers: response.headers, body: (await response.json()) as Problem & Issued };
}

const invite = async (body: object) => (await gateway.api<Issued & Problem>('POST', '/api/agents/tokens', body)).body;

/** The credential of a new agent. */
async function joined(agentId: string): Promise<string> {
  const { joinToken } = await invite({ agentId, pools: [agentId] });
  return (await call('/api/agent/join', { joinToken })).body.agentToken;
}

describe('POST /api/agents/tokens', () => {
  test('answers a join token, when it ends and where agents reach the gateway', async () => {
    const before = Date.now();
    const { status, body } = await gateway.api<Issued>('POST', '/api/agents/tokens', { agentId: 'h-1', pools: ['h'] });
    expect({ status, body }).toEqual({
      status: 201,
      body: {
        agentId: 'h-1',
        joinToken: expect.stringMatching(/^join_[\w-]{32}$/),
        expiresAt: expect.any(Number),
        gatewayUrl: 'https://errand.example.com',
      },
    });
    expect(body.expiresAt).toBeGreaterThanOrEqual(before + 3_600_000);
    expect(body.expiresAt).toBeLessThanOrEqual(Date.now() + 3_600_000);
  });

  test('takes a time to live, in bounds, and nothing it does not know', async () => {
    const { expiresAt } = await invite({ pools: ['p'], ttlMs: 60_000 });
    expect(expiresAt).toBeLessThanOrEqual(Date.now() + 60_000);
    for (const [body, field] of [
      [{ ttlMs: 0 }, 'ttlMs'],
      [{ ttlMs: 8 * 86_400_000 }, 'ttlMs'],
      [{ agentId: '../etc' }, 'agentId'],
      [{ pools: [] }, 'pools'],
      [{ pools: ['a\nb'] }, 'pools.0'],
      [{ permanent: true }, 'agentId'],
      [{ permanent: true, agentId: 'x', ttlMs: 60_000 }, 'ttlMs'],
    ] as const) {
      const { status, body: problem } = await gateway.api<Problem>('POST', '/api/agents/tokens', body);
      expect({ body, status, field: problem.field }).toEqual({ body, status: 400, field });
    }
  });

  test('is for the administrator alone, as is revoking', async () => {
    for (const path of ['/api/agents/tokens', '/api/agents/h-1/revoke'])
      expect((await call(path, {})).status).toBe(401);
  });
});

describe('POST /api/agent/join', () => {
  test('exchanges the token for a credential, once: 200, then 409; a wrong one is 401; nothing is cached', async () => {
    const { joinToken } = await invite({ agentId: 'h-2', pools: ['h'], labels: { city: 'sz' } });
    const first = await call('/api/agent/join', { joinToken, host: 'some-pc' });
    expect({ status: first.status, body: first.body }).toEqual({
      status: 200,
      body: { agentId: 'h-2', agentToken: expect.stringMatching(/^agt_/), pools: ['h'], labels: { city: 'sz' } },
    });
    expect(first.headers.get('cache-control')).toBe('no-store');
    const [second, wrong] = [
      await call('/api/agent/join', { joinToken }),
      await call('/api/agent/join', { joinToken: `${joinToken}x` }),
    ];
    expect([second.status, second.body.code]).toEqual([409, 'conflict']);
    expect([wrong.status, wrong.body.code]).toEqual([401, 'unauthorized']);
  });

  test('refuses hostile bodies before they cost anything', async () => {
    expect((await call('/api/agent/join', { joinToken: 'j'.repeat(129) })).body.field).toBe('joinToken');
    expect((await call('/api/agent/join', { joinToken: 'j', agentId: 'a b' })).body.field).toBe('agentId');
    expect((await call('/api/agent/join', { joinToken: 'j', pools: ['admin'] })).status).toBe(400);
    expect((await call('/api/agent/join', { joinToken: 'j'.repeat(10_000) })).status).toBe(413);
  });
});

describe('a revoked agent', () => {
  const who = { agentId: 'h-3', instanceId: 'instance-of-h-3' };
  let token: string;
  beforeAll(async () => {
    token = await joined('h-3');
    const machine = { bootId: 'b', version: '1', protocol: 1, host: 'pc', pools: ['h-3'], labels: {} };
    const { status } = await call(
      '/api/agent/register',
      { ...who, ...machine, runtimes: ['shell'], concurrency: 2 },
      token,
    );
    expect(status).toBe(200);
  });

  test('hears it at once, also in calls that wait; what it ran is given to others when its lease ends', async () => {
    const { taskId } = (await gateway.api<{ taskId: string }>('POST', '/api/tasks', { template: 'hello', pool: 'h-3' }))
      .body;
    const statusOf = async () => (await gateway.api<{ status: string }>('GET', `/api/tasks/${taskId}`)).body.status;
    const pulled = await call('/api/agent/pull', { ...who, maxTasks: 1, waitMs: 0, holding: [] }, token);
    const held = (pulled.body as unknown as { tasks: { runId: string; leaseToken: string }[] }).tasks;
    expect(held).toHaveLength(1);
    const waiting = gateway.gateway.rooms.dispatch.waiting;
    const pull = call('/api/agent/pull', { ...who, maxTasks: 1, waitMs: 60_000, holding: [held[0]!.runId] }, token);
    const activeRuns = held.map(({ runId, leaseToken }) => ({ runId, leaseToken }));
    const heartbeat = call('/api/agent/heartbeat', { ...who, uptimeMs: 1, load: 0, activeRuns, waitMs: 60_000 }, token);
    await until(() => gateway.gateway.rooms.dispatch.waiting === waiting + 1, 'the pull to wait');
    const { body } = await gateway.api('POST', '/api/agents/h-3/revoke');
    expect(body).toEqual({ agentId: 'h-3', revoked: 1 });
    for (const answer of [await pull, await heartbeat, await call('/api/agent/whoami', {}, token)]) {
      expect([answer.status, answer.body.code]).toEqual([401, 'unauthorized']);
      expect(answer.body.detail).toContain('this token of agent h-3 has been revoked');
    }
    expect((await gateway.api('POST', '/api/agents/h-3/revoke')).body).toEqual({ agentId: 'h-3', revoked: 0 });
    expect((await gateway.api('POST', '/api/agents/nobody/revoke')).status).toBe(404);
    await until(async () => (await statusOf()) === 'queued', 'the lease to end');
  });
});

test('whoami says whose token it is and who was heard of last', async () => {
  const agentToken = await joined('h-4');
  const { body } = await call('/api/agent/whoami', {}, agentToken);
  expect(body).toMatchObject({ agentId: 'h-4', pools: ['h-4'], labels: {}, instance: null });
  expect(Math.abs((body as unknown as { serverTime: number }).serverTime - Date.now())).toBeLessThan(60_000);
  expect((await call('/api/agent/whoami', {})).status).toBe(401);
});

describe('ERRAND_AGENT_RATE', () => {
  test('above it an agent hears 429 and when to go on, obeys, and still does all its work', async () => {
    const limited = await TestGateway.start({ ERRAND_AGENT_RATE: '2' });
    try {
      const agent = await limited.agent('busy');
      await until(() => agent.isRegistered(), 'the agent to register');
      const token = await limited.gateway.rooms.tokens.issue({ agentId: 'busy', pools: ['default'], labels: {} });
      const answers = await Promise.all(
        Array.from({ length: 6 }, () =>
          fetch(`${limited.url}/api/agent/whoami`, {
            method: 'POST',
            headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
            body: '{}',
          }),
        ),
      );
      const refused = answers.find(({ status }) => status === 429)!;
      expect(refused.headers.get('retry-after')).toBe('1');
      expect(((await refused.json()) as Problem).code).toBe('rate_limited');
      const tasks = await Promise.all(
        ['a', 'b', 'c'].map(async (name) => {
          const { body } = await limited.api<{ taskId: string }>('POST', '/api/tasks', {
            template: 'hello',
            args: { name },
          });
          return body.taskId;
        }),
      );
      for (const id of tasks) {
        await until(
          async () => (await limited.api<{ status: string }>('GET', `/api/tasks/${id}`)).body.status === 'succeeded',
          'the task to succeed',
          60_000,
        );
      }
    } finally {
      await limited.stop();
    }
  }, 90_000);
});
