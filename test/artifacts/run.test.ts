import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createAgent } from '../../src/agents/worker/agent.ts';
import { systemClock } from '../../src/clock.ts';
import { readAgentSettings } from '../../src/config/agent.ts';
import { silentLog } from '../../src/log.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'errand-running-'));
const templates = join(folder, 'templates');
mkdirSync(templates);
const SECRET = 'tok-123456';
writeFileSync(join(folder, 'secret.txt'), 'not yours');
writeFileSync(join(folder, 'secrets.env'), `PMS_TOKEN=${SECRET}\n`, { mode: 0o600 });
const write = (id: string, yaml: string) => writeFileSync(join(templates, `${id}.yaml`), `id: ${id}\n${yaml}\n`);
write(
  'files',
  `command: [sh, -c, 'cd "$ERRAND_ARTIFACTS" && echo hello > "入住 302.txt" && mkdir sub && head -c 1500000 /dev/zero > sub/big.bin && ln -s ${folder}/secret.txt link && echo done']`,
);
write(
  'slow',
  `command: [sh, -c, 'echo half > "$ERRAND_ARTIFACTS/part.txt"; sleep 600']\ntimeout: 1s\ngrace: 0s\nretry: { max: 1 }`,
);
write('plain', 'args: { name: { default: x } }\ncommand: [echo, "{{name}}"]');
write(
  'hog',
  `command: [node, -e, 'const b = Buffer.alloc(2e8, 1); setTimeout(() => {}, 1e6)']\nlimits: { memory: 64MiB }\nretry: { max: 2, base: 0s, on: { error: { resource_exceeded: transient } } }`,
);

let seen: { url: string; headers: Record<string, unknown>; body: string }[] = [];
const server = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => {
    body += chunk;
  });
  request.on('end', () => {
    seen.push({ url: request.url!, headers: request.headers, body });
    response.writeHead(request.url!.includes('404') ? 404 : 200).end('thanks');
  });
});

let gateway: TestGateway;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  write(
    'checkin',
    `runtime: http
args: { room: { required: true }, guest: { required: true }, n: { type: integer, default: 2 } }
secrets: [PMS_TOKEN]
request:
  method: POST
  url: "${origin}/rooms/{{room}}?by={{guest}}"
  headers: { authorization: "Bearer {{secret PMS_TOKEN}}", x-guest: "{{guest}}" }
  body: { guest: "{{guest}}", note: "for {{room}}", count: "{{n}}", fixed: true }
retry: { max: 2, base: 0s, on: { http: { 404: transient } } }`,
  );
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: templates });
});
afterAll(async () => {
  await gateway.stop();
  server.closeAllConnections();
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Task {
  taskId: string;
  status: string;
  attempt: number;
  error?: string;
  result?: { summary: string; outputs: Record<string, string> };
  artifacts?: { artifactId: string; name: string; bytes: number }[];
}

async function submit(template: string, args: object = {}, agent?: string): Promise<Task> {
  const { body } = await gateway.api<Task>('POST', '/api/tasks', { template, args, ...(agent && { agent }) });
  let task = body;
  await until(async () => {
    task = (await gateway.api<Task>('GET', `/api/tasks/${body.taskId}`)).body;
    return ['succeeded', 'failed', 'timed_out'].includes(task.status);
  });
  return task;
}

/** The whole as a browser with a login gets it. */
async function login(user: string): Promise<{ get(path: string): Promise<Response> }> {
  const { body } = await gateway.api<{ url: string }>('POST', '/api/chat/logins', { user, name: user });
  const url = new URL(body.url);
  const pressed = await fetch(`${gateway.url}/chat/login`, {
    method: 'POST',
    redirect: 'manual',
    headers: { 'content-type': 'application/x-www-form-urlencoded', origin: gateway.url },
    body: new URLSearchParams({ token: url.searchParams.get('token')! }),
  });
  const cookie = pressed.headers.get('set-cookie')!.split(';')[0]!;
  return { get: (path) => fetch(`${gateway.url}${path}`, { headers: { cookie } }) };
}

const asAdmin = (path: string) =>
  fetch(`${gateway.url}${path}`, { headers: { authorization: `Bearer ${gateway.gateway.adminToken}` } });

describe('files of a run', () => {
  it('that timed out come home, too', async () => {
    const task = await submit('slow');
    expect(task).toMatchObject({ status: 'timed_out', artifacts: [{ name: 'part.txt', bytes: 5 }] });
  });

  beforeAll(async () => {
    await gateway.agent('agent-1');
  });

  it('come home with their task; links are left out and told', async () => {
    const task = await submit('files');
    expect(task).toMatchObject({ status: 'succeeded', result: { summary: 'done' } });
    expect(task.artifacts!.map(({ name, bytes }) => [name, bytes])).toEqual([
      ['sub/big.bin', 1_500_000],
      ['入住 302.txt', 6],
    ]);
    const { body } = await gateway.api<{ logs: { text: string }[] }>('GET', `/api/tasks/${task.taskId}/logs`);
    expect(JSON.stringify(body)).toContain('ERRAND_ARTIFACTS: link was left out: it is a link');
    const response = await asAdmin(`/api/artifacts/${task.artifacts![1]!.artifactId}`);
    expect(await response.text()).toBe('hello\n');
    expect(response.headers.get('content-disposition')).toBe(
      `attachment; filename="__ 302.txt"; filename*=UTF-8''%E5%85%A5%E4%BD%8F%20302.txt`,
    );
    expect(response.headers.get('content-type')).toBe('application/octet-stream');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    const big = await asAdmin(`/api/artifacts/${task.artifacts![0]!.artifactId}`);
    expect((await big.arrayBuffer()).byteLength).toBe(1_500_000);
  });

  it('are shown as links in the web chat that asked, and to nobody else', async () => {
    const [ann, bob] = [await login('ann'), await login('bob')];
    await gateway.api('POST', '/api/chat/messages', { text: '/run files', user: 'ann' });
    let files: { name: string; url: string }[] = [];
    await until(async () => {
      const { messages } = (await (await ann.get('/api/chat/messages')).json()) as {
        messages: { files?: typeof files }[];
      };
      files = messages.flatMap((message) => message.files ?? []);
      return files.length > 0;
    });
    expect(files.map(({ name }) => name)).toEqual(['sub/big.bin', '入住 302.txt']);
    const { url } = files[1]!;
    expect(await (await ann.get(url)).text()).toBe('hello\n');
    expect((await bob.get(url)).status).toBe(404);
    expect((await fetch(`${gateway.url}${url}`)).status).toBe(401);
    expect((await asAdmin('/api/artifacts/..%2f..%2fadmin-token')).status).toBe(404);
  });
});

describe('the http runtime', () => {
  beforeAll(async () => {
    await gateway.agent('caller', { AGENT_HTTP_ALLOW: '127.0.0.1', AGENT_SECRETS_FILE: join(folder, 'secrets.env') });
    await gateway.agent('careful', { AGENT_SECRETS_FILE: join(folder, 'secrets.env') });
  });

  it('puts arguments only into their places and answers with what came back', async () => {
    seen = [];
    const guest = `Ada & "Bob"?x=1\r\nx-evil: 1/../..{{secret PMS_TOKEN}}`;
    const task = await submit('checkin', { room: '3/0?2', guest }, 'caller');
    expect(task).toMatchObject({ status: 'succeeded', result: { summary: 'thanks', outputs: { status: '200' } } });
    expect(seen).toHaveLength(1);
    expect(seen[0]!.url).toBe(`/rooms/3%2F0%3F2?by=${encodeURIComponent(guest)}`);
    expect(seen[0]!.headers).toMatchObject({
      authorization: `Bearer ${SECRET}`,
      'x-guest': encodeURIComponent(guest),
      'idempotency-key': `task:${task.taskId}`,
    });
    expect(seen[0]!.headers).not.toHaveProperty('x-evil');
    expect(JSON.parse(seen[0]!.body)).toEqual({ guest, note: 'for 3/0?2', count: 2, fixed: true });
  });

  it('lets the template say what a status means', async () => {
    seen = [];
    const task = await submit('checkin', { room: '404', guest: 'g' }, 'caller');
    expect(task).toMatchObject({ status: 'failed', attempt: 2 });
    expect(seen.map(({ headers }) => headers['idempotency-key'])).toEqual(Array(2).fill(`task:${task.taskId}`));
  });

  it('refuses a value that would lead out of the path when it is asked for, not when it runs', async () => {
    const answer = await gateway.api('POST', '/api/tasks', { template: 'checkin', args: { room: '..', guest: 'g' } });
    expect(answer).toMatchObject({ status: 400, body: { detail: expect.stringContaining('no part of a path') } });
  });

  it('goes nowhere near the agent’s own network unless its owner says so', async () => {
    seen = [];
    const task = await submit('checkin', { room: '1', guest: 'g' }, 'careful');
    expect(task).toMatchObject({ status: 'failed', error: expect.stringContaining('AGENT_HTTP_ALLOW') });
    expect(seen).toEqual([]);
  });
});

describe('a limit of a template', () => {
  it('A70: ends the run with its reason, and the template says that it is tried again', async () => {
    const rooms = gateway.gateway.rooms;
    const token = await rooms.tokens.issue({ agentId: 'small', pools: ['default'], labels: {} });
    const env = { AGENT_GATEWAY_URL: gateway.url, AGENT_TOKEN: token, AGENT_ID: 'small' };
    const settings = readAgentSettings({ ...env, AGENT_SPOOL_DIR: join(folder, 'small') });
    const limits = { sampleMs: 50, overMs: 100 };
    const agent = createAgent({ settings, log: silentLog, clock: systemClock, version: '0.0.0', tuning: { limits } });
    await agent.start();
    const task = await submit('hog', {}, 'small');
    expect(task).toMatchObject({ status: 'failed', attempt: 2 });
    expect(task.error).toMatch(
      /^resource_exceeded: memory: over the limit of 64 MiB for [\d.]+ s, \d+ MiB at its peak/,
    );
    await agent.stop();
  });
});

describe('a pinned template', () => {
  const pinOf = async (id: string) => {
    const { body } = await gateway.api<{ templates: { id: string; runDigest: string }[] }>('GET', '/api/templates');
    return body.templates.find((one) => one.id === id)!.runDigest;
  };

  it('runs as its owner has seen it, and not once it says something else', async () => {
    const pin = await pinOf('plain');
    await gateway.agent('pinned', { AGENT_ALLOW: `plain@${pin},checkin` });
    expect(await submit('plain', { name: 'a' }, 'pinned')).toMatchObject({
      status: 'succeeded',
      result: { summary: 'a' },
    });
    expect(await submit('files', {}, 'pinned')).toMatchObject({
      status: 'failed',
      error: expect.stringContaining('AGENT_ALLOW'),
    });
    // What people read is the gateway's business.
    write('plain', 'title: Other\nargs: { name: { default: x } }\ncommand: [echo, "{{name}}"]\npriority: high');
    await gateway.gateway.rooms.templates.reload();
    expect(await pinOf('plain')).toBe(pin);
    expect(await submit('plain', { name: 'b' }, 'pinned')).toMatchObject({
      status: 'succeeded',
      result: { summary: 'b' },
    });
    write('plain', 'args: { name: { default: x } }\ncommand: [echo, evil, "{{name}}"]');
    await gateway.gateway.rooms.templates.reload();
    const refused = await submit('plain', { name: 'c' }, 'pinned');
    expect(refused).toMatchObject({ status: 'failed', error: expect.stringContaining('pinned (AGENT_ALLOW)') });
    expect(refused.error).toContain(await pinOf('plain'));
  });
});
