import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GatewayClient } from '../../../src/agents/worker/client.ts';
import { checkSpace, download, MAX_PACKAGE_BYTES } from '../../../src/agents/worker/upgrade/download.ts';
import { until } from '../../support/until.ts';

const CONTENT = Buffer.alloc(300_000, 'errand');
const OFFER = {
  version: '1.2.3',
  sha256: createHash('sha256').update(CONTENT).digest('hex'),
  signature: null,
  bytes: CONTENT.length,
};

let dir: string;
let server: Server;
let client: GatewayClient;
let serve: (request: IncomingMessage, response: ServerResponse) => void;
let ranges: (string | undefined)[];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-download-'));
  ranges = [];
  server = createServer((request, response) => {
    ranges.push(request.headers.range);
    serve(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const gatewayUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  client = new GatewayClient({ gatewayUrl, token: 't' });
});
afterEach(async () => {
  await client.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(dir, { recursive: true, force: true });
});

const file = () => join(dir, 'package');
const load = (offer = OFFER) => download(client, offer, file(), new AbortController().signal);
const whole = (_request: IncomingMessage, response: ServerResponse) => void response.writeHead(200).end(CONTENT);
const rest = (request: IncomingMessage, response: ServerResponse) => {
  const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
  response.writeHead(from > 0 ? 206 : 200).end(CONTENT.subarray(from));
};

describe('the download of a package', () => {
  it('goes on where it was cut off', async () => {
    serve = (_request, response) => {
      response.writeHead(200, { 'content-length': CONTENT.length });
      response.write(CONTENT.subarray(0, 100_000));
      // What the agent has not read when the connection breaks, it does not have.
      void until(async () => (await stat(file()).catch(() => undefined))?.size).then(() => response.destroy());
    };
    await expect(load()).rejects.toMatchObject({ verdict: 'again' });
    const have = (await stat(file())).size;
    expect(have).toBeGreaterThan(0);
    serve = rest;
    await load();
    expect(ranges).toEqual([undefined, `bytes=${have}-`]);
    expect(await readFile(file())).toEqual(CONTENT);
  });

  it('begins anew where the gateway knows no ranges', async () => {
    await writeFile(file(), CONTENT.subarray(0, 5_000));
    serve = whole;
    await load();
    expect(await readFile(file())).toEqual(CONTENT);
  });

  it('asks for nothing when everything is there already', async () => {
    await writeFile(file(), CONTENT);
    await load();
    expect(ranges).toEqual([]);
  });

  it('throws away what does not have the promised digest, also when half of it was there before', async () => {
    await writeFile(file(), Buffer.alloc(5_000, 'other'));
    serve = rest;
    await expect(load()).rejects.toMatchObject({ code: 'invalid_request', message: expect.stringContaining('sha256') });
    await expect(stat(file())).rejects.toThrow(/ENOENT/);
    await load();
  });

  it('stops at the promised size', async () => {
    serve = (_request, response) => void response.writeHead(200).end(Buffer.concat([CONTENT, CONTENT]));
    await expect(load()).rejects.toThrow('larger than was promised');
    serve = rest;
    await load();
  });

  it('that ends too early without an error is tried again later', async () => {
    serve = (_request, response) => void response.writeHead(200).end(CONTENT.subarray(0, 10));
    await expect(load()).rejects.toMatchObject({ verdict: 'again' });
  });

  it('is told what the gateway refuses with', async () => {
    serve = (_request, response) =>
      void response
        .writeHead(404, { 'content-type': 'application/problem+json' })
        .end(JSON.stringify({ code: 'not_found', detail: 'there is no release "1.2.3"' }));
    await expect(load()).rejects.toMatchObject({ code: 'not_found', message: expect.stringContaining('no release') });
  });

  it('is not begun where it is too large, or the disk has no room', async () => {
    await expect(load({ ...OFFER, bytes: MAX_PACKAGE_BYTES + 1 })).rejects.toMatchObject({ code: 'invalid_request' });
    expect(ranges).toEqual([]);
    await expect(checkSpace(dir, Number.MAX_SAFE_INTEGER)).rejects.toMatchObject({ code: 'storage_full' });
  });
});
