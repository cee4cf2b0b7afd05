import type { ChildProcess } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { type FakeTelegram, startFakeTelegram } from '../support/fake-telegram/fake-telegram.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';
import { writeMarkTemplate } from './program.ts';

export interface TaskSeen {
  taskId: string;
  status: string;
  attempt: number;
  args: { n: string };
  source: string;
  runs: { runId: string; agentId: string; outcome?: string }[];
  deliveryStatus: string;
}

const AGENTS = ['agent-1', 'agent-2', 'agent-3'];

/** A gateway, three agents and a Telegram, and a hand that pulls their plugs. */
export class House {
  readonly telegram: FakeTelegram;
  readonly processes: Processes;
  readonly marks: string;
  readonly #tokens = new Map<string, string>();
  readonly #agents = new Map<string, ChildProcess>();
  #gateway: ChildProcess;

  private constructor(parts: { telegram: FakeTelegram; processes: Processes; marks: string; gateway: ChildProcess }) {
    this.telegram = parts.telegram;
    this.processes = parts.processes;
    this.marks = parts.marks;
    this.#gateway = parts.gateway;
  }

  static async open(chats: readonly number[]): Promise<House> {
    const telegram = await startFakeTelegram();
    const env: Record<string, string> = {
      TELEGRAM_BOT_TOKEN: telegram.token,
      TELEGRAM_API_ROOT: telegram.url,
      ERRAND_LEASE_MS: '6000',
      ERRAND_HEARTBEAT_MS: '1000',
    };
    const processes = new Processes(env);
    const { templates, marks } = await writeMarkTemplate(processes.folder);
    env.ERRAND_TEMPLATES_DIR = templates;
    const house = new House({ telegram, processes, marks, gateway: await processes.gateway() });
    for (const agentId of AGENTS) {
      house.#tokens.set(agentId, await processes.agentToken(agentId));
      await house.#startAgent(agentId);
    }
    for (const chat of chats) await house.#pair(chat);
    return house;
  }

  async killGateway(downMs: number): Promise<void> {
    await this.processes.kill(this.#gateway);
    await new Promise((resolve) => setTimeout(resolve, downMs));
    this.#gateway = await this.processes.gateway();
  }

  /** @param which a number from 0 to 1 */
  async killAgent(which: number, downMs: number): Promise<void> {
    const agentId = AGENTS[Math.floor(which * AGENTS.length)]!;
    await this.processes.kill(this.#agents.get(agentId)!);
    await new Promise((resolve) => setTimeout(resolve, downMs));
    await this.#startAgent(agentId);
  }

  /** A call that is made again until it is answered, as a careful client would. */
  async submit(n: string): Promise<void> {
    const body = { template: 'mark', args: { n }, idempotencyKey: n, notify: 'silent' };
    await until(
      async () => (await this.processes.api('POST', '/api/tasks', body).catch(() => undefined)) !== undefined,
      `${n} to be accepted`,
      60_000,
    );
  }

  async tasks(): Promise<TaskSeen[]> {
    const found: TaskSeen[] = [];
    for (let cursor = ''; ; ) {
      const page = await this.processes.api<{ tasks: TaskSeen[]; next?: string }>(
        'GET',
        `/api/tasks?limit=100${cursor}`,
      );
      found.push(...page.tasks);
      if (page.next === undefined) return found;
      cursor = `&cursor=${page.next}`;
    }
  }

  /** Stops the agents as an operator would. */
  async stopAgents(): Promise<void> {
    for (const child of this.#agents.values()) {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      await gone;
    }
  }

  /** Programs of this house that still run, by what they were started with. */
  async survivors(): Promise<string[]> {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
    return lines.filter((line) => line.includes(this.marks)).map((line) => line.replaceAll('\0', ' '));
  }

  async close(): Promise<void> {
    await this.processes.end();
    await this.telegram.stop();
  }

  async #startAgent(agentId: string): Promise<void> {
    const child = await this.processes.agent(agentId, this.#tokens.get(agentId)!, { AGENT_CONCURRENCY: '4' });
    this.#agents.set(agentId, child);
  }

  async #pair(chat: number): Promise<void> {
    this.telegram.userSends({ chat, user: chat, text: '/start' });
    const code = await until(
      () => /\b[0-9A-HJKMNP-TV-Z]{8}\b/.exec(this.telegram.botTexts(chat).join('\n'))?.[0],
      'a pairing code',
    );
    await this.processes.api('POST', '/api/access/pairings/approve', { code });
  }
}
