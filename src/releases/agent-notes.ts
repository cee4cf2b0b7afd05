import type { HeartbeatRequest, UpgradeStatus } from '../agents/protocol.ts';
import type { Log } from '../log.ts';
import { audit } from '../sessions/audit.ts';
import type { AgentNoteTable } from '../store/release-tables.ts';
import type { Store } from '../store/store.ts';
import { isNewerVersion } from '../version.ts';
import { allNotes, upsertNote } from './queries.ts';

/** What an agent tells besides its runs. */
export interface AgentNote {
  deadReports: { count: number; reason?: string } | undefined;
  upgrade: UpgradeStatus | undefined;
}

type Told = Pick<HeartbeatRequest, 'version' | 'deadReports' | 'upgrade'>;

/**
 * What agents tell in their heartbeats for a person to see. Kept in memory and, where it has changed, in a row, so that the next start
 * knows it and an upgrade that failed is entered once into the audit however often it is told.
 */
export class AgentNotes {
  readonly #store: Store;
  readonly #log: Log;
  readonly #known = new Map<string, AgentNoteTable>();

  constructor(store: Store, log: Log) {
    this.#store = store;
    this.#log = log;
  }

  async load(): Promise<void> {
    for (const row of await allNotes(this.#store)) this.#known.set(row.agent_id, row);
  }

  of(agentId: string): AgentNote {
    const row = this.#known.get(agentId);
    return {
      deadReports: row && row.dead_count > 0 ? { count: row.dead_count, ...reasonOf(row.dead_reason) } : undefined,
      upgrade: row && upgradeOf(row),
    };
  }

  /** Costs nothing while nothing changes. What cannot be written is told again by the next heartbeat. */
  async hear(agentId: string, told: Told): Promise<void> {
    const before = this.#known.get(agentId);
    const row = rowOf(agentId, { ...told, upgrade: told.upgrade ?? keptFailure(before, told.version) });
    if (before ? isSame(before, row) : isNothing(row)) return;
    const isNewFailure = row.upgrade_state === 'failed' && !isSameUpgrade(before, row);
    await this.#store.transact('agent.note', async (tx) => {
      const stored = { ...row, at: tx.now };
      await tx.run(upsertNote, { rows: [COLUMNS.map((column) => stored[column])] });
      if (isNewFailure) await audit(tx, failureOf(row));
      tx.afterCommit(() => this.#known.set(agentId, stored));
    });
    if (isNewFailure) this.#log.error('agent.upgrade_failed', { agentId, ...upgradeOf(row) });
    if (row.dead_count > (before?.dead_count ?? 0))
      this.#log.error('agent.dead_reports', { agentId, count: row.dead_count, reason: row.dead_reason });
  }
}

const COLUMNS = [
  'agent_id',
  'dead_count',
  'dead_reason',
  'upgrade_version',
  'upgrade_state',
  'upgrade_tries',
  'upgrade_reason',
  'at',
] as const satisfies readonly (keyof AgentNoteTable)[];

/** After its start, and with its last word, an agent has nothing to tell; that it failed before still holds, unless it has got there by other means. */
function keptFailure(before: AgentNoteTable | undefined, version: string | undefined): UpgradeStatus | undefined {
  const upgrade = before && upgradeOf(before);
  const isOpen = upgrade?.state === 'failed' && (version === undefined || isNewerVersion(upgrade.version, version));
  return isOpen ? upgrade : undefined;
}

function rowOf(agentId: string, { deadReports, upgrade }: Told): AgentNoteTable {
  return {
    agent_id: agentId,
    dead_count: deadReports?.count ?? 0,
    dead_reason: printable(deadReports?.reason),
    upgrade_version: upgrade?.version ?? null,
    upgrade_state: upgrade?.state ?? null,
    upgrade_tries: upgrade?.tries ?? null,
    upgrade_reason: printable(upgrade?.reason),
    at: 0,
  };
}

/** An agent's words are not to be trusted: no broken characters for the store, none that steer a terminal. */
function printable(text: string | undefined): string | null {
  return text === undefined ? null : text.toWellFormed().replace(/[\u0000-\u001f\u007f]/g, ' ');
}

function isSame(a: AgentNoteTable, b: AgentNoteTable): boolean {
  return COLUMNS.every((column) => column === 'at' || a[column] === b[column]);
}

function isSameUpgrade(before: AgentNoteTable | undefined, row: AgentNoteTable): boolean {
  return before?.upgrade_state === row.upgrade_state && before.upgrade_version === row.upgrade_version;
}

function isNothing(row: AgentNoteTable): boolean {
  return row.dead_count === 0 && row.upgrade_state === null;
}

function upgradeOf(row: AgentNoteTable): UpgradeStatus | undefined {
  const { upgrade_version: version, upgrade_state: state, upgrade_tries: tries } = row;
  if (version === null || state === null) return undefined;
  return { version, state: state as UpgradeStatus['state'], tries: tries ?? 0, ...reasonOf(row.upgrade_reason) };
}

function reasonOf(reason: string | null): { reason?: string } {
  return reason === null ? {} : { reason };
}

function failureOf(row: AgentNoteTable) {
  const data = { version: row.upgrade_version, tries: row.upgrade_tries, reason: row.upgrade_reason };
  return { actor: `agent:${row.agent_id}`, action: 'agent.upgrade_failed', target: row.agent_id, data };
}
