import { hostname } from 'node:os';
import type { AgentSettings } from '../../config/agent.ts';
import type { Log } from '../../log.ts';
import { PROTOCOL_VERSION, type RegisterAnswer, TERMINAL_REPORTS } from '../protocol.ts';
import { CallFailed, type GatewayClient } from './client.ts';
import type { Outgoing } from './outgoing.ts';
import type { ReportSender } from './report-sender.ts';

export interface RegistrationOptions {
  settings: AgentSettings;
  runtimes: readonly string[];
  version: string;
  bootId: string;
  caller: string;
  client: GatewayClient;
  sender: ReportSender;
  log: Log;
  /** Unsent reports of an earlier instance. */
  leftovers: readonly Outgoing[];
  onRegistered(answer: RegisterAnswer): void;
}

const MAX_REPORTS = 1_000;
const MAX_BYTES = 4 * 1024 * 1024;

/**
 * Makes this instance known. What an earlier instance left unsent travels inside the call, because the gateway puts that instance's
 * runs back into the queue right afterwards (trap 1).
 */
export class Registration {
  readonly #options: RegistrationOptions;
  #leftovers: readonly Outgoing[];
  #isDone = false;

  constructor(options: RegistrationOptions) {
    this.#options = options;
    this.#leftovers = options.leftovers;
  }

  get isDone(): boolean {
    return this.#isDone;
  }

  /** The gateway does not know us any more: the next `ensure` registers again. */
  forget(): void {
    this.#isDone = false;
  }

  /** @throws CallFailed */
  async ensure(signal: AbortSignal): Promise<void> {
    if (this.#isDone) return;
    const { sender, onRegistered, log } = this.#options;
    const { answer, carried } = await this.#register(fitting(this.#leftovers), signal);
    const later = this.#leftovers.filter((item) => !carried.includes(item));
    this.#isDone = true;
    this.#leftovers = [];
    log.info('agent.registered', { agentId: this.#options.settings.agentId, broughtReports: carried.length });
    onRegistered(answer);
    await sender.settle(carried, answer.results ?? []);
    for (const item of later) sender.push(item);
    sender.open();
  }

  async #register(carried: readonly Outgoing[], signal: AbortSignal): Promise<Registered> {
    const post = (reports: readonly Outgoing[]) =>
      this.#options.client.post<RegisterAnswer>('/api/agent/register', this.#body(reports), { signal });
    try {
      return { answer: await post(carried), carried };
    } catch (error) {
      const mayBeReports = error instanceof CallFailed && error.verdict === 'refused' && carried.length > 0;
      if (!mayBeReports) throw error;
      // One report that the gateway cannot read must not keep the agent away for ever; the sender finds out which one it is.
      return { answer: await post([]), carried: [] };
    }
  }

  #body(carried: readonly Outgoing[]): string {
    const { settings, caller, version, bootId, runtimes } = this.#options;
    const rest = JSON.stringify({
      bootId,
      version,
      protocol: PROTOCOL_VERSION,
      host: hostname().slice(0, 255),
      pools: settings.pools,
      labels: settings.labels,
      runtimes,
      concurrency: settings.concurrency,
    });
    const reports = carried.length > 0 ? `,"reports":[${carried.map((item) => item.json).join(',')}]` : '';
    return `{${caller}${reports},${rest.slice(1)}`;
  }
}

interface Registered {
  answer: RegisterAnswer;
  /** The reports that travelled in the call. */
  carried: readonly Outgoing[];
}

/** As many as one call takes, ends of runs before checkpoints; in their own order. */
function fitting(items: readonly Outgoing[]): Outgoing[] {
  const chosen = new Set<Outgoing>();
  let bytes = 0;
  const endsFirst = [...items].sort(
    (a, b) => Number(TERMINAL_REPORTS.has(b.type)) - Number(TERMINAL_REPORTS.has(a.type)),
  );
  for (const item of endsFirst) {
    if (chosen.size >= MAX_REPORTS || bytes + item.bytes > MAX_BYTES) continue;
    chosen.add(item);
    bytes += item.bytes;
  }
  return items.filter((item) => chosen.has(item));
}
