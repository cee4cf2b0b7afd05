import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ChannelDoor, DoorAnswer, DoorRequest } from '../../src/channels/channel.ts';

/** A small HTTP server on 127.0.0.1 that opens a channel's doors as the gateway does: limits, decoded query, raw text body. */
export interface DoorServer {
  /** `http://127.0.0.1:<port>`, no slash at the end. */
  readonly url: string;
  stop(): Promise<void>;
}

/** @param doors read anew for every request, so that a channel may be replaced while the server runs */
export async function serveDoors(doors: () => readonly ChannelDoor[]): Promise<DoorServer> {
  const server = createServer((request, response) => {
    void answer(doors(), request)
      .catch((error: unknown): DoorAnswer => ({ status: 500, body: `the door threw: ${String(error)}` }))
      .then((reply) => write(response, reply));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function answer(doors: readonly ChannelDoor[], request: IncomingMessage): Promise<DoorAnswer> {
  const url = new URL(request.url ?? '/', 'http://door');
  const here = doors.filter((door) => door.path === url.pathname);
  const door = here.find((candidate) => candidate.method === request.method);
  if (!door) return { status: here.length > 0 ? 405 : 404, body: '' };
  const body = await readBody(request, door.bodyLimit);
  if (body === undefined) return { status: 413, body: '' };
  return door.open({ query: queryOf(url.searchParams), headers: request.headers, body });
}

/** Undefined when the body is larger than the limit; the rest is not kept. */
async function readBody(request: IncomingMessage, limit: number): Promise<string | undefined> {
  if (Number(request.headers['content-length'] ?? 0) > limit) return undefined;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function queryOf(params: URLSearchParams): DoorRequest['query'] {
  const query: Record<string, string | readonly string[]> = {};
  for (const name of new Set(params.keys())) {
    const values = params.getAll(name);
    query[name] = values.length === 1 ? values[0]! : values;
  }
  return query;
}

function write(response: ServerResponse, reply: DoorAnswer): void {
  response.writeHead(reply.status, reply.contentType ? { 'content-type': reply.contentType } : {});
  response.end(reply.body);
}
