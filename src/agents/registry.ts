import type { Clock } from '../clock.ts';
import { AppError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';
import type { Reader, Tx } from '../store/tx.ts';
import type { WhyAgent } from '../tasks/explain-facts.ts';
import { type ReportOutcome, type RunReport, reportRuns } from '../tasks/report.ts';
import { loseOtherInstances } from '../tasks/sweep.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { RegisterRequest } from './protocol.ts';
import { activeRunCounts, agentById, allDrains, listAgents, markOffline, touchAgents, upsertAgent } from './queries.ts';
import { drainFrom, Roster } from './roster.ts';
import { heldBack, type MachineLoad, newStanding, type Standing, shortageOf } from './standing.ts';
import { type AgentIdentity, revokedError } from './tokens.ts';

/** One live instance of an agent, as this gateway knows it. */
export interface AgentInstance {
  agentId: string;
  instanceId: string;
  pools: string[];
  labels: Record<string, string>;
  runtimes: string[];
  readonly standing: Standing;
  /** Runs on the gateway's own machine. */
  readonly isLocal: boolean;
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
  /** As it is now; not to be changed. */
  readonly standing: Readonly<Standing>;
}

export interface RegistryOptions {
  store: Store;
  clock: Clock;
  log: Log;
  emit: Emit<TaskEvent>;
  offlineMs: number;
  /** Of the gateway's machine; absent: no agent runs there. */
  bootId?: string;
  /** Whether a credential has been taken away while its bearer waited; absent: none ever is. */
  isRevoked?(identity: AgentIdentity): boolean;
}

/** Which agents there are, which instance of each is the valid one, and when it was last heard of (by the server's clock). */
export class AgentRegistry {
  /** Everybody, in memory. */
  readonly roster = new Roster();
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
      standing: await this.roster.standingOf(store, identity.agentId),
      isLocal: this.#isLocal(request.bootId),
    };
    const outcomes = await store.transact('agent.register', async (tx) => {
      const results = reports.length === 0 ? [] : await reportRuns(tx, reports, emit);
      const lost = await loseOtherInstances(tx, identity.agentId, request.instanceId, emit);
      await upsertAgent(tx, agentRow(instance, request, tx.now));
      tx.afterCommit(() => {
        this.#entered(instance, tx.now);
        log.info('agent.registered', { agentId: identity.agentId, pools: instance.pools, requeued: lost });
      });
      return results;
    });
    this.contact(instance, null);
    return outcomes;
  }

  /**
   * @throws AppError session_replaced for an instance that is not the valid one, conflict for an agent that has not registered,
   * unauthorized where its credential was revoked meanwhile
   */
  async instance(identity: AgentIdentity, agentId: string, instanceId: string): Promise<AgentInstance> {
    if (identity.agentId !== agentId)
      throw new AppError('forbidden', `this token belongs to agent ${identity.agentId}`, { field: 'agentId' });
    if (this.#options.isRevoked?.(identity)) throw revokedError(agentId);
    let instance = this.#instances.get(agentId);
    if (!instance) instance = await this.#load(agentId, identity);
    if (instance.instanceId !== instanceId)
      throw new AppError('session_replaced', `agent ${agentId} was registered by another instance`);
    return instance;
  }

  /** Any call of an agent is a sign of life. Written to its row with the next sweep. */
  contact(instance: Pick<AgentInstance, 'agentId' | 'instanceId'>, load: number | null): void {
    const known = this.#contacts.get(instance.agentId);
    this.#contacts.set(instance.agentId, {
      instanceId: instance.instanceId,
      at: this.#options.clock.now(),
      load: load ?? known?.load ?? null,
    });
  }

  /** A heartbeat, with what it says of its machine. An agent beside the gateway is never held back by it: docs/agents.md says why. */
  heard(instance: AgentInstance, machine: MachineLoad): void {
    this.contact(instance, machine.load);
    const { standing, agentId } = instance;
    const before = standing.shortage;
    standing.machine = machine;
    standing.stoppedAt = null;
    standing.shortage = instance.isLocal ? null : shortageOf(machine, before);
    if (standing.shortage === before) return;
    this.roster.changed();
    this.#options.log.warn(standing.shortage ? 'agent.overloaded' : 'agent.recovered', {
      agentId,
      shortage: standing.shortage ?? before,
      ...machine,
    });
  }

  /** The instance has said that it ends: nothing is given to it any more. */
  stopped(instance: AgentInstance): void {
    instance.standing.stoppedAt = this.#options.clock.now();
    this.roster.changed();
    this.#options.log.info('agent.stopped', { agentId: instance.agentId });
  }

  /** Writes the contacts and marks who has gone offline; answers their ids. */
  async flush(tx: Tx): Promise<string[]> {
    const written = [...this.#contacts];
    const rows = written.map(([agentId, contact]) => [agentId, contact.instanceId, contact.at, contact.load]);
    if (rows.length > 0) await tx.run(touchAgents, { rows });
    tx.afterCommit(() => {
      for (const [agentId, { at }] of written) this.roster.seen(agentId, at);
      for (const [agentId, contact] of written)
        if (this.#contacts.get(agentId) === contact) this.#contacts.delete(agentId);
    });
    const gone = await tx.all(markOffline, { before: tx.now - this.#options.offlineMs, now: tx.now });
    return gone.map((row) => row.agent_id);
  }

  /** @param reader the transaction of the caller, where there is one */
  async list(reader: Reader = this.#options.store): Promise<AgentView[]> {
    const active = new Map((await activeRunCounts(reader)).map((row) => [row.agent_id, row.count]));
    const drains = new Map((await reader.all(allDrains, {})).map((row) => [row.agent_id, drainFrom(row)]));
    return (await listAgents(reader)).map((row) => {
      const lastSeenAt = Math.max(row.last_seen_at, this.#contacts.get(row.agent_id)?.at ?? 0);
      const known = this.roster.get(row.agent_id)?.standing ?? newStanding(null);
      return {
        agentId: row.agent_id,
        online: this.#isOnline(known, lastSeenAt),
        lastSeenAt,
        version: row.version,
        host: row.host,
        pools: JSON.parse(row.pools) as string[],
        labels: JSON.parse(row.labels) as Record<string, string>,
        runtimes: JSON.parse(row.runtimes) as string[],
        concurrency: row.concurrency,
        load: row.load,
        activeRuns: active.get(row.agent_id) ?? 0,
        standing: { ...known, drain: drains.get(row.agent_id) ?? null },
      };
    });
  }

  /** Everybody as memory knows him, each as if he had room; for hints. */
  agents(): WhyAgent[] {
    return [...this.roster.all()].map((agent) => {
      const lastSeenAt = Math.max(agent.lastSeenAt, this.#contacts.get(agent.agentId)?.at ?? 0);
      const online = this.#isOnline(agent.standing, lastSeenAt);
      return { ...agent, lastSeenAt, online, freeSlots: 1, ...heldBack(agent.standing) };
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
      standing: await this.roster.standingOf(this.#options.store, agentId),
      isLocal: this.#isLocal(row.boot_id),
    };
    // A register may have been committed while the row was read: its instance is newer and stays.
    const newer = this.#instances.get(agentId);
    if (newer) return newer;
    this.#remember(instance, row.last_seen_at);
    return instance;
  }

  /** A new process: what an earlier one said of itself is over. */
  #entered(instance: AgentInstance, at: number): void {
    Object.assign(instance.standing, { machine: null, shortage: null, stoppedAt: null });
    this.#remember(instance, at);
  }

  #remember(instance: AgentInstance, lastSeenAt: number): void {
    const { agentId, pools, labels, runtimes, standing } = instance;
    this.#instances.set(agentId, instance);
    this.roster.entered({ agentId, pools, labels, runtimes, lastSeenAt, standing });
  }

  #isOnline({ stoppedAt }: Standing, lastSeenAt: number): boolean {
    const { clock, offlineMs } = this.#options;
    return stoppedAt === null && clock.now() - lastSeenAt < offlineMs;
  }

  #isLocal(bootId: string): boolean {
    return bootId !== 'unknown' && bootId === this.#options.bootId;
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
