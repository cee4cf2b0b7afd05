import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Agent, type AgentTuning, createAgent } from '../../../src/agents/worker/agent.ts';
import type { Runtime } from '../../../src/agents/worker/runtime/runtime.ts';
import { systemClock } from '../../../src/clock.ts';
import { type AgentSettings, readAgentSettings } from '../../../src/config/agent.ts';
import { silentLog } from '../../../src/log.ts';
import { FakeGateway, type FakeGatewayOptions } from '../../support/fake-gateway.ts';

/** Short pauses: what a test waits for decides, not these. */
export const QUICK: Partial<AgentTuning> = {
  backoff: { baseMs: 10, factor: 1.5, capMs: 50, jitter: 0.5 },
  slowRetryMs: 50,
  pullWaitMs: 1_000,
  lastReportsMs: 2_000,
};

export interface Rig {
  gateway: FakeGateway;
  dir: string;
  settings(overrides?: Partial<AgentSettings>): AgentSettings;
  start(overrides?: Partial<AgentSettings>, runtimes?: ReadonlyMap<string, Runtime>): Promise<Agent>;
  close(): Promise<void>;
}

/** A fake gateway, a fresh folder, and agents that are stopped at the end. */
export async function rig(options: FakeGatewayOptions = {}): Promise<Rig> {
  const gateway = new FakeGateway(options);
  await gateway.start();
  const url = gateway.url;
  const dir = await mkdtemp(join(tmpdir(), 'errand-agent-'));
  const agents: Agent[] = [];
  const settings = (overrides: Partial<AgentSettings> = {}) => ({ ...agentSettings(url, dir), ...overrides });
  return {
    gateway,
    dir,
    settings,
    async start(overrides, runtimes) {
      const agent = createAgent({
        settings: settings(overrides),
        log: silentLog,
        clock: systemClock,
        version: '0.0.0',
        runtimes,
        tuning: QUICK,
      });
      agents.push(agent);
      await agent.start();
      return agent;
    },
    async close() {
      for (const agent of agents) agent.hurry();
      await Promise.all(agents.map((agent) => agent.stop()));
      await gateway.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

export function agentEnvironment(url: string, dir: string): Record<string, string> {
  return {
    AGENT_GATEWAY_URL: url,
    AGENT_TOKEN: 'agent-token-1',
    AGENT_ID: 'agent-1',
    AGENT_SPOOL_DIR: join(dir, 'spool'),
    AGENT_KILL_GRACE: '2s',
    AGENT_LOG_LEVEL: 'silent',
  };
}

function agentSettings(url: string, dir: string): AgentSettings {
  return readAgentSettings(agentEnvironment(url, dir));
}

/** Living (not zombie) processes whose command line contains the text. */
export async function processesWith(text: string): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const commandLine = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '');
    if (Number(name) !== process.pid && commandLine.split('\0').join(' ').includes(text)) found.push(Number(name));
  }
  return found;
}

/** A duration for `sleep` that no other test uses, so that its processes can be found. */
export function uniqueSleep(): string {
  return `${600 + Math.floor(Math.random() * 100)}.${process.pid}${Math.floor(Math.random() * 1e6)}`;
}
