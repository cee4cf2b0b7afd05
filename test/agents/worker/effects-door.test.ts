import { mkdtemp, rm, stat } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GatewayClient } from '../../../src/agents/worker/client.ts';
import { EffectsDoor } from '../../../src/agents/worker/effects-door.ts';
import { EffectsForwarder } from '../../../src/agents/worker/effects-forwarder.ts';
import { maskingOf } from '../../../src/agents/worker/masking.ts';
import { silentLog } from '../../../src/log.ts';
import { until } from '../../support/until.ts';

const TOKEN = 'agt_the-agents-own-token';
const SECRET = 'hunter2-hunter2';

type Reply = { status: number; body: object } | 'cut' | 'hang';

let dir: string;
let gateway: Server;
let port = 0;
let replies: Reply[];
let seen: { path: string; authorization: string | undefined; body: Record<string, unknown> }[];
let client: GatewayClient;
const doors: EffectsDoor[] = [];

/** What a gateway says, in order; the last one again and again. */
async function startGateway(): Promise<void> {
  gateway = createServer((incoming, response) => {
    let text = '';
    incoming.on('data', (chunk) => {
      text += chunk;
    });
    incoming.on('end', () => {
      seen.push({ path: incoming.url!, authorization: incoming.headers.authorization, body: JSON.parse(text) });
      const reply = replies.length > 1 ? replies.shift()! : replies[0]!;
      if (reply === 'cut') response.destroy();
      else if (reply !== 'hang')
        response.writeHead(reply.status, { 'content-type': 'application/json' }).end(JSON.stringify(reply.body));
    });
  });
  await new Promise<void>((resolve) => gateway.listen(port, '127.0.0.1', resolve));
  port = (gateway.address() as AddressInfo).port;
}

const stopGateway = () =>
  new Promise<void>((resolve) => {
    gateway.closeAllConnections();
    gateway.close(() => resolve());
  });

const FIRST: Reply = { status: 200, body: { answer: 'first', repeat: false } };
const problem = (status: number, code: string): Reply => ({ status, body: { code, detail: 'no', status } });

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-door-'));
  replies = [FIRST];
  seen = [];
  port = 0;
  await startGateway();
  client = new GatewayClient({ gatewayUrl: `http://127.0.0.1:${port}`, token: TOKEN });
});
afterEach(async () => {
  for (const door of doors.splice(0)) await door.stop();
  await client.close();
  await stopGateway();
  await rm(dir, { recursive: true, force: true });
});

async function openDoor(folder = dir): Promise<EffectsDoor> {
  const forwarder = new EffectsForwarder({
    client,
    caller: '"agentId":"a1","instanceId":"i1"',
    log: silentLog,
    backoff: { baseMs: 5, factor: 1.2, capMs: 20, jitter: 0 },
  });
  const door = new EffectsDoor({ dir: folder, name: 'spool', forwarder, log: silentLog });
  await door.start();
  doors.push(door);
  return door;
}

const RUN = { runId: 'k3f9', leaseToken: 'lease-1', masking: maskingOf([SECRET]) };

interface Answer {
  status: number;
  body: Record<string, unknown>;
}

function knock(
  env: Record<string, string>,
  path: string,
  body: unknown,
  more: { runId?: string; key?: string; signal?: AbortSignal; raw?: string } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${more.key ?? env.ERRAND_RUN_KEY}`,
      'x-errand-run': more.runId ?? 'k3f9',
      'content-type': 'application/json',
    };
    const call = request(
      { socketPath: env.ERRAND_AGENT_SOCKET, path, method: 'POST', headers, signal: more.signal },
      (response) => {
        let text = '';
        response.on('data', (chunk) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode!, body: JSON.parse(text) as Answer['body'] }));
      },
    );
    call.on('error', reject);
    call.end(more.raw ?? JSON.stringify(body));
  });
}

const EFFECT = { type: 'payment', key: 'order-42' };

describe('a program at the door', () => {
  it('speaks under the name of its run, with the agent’s token that it never sees', async () => {
    const { env } = (await openDoor()).admit(RUN);
    expect(await knock(env, '/effects/begin', { ...EFFECT, digest: 'd', policy: 'retry' })).toEqual({
      status: 200,
      body: { answer: 'first', repeat: false },
    });
    expect(seen).toEqual([
      {
        path: '/api/agent/effects/begin',
        authorization: `Bearer ${TOKEN}`,
        body: {
          ...EFFECT,
          digest: 'd',
          policy: 'retry',
          agentId: 'a1',
          instanceId: 'i1',
          runId: 'k3f9',
          leaseToken: 'lease-1',
        },
      },
    ]);
    expect(Object.values(env).join()).not.toContain(TOKEN);
    expect(Object.values(env).join()).not.toContain('lease-1');
  });

  it('cannot name another run, agent or lease in its body', async () => {
    const { env } = (await openDoor()).admit(RUN);
    for (const field of ['runId', 'leaseToken', 'agentId', 'instanceId'])
      expect(await knock(env, '/effects/begin', { ...EFFECT, [field]: 'x' })).toMatchObject({ status: 400 });
    expect(seen).toEqual([]);
  });

  it('is refused without the key of its own run, and after that run is over', async () => {
    const door = await openDoor();
    const own = door.admit(RUN);
    const other = door.admit({ ...RUN, runId: 'q7xw' });
    const refused = { status: 401, body: expect.objectContaining({ code: 'unauthorized' }) };
    expect(await knock(own.env, '/effects/begin', EFFECT, { key: other.env.ERRAND_RUN_KEY! })).toEqual(refused);
    expect(await knock(own.env, '/effects/begin', EFFECT, { runId: 'q7xw' })).toEqual(refused);
    expect(await knock(own.env, '/effects/begin', EFFECT, { runId: 'none', key: '' })).toEqual(refused);
    expect(await knock(own.env, '/effects/begin', EFFECT, { key: 'undefined' })).toEqual(refused);
    own.leave();
    expect(await knock(own.env, '/effects/begin', EFFECT)).toEqual(refused);
    expect(seen).toEqual([]);
    expect(await knock(other.env, '/effects/begin', EFFECT, { runId: 'q7xw' })).toMatchObject({ status: 200 });
  });

  it('is told what is wrong with what it says', async () => {
    const { env } = (await openDoor()).admit(RUN);
    for (const [path, body, field] of [
      ['begin', { ...EFFECT, type: 'two words' }, 'type'],
      ['begin', { ...EFFECT, key: '' }, 'key'],
      ['begin', { ...EFFECT, key: 'a\u0000b' }, 'key'],
      ['begin', { ...EFFECT, key: 'x'.repeat(513) }, 'key'],
      ['begin', { ...EFFECT, policy: 'maybe' }, 'policy'],
      ['begin', { ...EFFECT, patienceMs: -1 }, 'patienceMs'],
      ['done', { ...EFFECT, result: 'x'.repeat(16_385) }, 'result'],
      ['fail', { ...EFFECT, error: 7 }, 'error'],
    ] as const)
      expect(await knock(env, `/effects/${path}`, body)).toMatchObject({ status: 400, body: { field } });
    expect(await knock(env, '/effects/begin', null, { raw: '{' })).toMatchObject({ status: 400 });
    expect(await knock(env, '/effects/begin', null, { raw: '[]' })).toMatchObject({ status: 400 });
    expect(await knock(env, '/effects/undo', EFFECT)).toMatchObject({ status: 404 });
    expect(await knock(env, '/effects/done', null, { raw: 'x'.repeat(300_000) }).catch(() => 'cut')).toSatisfy(
      (answer: Answer | 'cut') => answer === 'cut' || answer.status === 413,
    );
    expect(seen).toEqual([]);
  });

  it('cannot carry a secret out: masked in what is stored, refused in what names the effect', async () => {
    const { env } = (await openDoor()).admit(RUN);
    await knock(env, '/effects/done', { ...EFFECT, result: `id=${SECRET}` });
    await knock(env, '/effects/fail', { ...EFFECT, error: `bad ${SECRET}` });
    expect(seen.map(({ body }) => body.result ?? body.error)).toEqual(['id=[secret]', 'bad [secret]']);
    for (const wrong of [{ key: `k-${SECRET}` }, { digest: SECRET }])
      expect(await knock(env, '/effects/begin', { ...EFFECT, ...wrong })).toMatchObject({
        status: 400,
        body: { field: Object.keys(wrong)[0] },
      });
    expect(JSON.stringify(seen)).not.toContain(SECRET);
  });
});

describe('while the gateway is away', () => {
  it('the call is repeated until it is answered', async () => {
    replies = ['cut', problem(503, 'unavailable'), problem(409, 'conflict'), problem(401, 'unauthorized'), FIRST];
    const { env } = (await openDoor()).admit(RUN);
    expect(await knock(env, '/effects/begin', EFFECT)).toMatchObject({ status: 200, body: { answer: 'first' } });
    expect(seen).toHaveLength(5);
    expect(new Set(seen.map(({ body }) => JSON.stringify(body))).size).toBe(1);
  });

  it('and the program’s patience bounds that', async () => {
    await stopGateway();
    const { env } = (await openDoor()).admit(RUN);
    const answer = await knock(env, '/effects/begin', { ...EFFECT, patienceMs: 50 });
    expect(answer).toMatchObject({ status: 502, body: { code: 'unreachable' } });
    await startGateway();
  });

  it('a program that has gone away is no longer spoken for', async () => {
    replies = [problem(503, 'unavailable')];
    const { env } = (await openDoor()).admit(RUN);
    const leave = new AbortController();
    const call = knock(env, '/effects/begin', EFFECT, { signal: leave.signal });
    await until(() => seen.length >= 3, 'some tries');
    leave.abort();
    await expect(call).rejects.toThrow();
    let before = -1;
    await until(async () => {
      const same = seen.length === before;
      before = seen.length;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return same;
    }, 'the tries to end');
  });

  it('a replaced agent and a refused call are told at once', async () => {
    const { env } = (await openDoor()).admit(RUN);
    replies = [problem(409, 'session_replaced')];
    expect(await knock(env, '/effects/begin', EFFECT)).toMatchObject({
      status: 409,
      body: { code: 'session_replaced' },
    });
    replies = [problem(400, 'invalid_request')];
    expect(await knock(env, '/effects/begin', EFFECT)).toMatchObject({ status: 400 });
    expect(seen).toHaveLength(2);
  });

  it('busy is asked again, and told when the patience is over', async () => {
    replies = [{ status: 200, body: { answer: 'busy' } }];
    const { env } = (await openDoor()).admit(RUN);
    expect(await knock(env, '/effects/begin', { ...EFFECT, patienceMs: 100 })).toMatchObject({
      body: { answer: 'busy' },
    });
    expect(seen.length).toBeGreaterThan(1);
    replies = [
      { status: 200, body: { answer: 'busy' } },
      { status: 200, body: { answer: 'done', result: 'r' } },
    ];
    expect(await knock(env, '/effects/begin', EFFECT)).toMatchObject({ body: { answer: 'done', result: 'r' } });
  });
});

describe('the socket', () => {
  it('is for the agent’s own user alone, and a dead agent’s is replaced', async () => {
    const first = await openDoor();
    const path = first.admit(RUN).env.ERRAND_AGENT_SOCKET!;
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    // As after kill -9: the file is there, nobody listens.
    const second = await openDoor();
    const { env } = second.admit(RUN);
    expect(env.ERRAND_AGENT_SOCKET).toBe(path);
    expect(await knock(env, '/effects/begin', EFFECT)).toMatchObject({ status: 200 });
  });

  it('has a short way to itself where the work folder is too deep for one', async () => {
    const deep = join(dir, 'x'.repeat(120));
    const door = await openDoor(deep);
    const { env } = door.admit(RUN);
    expect(Buffer.byteLength(env.ERRAND_AGENT_SOCKET!)).toBeLessThan(100);
    expect(await knock(env, '/effects/begin', EFFECT)).toMatchObject({ status: 200 });
    await door.stop();
    await expect(stat(env.ERRAND_AGENT_SOCKET!)).rejects.toThrow('ENOENT');
  });

  it('that cannot be made costs the programs their door, not the agent its work', async () => {
    const door = await openDoor(join(dir, 'missing'));
    expect(door.admit(RUN).env).toEqual({});
  });
});
