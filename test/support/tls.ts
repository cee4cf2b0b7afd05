import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, request, type Server } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';

const openssl = (args: string[]) => promisify(execFile)('openssl', args);

export interface Certificates {
  /** PEM file of the CA. */
  caFile: string;
  ca: string;
  /** For localhost and 127.0.0.1, signed by the CA. */
  cert: string;
  key: string;
}

/** A CA and a server certificate, made for this test. @param days how long the server's is good; with a negative one it is over */
export async function makeCertificates(
  dir: string,
  { days = 30, names = 'DNS:localhost,IP:127.0.0.1' } = {},
): Promise<Certificates> {
  const path = (name: string) => join(dir, name);
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  await openssl([
    'req',
    '-x509',
    ...key,
    '-keyout',
    path('ca.key'),
    '-out',
    path('ca.pem'),
    '-days',
    '30',
    '-subj',
    '/CN=Test CA',
  ]);
  await openssl(['req', ...key, '-keyout', path('server.key'), '-out', path('server.csr'), '-subj', '/CN=localhost']);
  await writeFile(path('server.ext'), `subjectAltName=${names}\n`);
  const sign = [
    'x509',
    '-req',
    '-in',
    path('server.csr'),
    '-CA',
    path('ca.pem'),
    '-CAkey',
    path('ca.key'),
    '-CAcreateserial',
  ];
  await openssl([...sign, '-out', path('server.pem'), '-days', String(days), '-extfile', path('server.ext')]);
  const read = (name: string) => readFile(path(name), 'utf8');
  return {
    caFile: path('ca.pem'),
    ca: await read('ca.pem'),
    cert: await read('server.pem'),
    key: await read('server.key'),
  };
}

export interface Door {
  url: string;
  /** What came through, in order: `POST /api/agent/pull` or `CONNECT localhost:1234`. */
  seen: string[];
  close(): Promise<void>;
}

/** HTTPS in front of a plain gateway, as people put a web server there. */
export async function httpsDoor(target: string, { cert, key }: Pick<Certificates, 'cert' | 'key'>): Promise<Door> {
  const seen: string[] = [];
  const server = createHttpsServer({ cert, key }, (incoming, response) => {
    seen.push(`${incoming.method} ${incoming.url}`);
    const { method, headers, url = '/' } = incoming;
    const passed = request(new URL(url, target), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    incoming.pipe(passed);
  });
  return { ...(await listening(server)), seen, url: `https://localhost:${(server.address() as AddressInfo).port}` };
}

/** An HTTP proxy that opens tunnels, and asks for a password where one is given. */
export async function connectProxy(login?: { user: string; password: string }): Promise<Door> {
  const seen: string[] = [];
  const wanted = login && `Basic ${Buffer.from(`${login.user}:${login.password}`).toString('base64')}`;
  const server = createHttpServer((_request, response) => response.writeHead(405).end());
  server.on('connect', (incoming, client, head) => {
    seen.push(`CONNECT ${incoming.url}`);
    client.on('error', () => undefined);
    if (wanted !== undefined && incoming.headers['proxy-authorization'] !== wanted) {
      client.end('HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic realm="test"\r\n\r\n');
      return;
    }
    const [host, port] = incoming.url!.split(':');
    const upstream = connect({ host, port: Number(port) }, () => {
      client.write('HTTP/1.1 200 Connection Established\r\n\r\n');
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
    });
    upstream.on('error', () => client.destroy());
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
    tunnels.add(client);
  });
  const tunnels = new Set<{ destroy(): void }>();
  const { close } = await listening(server);
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url: `http://${login ? `${login.user}:${login.password}@` : ''}${address}`,
    seen,
    close: async () => {
      for (const tunnel of tunnels) tunnel.destroy();
      await close();
    },
  };
}

async function listening(server: Server): Promise<{ close(): Promise<void> }> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
