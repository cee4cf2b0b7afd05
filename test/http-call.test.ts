import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { postText } from '../src/http-call.ts';
import { until } from './support/until.ts';

describe('a text is posted', () => {
  let server: Server;
  let pool: Pool;
  let answer: RequestListener;
  let heard = 0;
  let hungUp = 0;

  beforeEach(async () => {
    heard = 0;
    hungUp = 0;
    server = createServer((request, response) => {
      heard += 1;
      response.on('close', () => {
        if (!response.writableFinished) hungUp += 1;
      });
      answer(request, response);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    pool = new Pool(origin(), { connections: 1, pipelining: 1 });
  });

  afterEach(async () => {
    await pool.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const origin = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const call = (options: { signal?: AbortSignal; bodyTimeout?: number } = {}) =>
    postText(pool, { origin: origin(), path: '/here?x=1', headers: { 'x-some': 'thing' }, body: 'Grüße', ...options });

  it('and the whole answer is read, however it is cut into parts', async () => {
    answer = (request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        response.writeHead(418, { 'retry-after': '3' });
        const said = Buffer.from(
          `${request.method} ${request.url} ${request.headers['x-some']} ${Buffer.concat(parts).toString()} – 再见`,
        );
        // The last character comes in two parts.
        response.write(said.subarray(0, -1));
        setImmediate(() => response.end(said.subarray(-1)));
      });
    };
    const said = await call();
    expect(said).toMatchObject({ status: 418, text: 'POST /here?x=1 thing Grüße – 再见' });
    expect(said.headers['retry-after']).toBe('3');
  });

  it('an empty answer is an empty text', async () => {
    answer = (_request, response) => response.writeHead(204).end();
    expect(await call()).toMatchObject({ status: 204, text: '' });
  });

  it('a connection that breaks in the middle of the answer is an error', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('half', () => response.destroy());
    };
    await expect(call()).rejects.toThrow(/other side closed|terminated|aborted/);
  });

  it('an answer that stops coming is an error', async () => {
    answer = (_request, response) => void response.writeHead(200, { 'content-length': '100' }).write('half');
    await expect(call({ bodyTimeout: 50 })).rejects.toThrow(/Body Timeout/);
  });

  it('a call whose signal is aborted hangs up and throws its reason', async () => {
    answer = () => undefined;
    const stop = new AbortController();
    const under = call({ signal: stop.signal });
    await until(() => heard === 1);
    stop.abort(new Error('enough'));
    await expect(under).rejects.toThrow('enough');
    await until(() => hungUp === 1);
  });

  it('a call that waits for a connection is given up at once, and never made', async () => {
    answer = (_request, response) => void setTimeout(() => response.end('first'), 100);
    const first = call();
    const stop = new AbortController();
    const second = call({ signal: stop.signal });
    stop.abort(new Error('enough'));
    await expect(second).rejects.toThrow('enough');
    expect((await first).text).toBe('first');
    answer = (_request, response) => void response.end('third');
    expect((await call()).text).toBe('third');
    expect(heard).toBe(2);
  });

  it('nothing is sent where the signal was aborted before', async () => {
    answer = (_request, response) => void response.end();
    await expect(call({ signal: AbortSignal.abort(new Error('before')) })).rejects.toThrow('before');
    expect(heard).toBe(0);
  });
});
