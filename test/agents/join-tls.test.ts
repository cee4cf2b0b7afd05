import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type CallFailed, GatewayClient } from '../../src/agents/worker/client.ts';
import { readAgentSettings } from '../../src/config/agent.ts';
import { TestGateway } from '../support/gateway.ts';
import { type Certificates, connectProxy, type Door, httpsDoor, makeCertificates } from '../support/tls.ts';
import { until } from '../support/until.ts';

let folder: string;
let gateway: TestGateway;
let certificates: Certificates;
let front: Door;
const doors: Door[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'errand-tls-'));
  certificates = await makeCertificates(folder);
  gateway = await TestGateway.start();
  front = await httpsDoor(gateway.url, certificates);
});
afterEach(async () => {
  for (const door of doors.splice(0)) await door.close();
});
afterAll(async () => {
  await front?.close();
  await gateway?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function proxy(login?: { user: string; password: string }): Promise<Door> {
  const door = await connectProxy(login);
  doors.push(door);
  return door;
}

/** An agent in this process, with these settings, runs a task to its end. */
async function runsTask(agentId: string, env: Record<string, string>): Promise<void> {
  const agent = await gateway.agent(agentId, { AGENT_GATEWAY_URL: front.url, ...env });
  const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', { template: 'hello', agent: agentId });
  await until(
    async () => (await gateway.api<{ status: string }>('GET', `/api/tasks/${body.taskId}`)).body.status === 'succeeded',
    'the task to succeed',
  );
  await agent.stop();
}

/** What one call without a token is answered, or how it fails. */
async function callWith(options: { gatewayUrl: string; ca?: string; proxy?: string }): Promise<CallFailed> {
  const client = new GatewayClient({ ...options, timeoutMs: 5_000 });
  try {
    return await client.post<never>('/api/agent/whoami', '{}').then(
      () => expect.fail('a call without a token was answered'),
      (error: CallFailed) => error,
    );
  } finally {
    await client.close();
  }
}

describe('HTTPS with an own CA', () => {
  test('an agent that is told the CA works, every call through TLS', async () => {
    await runsTask('tls-1', { AGENT_CA_FILE: certificates.caFile });
    expect(front.seen).toEqual(expect.arrayContaining(['POST /api/agent/register', 'POST /api/agent/report']));
  });

  test('without it nothing is sent, and the message says what to set', async () => {
    const seen = front.seen.length;
    const error = await callWith({ gatewayUrl: front.url });
    expect([error.code, error.verdict]).toEqual(['unreachable', 'again']);
    expect(error.message).toMatch(/its certificate is not trusted \(AGENT_CA_FILE/);
    expect(front.seen).toHaveLength(seen);
  });

  test.each([
    ['is over', { days: -1 }, 'CERT_HAS_EXPIRED'],
    ['is for another name', { names: 'DNS:elsewhere.example' }, 'ERR_TLS_CERT_ALTNAME_INVALID'],
  ])('a certificate that %s is refused, whoever signed it', async (_what, make, code) => {
    const bad = await makeCertificates(await mkdtemp(join(folder, 'bad-')), make);
    const door = await httpsDoor(gateway.url, bad);
    doors.push(door);
    expect((await callWith({ gatewayUrl: door.url, ca: bad.ca })).message).toContain(code);
    expect(door.seen).toEqual([]);
  });
});

describe('AGENT_PROXY', () => {
  test('every connection is a tunnel through the proxy, with a plain gateway and with HTTPS behind it', async () => {
    const tunnel = await proxy();
    await runsTask('proxy-1', { AGENT_PROXY: tunnel.url, AGENT_CA_FILE: certificates.caFile });
    expect(new Set(tunnel.seen)).toEqual(new Set([`CONNECT ${new URL(front.url).host}`]));
    await runsTask('proxy-2', { AGENT_PROXY: tunnel.url, AGENT_GATEWAY_URL: gateway.url });
    expect(new Set(tunnel.seen)).toContain(`CONNECT ${new URL(gateway.url).host}`);
  });

  test('the certificate behind the proxy is checked all the same', async () => {
    const tunnel = await proxy();
    const error = await callWith({ gatewayUrl: front.url, proxy: tunnel.url });
    expect(error.message).toMatch(/its certificate is not trusted \(AGENT_CA_FILE/);
  });

  test('user and password of the address are shown to the proxy; a refusal of the proxy says so without them', async () => {
    const tunnel = await proxy({ user: 'agent', password: 'p:ass' });
    const trusting = { gatewayUrl: front.url, ca: certificates.ca };
    expect((await callWith({ ...trusting, proxy: tunnel.url.replace('p:ass', 'p%3Aass') })).code).toBe('unauthorized');
    const refused = await callWith({ ...trusting, proxy: tunnel.url.replace('agent:p:ass', 'agent:wrong-password') });
    expect([refused.code, refused.verdict]).toEqual(['unreachable', 'again']);
    expect(refused.message).toContain('407');
    expect(refused.message).not.toContain('wrong-password');
  });

  test('a proxy that is not there is an outage like any other', async () => {
    const tunnel = await proxy();
    await tunnel.close();
    doors.length = 0;
    const error = await callWith({ gatewayUrl: gateway.url, proxy: tunnel.url });
    expect([error.code, error.verdict, error.message]).toEqual([
      'unreachable',
      'again',
      expect.stringContaining('ECONNREFUSED'),
    ]);
  });
});

describe('a gateway that is reached in the clear', () => {
  const warningsFor = (AGENT_GATEWAY_URL: string) =>
    readAgentSettings({ AGENT_GATEWAY_URL, AGENT_TOKEN: 't' }).warnings;

  test('is warned of at the start, unless nothing leaves the machine', () => {
    for (const url of [
      'http://gateway.example.com',
      'http://10.0.0.7:8787',
      'http://localhost.example.com',
      'http://127.0.0.1.nip.io',
    ])
      expect({ url, warnings: warningsFor(url) }).toEqual({
        url,
        warnings: [expect.stringMatching(/^AGENT_GATEWAY_URL: http:.* is not encrypted/)],
      });
    for (const url of ['https://gateway.example.com', 'http://127.0.0.1:8787', 'http://localhost', 'http://[::1]:8787'])
      expect({ url, warnings: warningsFor(url) }).toEqual({ url, warnings: [] });
  });
});
