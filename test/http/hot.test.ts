import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { AppError } from '../../src/errors.ts';
import { HotRoutes, hotRoute } from '../../src/http/hot.ts';
import { silentLog } from '../../src/log.ts';
import { until } from '../support/until.ts';

type Answer = Parameters<typeof hotRoute<undefined, unknown>>[0]['answer'];

let server: Server;
afterEach(() => new Promise<void>((resolve) => server.close(() => resolve())));

/** One hot route on a real server; answers its address. */
async function serving(answer: Answer): Promise<string> {
  const route = hotRoute<undefined, unknown>({
    bodyLimit: 1_000,
    authorize: async () => undefined,
    schema: z.unknown(),
    answer,
  });
  const hot = new HotRoutes(new Map([['POST /x', route]]), silentLog);
  server = createServer((request, response) => void hot.serve(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/x`;
}

const post = (url: string) => fetch(url, { method: 'POST', body: '{}' });

describe('whoever waits for an answer', () => {
  it('that hangs up is known to be gone', async () => {
    let gone: AbortSignal | undefined;
    const url = await serving(async (_identity, _body, caller) => {
      gone = caller.gone;
      await new Promise((resolve) => caller.gone.addEventListener('abort', resolve));
      return { status: 200, body: {} };
    });
    const call = httpRequest(url, { method: 'POST' });
    call.on('error', () => undefined);
    call.end('{}');
    await until(() => gone !== undefined);
    expect(gone!.aborted).toBe(false);
    call.destroy();
    await until(() => gone!.aborted, 'the signal to fire');
  });

  it('is not gone because it has its answer', async () => {
    let gone: AbortSignal | undefined;
    const url = await serving(async (_identity, _body, caller) => {
      gone = caller.gone;
      return { status: 200, body: { ok: true } };
    });
    expect(await (await post(url)).json()).toEqual({ ok: true });
    await new Promise<void>((resolve) => {
      server.closeAllConnections();
      setImmediate(resolve);
    });
    expect(gone!.aborted).toBe(false);
  });
});

describe('a refusal', () => {
  it('for the moment says when to try again (A42)', async () => {
    const url = await serving(async () => {
      throw new AppError('unavailable', 'the database cannot be written right now (SQLITE_BUSY)');
    });
    const response = await post(url);
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
  });

  it('for good does not', async () => {
    const url = await serving(async () => {
      throw new AppError('conflict', 'no');
    });
    expect((await post(url)).headers.get('retry-after')).toBeNull();
  });
});
