import type { AgentDrainTable } from '../store/agent-tables.ts';
import type { Reader } from '../store/tx.ts';
import { allDrains, drainOf, listAgents } from './queries.ts';
import { type AgentDrain, newStanding, type Standing } from './standing.ts';

/** An agent that has registered, whether or not it is there. */
export interface KnownAgent {
  readonly agentId: string;
  pools: readonly string[];
  labels: Readonly<Record<string, string>>;
  runtimes: readonly string[];
  /** As far as the last sweep, epoch milliseconds. */
  lastSeenAt: number;
  readonly standing: Standing;
}

/** All agents in memory, for what must be answered without reading a row. */
export class Roster {
  readonly #agents = new Map<string, KnownAgent>();
  #changes = 0;

  /** Reads what earlier processes have written. Who registers meanwhile is newer and stays. */
  async load(reader: Reader): Promise<void> {
    const drains = new Map((await reader.all(allDrains, {})).map((row) => [row.agent_id, drainFrom(row)]));
    for (const row of await listAgents(reader)) {
      if (this.#agents.has(row.agent_id)) continue;
      this.#put({
        agentId: row.agent_id,
        pools: JSON.parse(row.pools) as string[],
        labels: JSON.parse(row.labels) as Record<string, string>,
        runtimes: JSON.parse(row.runtimes) as string[],
        lastSeenAt: row.last_seen_at,
        standing: newStanding(drains.get(row.agent_id) ?? null),
      });
    }
  }

  /** Rises with everything that decides who may take what, except for time. */
  get changes(): number {
    return this.#changes;
  }

  all(): Iterable<KnownAgent> {
    return this.#agents.values();
  }

  get(agentId: string): KnownAgent | undefined {
    return this.#agents.get(agentId);
  }

  /** Of one that is not known yet its drain is read. */
  async standingOf(reader: Reader, agentId: string): Promise<Standing> {
    const known = this.#agents.get(agentId);
    if (known) return known.standing;
    const [row] = await reader.all(drainOf, { agent: agentId });
    return this.#agents.get(agentId)?.standing ?? newStanding(row ? drainFrom(row) : null);
  }

  /** It has registered, or is known again after a restart. */
  entered(agent: KnownAgent): void {
    this.#put(agent);
  }

  seen(agentId: string, at: number): void {
    const known = this.#agents.get(agentId);
    if (known && at > known.lastSeenAt) known.lastSeenAt = at;
  }

  /** A standing has been changed. */
  changed(): void {
    this.#changes += 1;
  }

  #put(agent: KnownAgent): void {
    this.#agents.set(agent.agentId, agent);
    this.#changes += 1;
  }
}

export function drainFrom({ at, by, why }: AgentDrainTable): AgentDrain {
  return { at, by, why };
}
