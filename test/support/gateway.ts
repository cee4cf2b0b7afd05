import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Agent, createAgent } from '../../src/agents/worker/agent.ts';
import { type Gateway, startGateway } from '../../src/app.ts';
import type { ChannelName } from '../../src/channels/channel.ts';
import { systemClock } from '../../src/clock.ts';
import { readAgentSettings } from '../../src/config/agent.ts';
import { readGatewaySettings } from '../../src/config/gateway.ts';
import { createLog, silentLog } from '../../src/log.ts';
import { approvePairing, requestPairing } from '../../src/sessions/pairing.ts';
import type { Role } from '../../src/sessions/rights.ts';

const log = process.env.TEST_LOG ? createLog({ level: 'debug' }) : silentLog;

/** The whole gateway in this process, on a folder of its own and any free port, as `errand gateway` starts it. */
export class TestGateway {
  readonly folder: string;
  readonly #env: Record<string, string>;
  readonly #agents: Agent[] = [];
  gateway!: Gateway;

  private constructor(folder: string, env: Record<string, string>) {
    this.folder = folder;
    this.#env = env;
  }

  static async start(env: Record<string, string> = {}): Promise<TestGateway> {
    const made = new TestGateway(await mkdtemp(join(tmpdir(), 'errand-e2e-')), env);
    await made.startGateway();
    return made;
  }

  async startGateway(): Promise<void> {
    const settings = readGatewaySettings({
      ERRAND_STATE_DIR: join(this.folder, 'state'),
      ERRAND_PORT: '0',
      ERRAND_LANG: 'en',
      ...this.#env,
    });
    this.gateway = await startGateway({ settings, log, reserveLog: false });
  }

  get url(): string {
    return this.gateway.url;
  }

  /** An agent in this process, with a token of its own. */
  async agent(agentId = 'agent-1', env: Record<string, string> = {}): Promise<Agent> {
    const token = await this.gateway.rooms.tokens.issue({ agentId, pools: ['default'], labels: {} });
    const settings = readAgentSettings({
      AGENT_GATEWAY_URL: this.url,
      AGENT_TOKEN: token,
      AGENT_ID: agentId,
      AGENT_SPOOL_DIR: join(this.folder, agentId),
      ...env,
    });
    const agent = createAgent({ settings, log, clock: systemClock, version: 'test' });
    await agent.start();
    this.#agents.push(agent);
    return agent;
  }

  /** Pairs a person without the chat's ceremony. */
  async pair(channel: ChannelName, userId: string, role: Role = 'operator'): Promise<void> {
    const route = { channel, account: 'default', chat: userId, chatKind: 'direct' as const };
    await this.gateway.rooms.store.transact('test.pair', async (tx) => {
      const answer = await requestPairing(tx, { channel, account: 'default', userId, name: userId, route });
      if (!('code' in answer) || answer.code === undefined)
        throw new Error(`no pairing code: ${JSON.stringify(answer)}`);
      await approvePairing(tx, answer.code, 'test', role);
    });
  }

  /** A call of the REST API as the administrator. */
  async api<T = Record<string, unknown>>(
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; body: T }> {
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.gateway.adminToken}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as T };
  }

  async stop(): Promise<void> {
    await Promise.all(this.#agents.map((agent) => agent.stop()));
    await this.gateway.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}
