import type { Clock } from '../clock.ts';
import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';
import type { Reader, Tx } from '../store/tx.ts';
import { type ReportOutcome, type RunReport, reportRuns } from '../tasks/report.ts';
import { loseOtherInstances } from '../tasks/sweep.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { RegisterRequest } from './protocol.ts';
import { activeRunCounts, agentById, listAgents, markOffline, touchAgents, upsertAgent } from './queries.ts';
import type { AgentIdentity } from './tokens.ts';

/** One live instance of an agent, as this gateway knows it. */
export interface AgentInstance {
  agentId: string;
  instanceId: string;
  pools: string[];
  labels: Record<string, string>;
  runtimes: string[];
}

export interface AgentView {
  agentId: string;
  online: boolean;
  lastSeenAt: number;
  version: string;
  host: string;
  pools: string[];
  labels: Record<string, string>;
  runtimes: string[];
  concurrency: number;
  load: number | null;
  activeRuns: number;
}

export interface RegistryOptions {
  store: Store;
  clock: Clock;
  log: Log;
  emit: Emit<TaskEvent>;
  offlineMs: number;
}

/** Which agents there are, which instance of each is the valid one, and when it was last heard of (by the server's clock). */
export class AgentRegistry {
  readonly #options: RegistryOptions;
  readonly #instances = new Map<string, AgentInstance>();
  readonly #contacts = new Map<string, { instanceId: string; at: number; load: number | null }>();

  constructor(options: RegistryOptions) {
    this.#options = options;
  }

  /**
   * Makes this instance the valid one, in one transaction: its spooled reports are applied first, then what older instances still
   * hold is re-queued (trap 1).
   */
  async register(
    identity: AgentIdentity,
    request: RegisterRequest,
    reports: readonly RunReport[],
  ): Promise<ReportOutcome[]> {
    if (identity.agentId !== request.agentId) {
      throw new AppError('forbidden', `this token belongs to agent ${identity.agentId}`, { field: 'agentId' });
    }
    const { store, emit, log } = this.#options;
    const instance: AgentInstance = {
      agentId: identity.agentId,
      instanceId: request.instanceId,
      pools: identity.pools,
      labels: identity.labels,
      runtimes: request.runtimes,
    };
    const outcomes = await store.transact('agent.register', async (tx) => {
      const results = reports.length === 0 ? [] : await reportRuns(tx, reports, emit);
      const lost = await loseOtherInstances(tx, identity.agentId, request.instanceId, emit);
      await upsertAgent(tx, agentRow(instance, request, tx.now));
      tx.afterCommit(() => {
        this.#instances.set(identity.agentId, instance);
        log.info('agent.registered', { agentId: identity.agentId, pools: instance.pools, requeued: lost });
      });
      return results;
    });
    this.contact(instance, null);
    return outcomes;
  }

  /** @throws AppError session_replaced for an instance that is not the valid one, conflict for an agent that has not registered. */
  async instance(identity: AgentIdentity, agentId: string, instanceId: string): Promise<AgentInstance> {
    if (identity.agentId !== agentId)
      throw new AppError('forbidden', `this token belongs to agent ${identity.agentId}`, { field: 'agentId' });
    let instance = this.#instances.get(agentId);
    if (!instance) instance = await this.#load(agentId, identity);
    if (instance.instanceId !== instanceId)
      throw new AppError('session_replaced', `agent ${agentId} was registered by another instance`);
    return instance;
  }

  /** Any call of an agent is a sign of life. Written to its row with the next sweep. */
  contact(instance: AgentInstance, load: number | null): void {
    const known = this.#contacts.get(instance.agentId);
    this.#contacts.set(instance.agentId, {
      instanceId: instance.instanceId,
      at: this.#options.clock.now(),
      load: load ?? known?.load ?? null,
    });
  }

  /** Writes the contacts and marks who has gone offline; answers their ids. */
  async flush(tx: Tx): Promise<string[]> {
    const written = [...this.#contacts];
    const rows = written.map(([agentId, contact]) => [agentId, contact.instanceId, contact.at, contact.load]);
    if (rows.length > 0) await tx.run(touchAgents, { rows });
    tx.afterCommit(() => {
      for (const [agentId, contact] of written)
        if (this.#contacts.get(agentId) === contact) this.#contacts.delete(agentId);
    });
    const gone = await tx.all(markOffline, { before: tx.now - this.#options.offlineMs, now: tx.now });
    return gone.map((row) => row.agent_id);
  }

  /** @param reader the transaction of the caller, where there is one */
  async list(reader: Reader = this.#options.store): Promise<AgentView[]> {
    const { clock, offlineMs } = this.#options;
    const active = new Map((await activeRunCounts(reader)).map((row) => [row.agent_id, row.count]));
    return (await listAgents(reader)).map((row) => {
      const lastSeenAt = Math.max(row.last_seen_at, this.#contacts.get(row.agent_id)?.at ?? 0);
      return {
        agentId: row.agent_id,
        online: clock.now() - lastSeenAt < offlineMs,
        lastSeenAt,
        version: row.version,
        host: row.host,
        pools: JSON.parse(row.pools) as string[],
        labels: JSON.parse(row.labels) as Record<string, string>,
        runtimes: JSON.parse(row.runtimes) as string[],
        concurrency: row.concurrency,
        load: row.load,
        activeRuns: active.get(row.agent_id) ?? 0,
      };
    });
  }

  /** After a restart of the gateway the stored instance goes on without registering again. */
  async #load(agentId: string, identity: AgentIdentity): Promise<AgentInstance> {
    const row = (await this.#options.store.all(agentById, { id: agentId }))[0];
    if (!row) throw new AppError('conflict', `agent ${agentId} has to register first`);
    const instance: AgentInstance = {
      agentId,
      instanceId: row.instance_id,
      pools: identity.pools,
      labels: identity.labels,
      runtimes: JSON.parse(row.runtimes) as string[],
    };
    // A register may have been committed while the row was read: its instance is newer and stays.
    const newer = this.#instances.get(agentId);
    if (newer) return newer;
    this.#instances.set(agentId, instance);
    return instance;
  }
}

function agentRow(instance: AgentInstance, request: RegisterRequest, now: number) {
  return {
    agent_id: instance.agentId,
    instance_id: instance.instanceId,
    boot_id: request.bootId,
    version: request.version,
    host: request.host,
    pools: JSON.stringify(instance.pools),
    labels: JSON.stringify(instance.labels),
    runtimes: JSON.stringify(instance.runtimes),
    concurrency: request.concurrency,
    load: null,
    registered_at: now,
    last_seen_at: now,
    offline_at: null,
  };
}
