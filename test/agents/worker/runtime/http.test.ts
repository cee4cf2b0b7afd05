import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Assignment } from '../../../../src/agents/protocol.ts';
import type { HttpSpec } from '../../../../src/agents/run-content.ts';
import { maskingOf } from '../../../../src/agents/worker/masking.ts';
import { HttpRuntime } from '../../../../src/agents/worker/runtime/http.ts';
import { addressRules, isReserved } from '../../../../src/agents/worker/runtime/http-address.ts';
import type { Job, RunEnd } from '../../../../src/agents/worker/runtime/runtime.ts';
import { parseAllowed } from '../../../../src/config/http-allow.ts';
import { silentLog } from '../../../../src/log.ts';
import { shellTask } from '../../../support/fake-gateway.ts';
import { until } from '../../../support/until.ts';

interface Seen {
  method: string;
  url: string;
  headers: IncomingMessage['headers'];
  body: string;
}

let seen: Seen[] = [];
let answer: (response: ServerResponse, request: Seen) => void;
let port: number;
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { method = '', url = '', headers } = request;
    seen.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
    answer(response, seen.at(-1)!);
  });
});
beforeEach(async () => {
  seen = [];
  answer = (response) => response.end('ok');
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
afterEach(async () => {
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
});

interface CallOptions {
  spec?: Partial<HttpSpec>;
  task?: Partial<Omit<Assignment, 'spec'>>;
  secrets?: Record<string, string>;
  allow?: string[];
  rules?: ReturnType<typeof addressRules>;
}

function start({ spec, task, secrets = {}, allow = ['127.0.0.1'], rules }: CallOptions = {}) {
  const controller = new AbortController();
  const logs: string[] = [];
  const values = new Map(Object.entries(secrets));
  const assignment = shellTask([], {
    runtime: 'http',
    spec: {
      method: 'GET',
      url: `http://127.0.0.1:${port}/x`,
      headers: [],
      body: null,
      expect: ['2xx'],
      maxResponseBytes: 65_536,
      ...spec,
    },
    ...task,
  });
  const job: Job = {
    assignment,
    secrets: values,
    masking: maskingOf(values.values()),
    signal: controller.signal,
    hurry: new AbortController().signal,
    emit: (body) => logs.push(body.type === 'log' ? body.text : ''),
    spawned: () => undefined,
  };
  const runtime = new HttpRuntime({ httpAllow: allow, log: silentLog, ...(rules && { rules }) });
  return { end: runtime.run(job), stop: controller, logs };
}
const call = (options?: CallOptions): Promise<RunEnd> => start(options).end;
const status = (code: number, headers: Record<string, string> = {}, body = '') => {
  answer = (response) => response.writeHead(code, headers).end(body);
};

describe('a call', () => {
  it('sends method, headers, secrets, body and the key of the task, and shows the answer', async () => {
    answer = (response) => response.writeHead(201).end('room 302 is in');
    const run = start({
      spec: {
        method: 'POST',
        url: `http://127.0.0.1:${port}/rooms/302?guest=Ada`,
        headers: [
          ['authorization', [{ text: 'Bearer ' }, { secret: 'PMS' }]],
          ['Content-Type', [{ text: 'application/json' }]],
        ],
        body: '{"a":1}',
      },
      task: { idempotencyKey: 'hotel:302 张' },
      secrets: { PMS: 'tok-123456' },
    });
    expect(await run.end).toEqual({
      type: 'succeeded',
      summary: 'room 302 is in',
      outputs: { status: '201' },
      exitCode: 0,
    });
    expect(seen).toHaveLength(1);
    expect(seen[0]).toMatchObject({ method: 'POST', url: '/rooms/302?guest=Ada', body: '{"a":1}' });
    expect(seen[0]!.headers).toMatchObject({
      authorization: 'Bearer tok-123456',
      'content-type': 'application/json',
      'idempotency-key': 'hotel:302%20%E5%BC%A0',
    });
    // What a person typed is no part of the log.
    expect(run.logs.join('')).toMatch(
      /^\[errand\] POST http:\/\/127\.0\.0\.1:\d+\/rooms\/302: 201, 14 bytes, \d+ ms\n$/,
    );
  });

  it.each([
    [429, { 'retry-after': '7' }, { errorClass: 'rate_limited', retryAfterMs: 7_000, httpStatus: 429 }],
    [503, { 'retry-after': '3' }, { errorClass: 'rate_limited', retryAfterMs: 3_000, httpStatus: 503 }],
    [503, {}, { errorClass: 'transient', httpStatus: 503 }],
    [500, {}, { errorClass: 'transient' }],
    [522, {}, { errorClass: 'transient' }],
    [501, {}, { errorClass: 'permanent' }],
    [404, {}, { errorClass: 'permanent', httpStatus: 404 }],
    [400, { 'retry-after': '7' }, { errorClass: 'permanent' }],
  ])('that is answered %i %j is a failure of its class', async (code, headers, expected) => {
    status(code, headers as Record<string, string>, 'no');
    const end = await call();
    expect(end).toMatchObject({ type: 'failed', ...expected });
    expect((end as { error: string }).error).toBe(`GET 127.0.0.1:${port}/x: HTTP ${code}\nno`);
    if (code === 400) expect(end).not.toHaveProperty('retryAfterMs');
  });

  it('counts as success what the template expects, and nothing else', async () => {
    status(404, {}, 'gone');
    expect(await call({ spec: { expect: ['204', '404'] } })).toMatchObject({
      type: 'succeeded',
      outputs: { status: '404' },
    });
    status(200);
    expect(await call({ spec: { expect: ['204'] } })).toMatchObject({ type: 'failed', errorClass: 'permanent' });
  });

  it('that nobody answers, or not to its end, is transient and names what happened', async () => {
    answer = (response) => response.socket!.destroy();
    expect(await call()).toMatchObject({ type: 'failed', errorClass: 'transient', errorType: 'UND_ERR_SOCKET' });
    answer = (response) => {
      response.writeHead(200, { 'content-length': '100' }).write('half');
      setImmediate(() => response.socket!.destroy());
    };
    expect(await call()).toMatchObject({ type: 'failed', errorClass: 'transient' });
    const closed = port;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    const end = await call({ spec: { url: `http://127.0.0.1:${closed}/x?secret=1` } });
    expect(end).toMatchObject({ errorClass: 'transient', errorType: 'ECONNREFUSED' });
    expect(JSON.stringify(end)).not.toContain('secret=1');
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });

  it('is ended when the run is, with its reason', async () => {
    answer = () => undefined;
    const run = start();
    await until(() => seen.length === 1);
    run.stop.abort('timeout');
    expect(await run.end).toMatchObject({ type: 'timed_out' });
  });

  it('reads no more than it may, and makes valid text of any bytes', async () => {
    answer = (response) => response.end(Buffer.concat([Buffer.from([0xff, 0, 0x41]), Buffer.alloc(200_000, 'x')]));
    const end = (await call({ spec: { maxResponseBytes: 1_024 } })) as Extract<RunEnd, { type: 'succeeded' }>;
    expect(end.summary).toMatch(/^\uFFFDAx{1021}\n\[… more was not read …\]$/);
    answer = (response) =>
      response.writeHead(200, { 'content-type': 'text/plain; charset=gbk' }).end(Buffer.from([0xd5, 0xc5]));
    expect(await call()).toMatchObject({ summary: '张' });
    answer = (response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end(Buffer.from([0x1f, 0x8b]));
    expect(await call()).toMatchObject({ summary: '[2 bytes, packed as gzip]' });
  });

  it('masks secrets that the other side sends back', async () => {
    answer = (response, request) => response.writeHead(400).end(`you said ${request.headers.authorization}`);
    const end = await call({
      spec: { headers: [['authorization', [{ secret: 'PMS' }]]] },
      secrets: { PMS: 'tok-123456' },
    });
    expect(JSON.stringify(end)).toContain('you said [secret]');
    expect(JSON.stringify(end)).not.toContain('tok-123456');
  });

  it('is not made where the secret is not the template’s, or where a header would hold a line end', async () => {
    const spec = { headers: [['x-a', [{ secret: 'OTHER' }]]] as HttpSpec['headers'] };
    expect(await call({ spec })).toMatchObject({ type: 'failed', errorClass: 'permanent' });
    const broken = { headers: [['x-a', [{ secret: 'A' }]]] as HttpSpec['headers'] };
    expect(await call({ spec: broken, secrets: { A: 'a\r\nx-b: 1' } })).toMatchObject({ type: 'failed' });
    expect(seen).toEqual([]);
  });
});

describe('redirects', () => {
  const redirect = (code: number, location: string) => {
    answer = (response, request) =>
      request.url === '/end' ? response.end(`end by ${request.method}`) : response.writeHead(code, { location }).end();
  };

  it('on the same server are followed, with the method they ask for', async () => {
    redirect(302, '/end');
    expect(await call()).toMatchObject({ summary: 'end by GET' });
    redirect(307, '/end');
    expect(await call({ spec: { method: 'POST', body: 'b' } })).toMatchObject({ summary: 'end by POST' });
    expect(seen.at(-1)!.body).toBe('b');
    redirect(303, '/end');
    expect(await call({ spec: { method: 'POST', body: 'b' } })).toMatchObject({ summary: 'end by GET' });
    redirect(302, '/end');
    expect(await call({ spec: { method: 'POST', body: 'b' } })).toMatchObject({ type: 'failed', httpStatus: 302 });
  });

  it.each([
    'http://localhost:9/',
    'http://169.254.169.254/latest/meta-data',
    'https://example.com/',
    'http://u:p@127.0.0.1/',
  ])('to %s are not followed', async (location) => {
    redirect(302, location);
    const end = await call({ allow: ['127.0.0.1', 'localhost'] });
    expect(end).toMatchObject({ type: 'failed', errorClass: 'permanent', httpStatus: 302 });
    expect(JSON.stringify(end)).not.toContain('u:p');
    expect(seen).toHaveLength(1);
  });

  it('without an end are given up', async () => {
    redirect(302, '/again');
    expect(await call()).toMatchObject({ type: 'failed', httpStatus: 302 });
    expect(seen).toHaveLength(6);
  });
});

describe('addresses', () => {
  it.each([
    '127.0.0.1',
    '127.8.8.8',
    '0.0.0.0',
    '10.1.2.3',
    '172.31.0.1',
    '192.168.0.1',
    '100.64.0.1',
    '169.254.169.254',
    '168.63.129.16',
    '224.0.0.1',
    '255.255.255.255',
    '::1',
    '::',
    '::ffff:127.0.0.1',
    '::ffff:a00:1',
    '::127.0.0.1',
    'fe80::1',
    'fe80::1%eth0',
    'fd00:ec2::254',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    'ff02::1',
  ])('%s is not public', (address) => expect(isReserved(address)).toBe(true));

  it.each(['8.8.8.8', '172.32.0.1', '2606:4700::1111', '::ffff:8.8.8.8'])('%s is public', (address) =>
    expect(isReserved(address)).toBe(false),
  );

  it.each([
    'http://127.0.0.1',
    'http://2130706433',
    'http://0x7f.1',
    'http://[::1]',
    'http://[::ffff:127.0.0.1]',
    'http://127.1.',
  ])('%s is refused before anything is sent', async (origin) => {
    const end = await call({ spec: { url: `${origin}:${port}/x` }, allow: [] });
    expect(end).toMatchObject({ type: 'failed', errorClass: 'permanent' });
    expect((end as { error: string }).error).toContain('AGENT_HTTP_ALLOW');
    expect(seen).toEqual([]);
  });

  it('a name that leads to one is refused by its address', async () => {
    const end = await call({ spec: { url: `http://localhost:${port}/x` }, allow: [] });
    expect(end).toMatchObject({ type: 'failed', errorClass: 'permanent' });
    expect((end as { error: string }).error).toContain('localhost is an address of this machine');
    expect(seen).toEqual([]);
  });

  it('what is connected to is what was checked: a name that changes its meaning afterwards gains nothing', async () => {
    let lookups = 0;
    const rebinding = ((_name: string, _options: object, callback: (e: null, a: object[]) => void) => {
      lookups += 1;
      // The check would be shown a public address, the connection a private one, were there two lookups.
      callback(null, lookups === 1 ? [{ address: '192.0.2.1', family: 4 }] : [{ address: '127.0.0.1', family: 4 }]);
    }) as unknown as Parameters<typeof addressRules>[1];
    const permitted = addressRules(['192.0.2.0/24'], rebinding);
    const run = start({ spec: { url: `http://rebind.example:${port}/x` }, rules: permitted });
    await until(() => lookups === 1);
    run.stop.abort('cancel');
    expect(await run.end).toMatchObject({ type: 'cancelled' });
    expect([lookups, seen.length]).toEqual([1, 0]);
    const second = await call({ spec: { url: `http://rebind.example:${port}/x` }, rules: permitted });
    expect(second).toMatchObject({ type: 'failed', errorClass: 'permanent' });
    expect(seen).toEqual([]);
  });

  it('of several only the permitted are used', async () => {
    const both = ((_name: string, _options: object, callback: (e: null, a: object[]) => void) =>
      callback(null, [
        { address: '10.0.0.1', family: 4 },
        { address: '127.0.0.1', family: 4 },
      ])) as unknown as Parameters<typeof addressRules>[1];
    const rules = addressRules(['127.0.0.0/8'], both);
    expect(await call({ spec: { url: `http://both.example:${port}/x` }, rules })).toMatchObject({ type: 'succeeded' });
  });

  it('the owner permits by name, by name and port, by network', async () => {
    const url = `http://localhost:${port}/x`;
    expect(await call({ spec: { url }, allow: ['localhost'] })).toMatchObject({ type: 'succeeded' });
    expect(await call({ spec: { url }, allow: [`localhost:${port}`] })).toMatchObject({ type: 'succeeded' });
    expect(await call({ spec: { url }, allow: ['127.0.0.0/8', '::1/128'] })).toMatchObject({ type: 'succeeded' });
    expect(await call({ spec: { url }, allow: ['localhost:1', '*.localhost', '10.0.0.0/8'] })).toMatchObject({
      type: 'failed',
    });
  });

  it.each(['', 'http://x', '10.0.0.0/33', 'a b', '*', 'x:y', '300.1.1.1/8'])('%j is no entry', (entry) =>
    expect(parseAllowed(entry)).toBeUndefined(),
  );
});
