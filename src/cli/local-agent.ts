import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AgentIdentity, AgentTokens } from '../agents/tokens.ts';
import { backoffMs } from '../backoff.ts';
import type { Environment } from '../config/values.ts';
import { canonicalJson } from '../ids.ts';
import type { Log } from '../log.ts';

/** Which agent `errand up` runs: `AGENT_ID` (local), `AGENT_POOLS` (default), `AGENT_LABELS`. */
export function localIdentity(env: Environment): AgentIdentity {
  const list = (text: string | undefined) =>
    (text ?? '')
      .split(',')
      .map((item) => item.trim())
      .filter((item) => item !== '');
  const pools = list(env.AGENT_POOLS);
  const labels = list(env.AGENT_LABELS).map((item): [string, string] => {
    const [key = '', ...value] = item.split('=');
    return [key.trim(), value.join('=').trim()];
  });
  return {
    agentId: env.AGENT_ID?.trim() || 'local',
    pools: pools.length > 0 ? pools : ['default'],
    labels: Object.fromEntries(labels),
  };
}

/** The agent's environment: no setting of the gateway, and with it none of its secrets. */
export function localAgentEnv(
  env: Environment,
  { identity, stateDir, url, token }: { identity: AgentIdentity; stateDir: string; url: string; token: string },
): Record<string, string> {
  const kept = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && !/^(ERRAND|TELEGRAM|WECOM)_/.test(entry[0]),
  );
  return {
    AGENT_SPOOL_DIR: join(stateDir, `agent-${identity.agentId}`),
    AGENT_LOG_LEVEL: env.ERRAND_LOG_LEVEL?.trim() || 'warn',
    ...Object.fromEntries(kept),
    AGENT_ID: identity.agentId,
    AGENT_GATEWAY_URL: url,
    AGENT_TOKEN: token,
  };
}

export interface LocalAgentOptions {
  env: Environment;
  cwd: string;
  stateDir: string;
  identity: AgentIdentity;
  url: string;
  tokens: AgentTokens;
  log: Log;
}

/** It has so long to end its programs; then they are killed. Milliseconds. */
const STOP_MS = 6_000;
const RESTART = { baseMs: 500, factor: 2, capMs: 30_000, jitter: 0.2 };

/**
 * The agent of `errand up`: a child process of the same binary, started again when it ends by itself. It is the leader of its own
 * process group, so that Ctrl-C reaches only us and we stop it in order; and it ends by itself when we are killed (its channel to us
 * closes).
 */
export class LocalAgent {
  readonly #options: LocalAgentOptions;
  #child: ChildProcess | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopping = false;
  #failures = 0;

  constructor(options: LocalAgentOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#spawn(localAgentEnv(this.#options.env, { ...this.#options, token: await this.#token() }));
  }

  /** Tells it to stop and waits until it is gone. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#timer);
    const child = this.#child;
    if (!child) return;
    const gone = once(child, 'exit');
    child.kill('SIGTERM');
    const hurry = setTimeout(() => this.hurry(), STOP_MS);
    const kill = setTimeout(() => child.kill('SIGKILL'), STOP_MS + 1_500);
    await gone;
    clearTimeout(hurry);
    clearTimeout(kill);
  }

  /** The second signal for the agent: its programs are killed. */
  hurry(): void {
    this.#child?.kill('SIGTERM');
  }

  #spawn(env: Record<string, string>): void {
    const { cwd, log } = this.#options;
    const startedAt = performance.now();
    const args = [process.argv[1]!, 'agent', '--no-settings'];
    const child = spawn(process.execPath, [...process.execArgv, ...args], {
      cwd,
      env,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      detached: true,
    });
    this.#child = child;
    child.on('error', (error) => log.error('local_agent.failed', { error }));
    child.on('exit', (code, signal) => {
      this.#child = undefined;
      if (this.#stopping) return;
      this.#failures = performance.now() - startedAt > RESTART.capMs ? 1 : this.#failures + 1;
      const pauseMs = backoffMs(RESTART, this.#failures);
      log.error('local_agent.ended', { code, signal, restartMs: pauseMs });
      this.#timer = setTimeout(() => this.#spawn(env), pauseMs);
    });
  }

  /** The stored token while it is good for the same agent, pools and labels; else a new one, and older ones end. */
  async #token(): Promise<string> {
    const { identity, stateDir, tokens } = this.#options;
    const path = join(stateDir, 'local-agent.json');
    const stored = readToken(path);
    if (stored && canonicalJson(await tokens.identify(stored).catch(() => null)) === canonicalJson(identity))
      return stored;
    await tokens.revoke(identity.agentId);
    const token = await tokens.issue(identity);
    writePrivately(path, `${JSON.stringify({ agentId: identity.agentId, token })}\n`);
    return token;
  }
}

function readToken(path: string): string | undefined {
  try {
    const { token } = JSON.parse(readFileSync(path, 'utf8')) as { token?: unknown };
    return typeof token === 'string' ? token : undefined;
  } catch {
    return undefined;
  }
}

/** Mode 0600 from the first byte on, and never half a file. */
function writePrivately(path: string, text: string): void {
  const draft = `${path}.${process.pid}`;
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(draft, text, { mode: 0o600, flush: true });
  renameSync(draft, path);
}
