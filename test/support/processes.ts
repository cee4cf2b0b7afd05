import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, openSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compiledSrc } from './compiled.ts';
import { until } from './until.ts';

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Gateway and agents as processes of their own, to be killed at any moment. */
export class Processes {
  readonly folder = mkdtempSync(join(tmpdir(), 'errand-proc-'));
  readonly adminToken = 'an-admin-token-for-tests-only';
  readonly #env: Record<string, string>;
  readonly #children = new Set<ChildProcess>();
  #port = 0;

  constructor(env: Record<string, string>) {
    this.#env = env;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Starts (or starts again) the gateway, always on the same port and folder; resolves when it answers. */
  async gateway(): Promise<ChildProcess> {
    this.#port ||= await freePort();
    const child = await this.#start(['gateway'], 'gateway', {
      ERRAND_STATE_DIR: join(this.folder, 'state'),
      ERRAND_PORT: String(this.#port),
      ERRAND_ADMIN_TOKEN: this.adminToken,
      ERRAND_LANG: 'en',
      ...this.#env,
    });
    await until(async () => {
      if (child.exitCode !== null)
        throw new Error(`the gateway ended with ${child.exitCode}: ${await this.output('gateway')}`);
      return (await fetch(`${this.url}/healthz`).catch(() => undefined))?.ok;
    }, 'the gateway to answer');
    return child;
  }

  /** @param group the folder of a control group that it, and what it starts, is to live in */
  async agent(agentId: string, token: string, env: Record<string, string> = {}, group?: string): Promise<ChildProcess> {
    const settings = {
      AGENT_GATEWAY_URL: this.url,
      AGENT_TOKEN: token,
      AGENT_ID: agentId,
      AGENT_SPOOL_DIR: join(this.folder, agentId),
      ...env,
    };
    return this.#start(['agent'], agentId, settings, group);
  }

  async agentToken(agentId: string): Promise<string> {
    const { agentToken } = await this.api<{ agentToken: string }>('POST', '/api/agents/tokens', {
      agentId,
      permanent: true,
    });
    return agentToken;
  }

  async api<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.adminToken}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text) as T;
  }

  /** As a power cut would: no handler runs. */
  async kill(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }

  /** What a process has written, for messages of failed tests. */
  async output(name: string): Promise<string> {
    return (await readFile(join(this.folder, `${name}.log`), 'utf8').catch(() => '')).slice(-4_000);
  }

  async end(): Promise<void> {
    await Promise.all([...this.#children].map((child) => this.kill(child)));
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  }

  async #start(args: string[], name: string, env: Record<string, string>, group?: string): Promise<ChildProcess> {
    const main = join(await compiledSrc(), 'cli', 'main.js');
    const out = openSync(join(this.folder, `${name}.log`), 'a');
    const entering =
      group === undefined ? [] : ['sh', '-c', 'echo $$ > "$0" && exec "$@"', join(group, 'cgroup.procs')];
    const [file, ...rest] = [...entering, process.execPath, main, ...args];
    const child = spawn(file!, rest, {
      cwd: this.folder,
      stdio: ['ignore', out, out],
      env: { PATH: process.env.PATH, HOME: this.folder, LANG: 'C.UTF-8', ...env },
    });
    this.#children.add(child);
    return child;
  }
}
