import { AppError } from '../errors.ts';
import { randomToken, sha256 } from '../ids.ts';
import { audit } from '../sessions/audit.ts';
import type { JoinTokenTable } from '../store/agent-tables.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import type { JoinAnswer, JoinRequest } from './join-protocol.ts';
import {
  deleteOldJoinTokens,
  deleteUnusedJoinTokens,
  endUnusedToken,
  insertJoinToken,
  isAgentKnown,
  joinTokenByHash,
  renewJoin,
  useJoinToken,
} from './join-queries.ts';
import type { AgentIdentity, AgentTokens } from './tokens.ts';

/** What a join token gives its bearer, once. */
export interface JoinGrant {
  /** Undefined: the machine names itself, by a name that no agent ever had. */
  agentId?: string | undefined;
  pools: string[];
  labels: Record<string, string>;
}

/** Lives of join tokens, milliseconds. */
export const JOIN_TTL_MS = { least: 1_000, default: 3_600_000, most: 7 * 86_400_000 } as const;
/** So long a join token is remembered after its end, to say what became of it. */
const KEPT_MS = 30 * 86_400_000;

/** Short-lived tokens that a new machine exchanges, once, for a credential of its own. Only their hashes are stored. */
export class JoinTokens {
  readonly #store: Store;
  readonly #tokens: AgentTokens;

  constructor(store: Store, tokens: AgentTokens) {
    this.#store = store;
    this.#tokens = tokens;
  }

  /** The token in clear, once; audited. @param ttlMs how long it may be used, milliseconds */
  async issue(grant: JoinGrant, ttlMs: number, actor: string): Promise<{ joinToken: string; expiresAt: number }> {
    const joinToken = `join_${randomToken(24)}`;
    const { agentId, pools, labels } = grant;
    return this.#store.transact('join_token.issue', async (tx) => {
      const expiresAt = tx.now + ttlMs;
      await deleteOldJoinTokens(tx, tx.now - KEPT_MS);
      await insertJoinToken(tx, {
        id: await tx.ids(1),
        token_hash: sha256(joinToken),
        agent_id: agentId ?? null,
        pools: JSON.stringify(pools),
        labels: JSON.stringify(labels),
        created_at: tx.now,
        expires_at: expiresAt,
        used_at: null,
        machine_hash: null,
        joined_agent_id: null,
        agent_token_id: null,
      });
      const target = agentId ?? `pools ${pools.join(',')}`;
      await audit(tx, { actor, action: 'join_token.issued', target, data: { pools, labels, expiresAt } });
      return { joinToken, expiresAt };
    });
  }

  /**
   * Exchanges a join token for an agent's own credential. Single use; but the machine that used it may ask again, with the key it
   * made up for this, as long as the token lives and nobody has presented the credential: then the first answer was lost.
   * @throws AppError unauthorized (unknown, expired), conflict (used, or the name is taken), forbidden (it names another agent),
   * invalid_request (nobody has named the agent)
   */
  async redeem(request: JoinRequest): Promise<JoinAnswer> {
    return this.#store.transact('join_token.redeem', async (tx) => {
      const row = (await tx.all(joinTokenByHash, { hash: sha256(request.joinToken) }))[0];
      if (!row) throw new AppError('unauthorized', 'this join token is not known here: was it copied whole?', FIELD);
      return row.used_at === null ? this.#first(tx, row, request) : this.#again(tx, row, request);
    });
  }

  /** Unused join tokens for this agent stop working, too, with all its credentials; audited. Undefined: there is no such agent. */
  async revokeAgent(agentId: string, actor: string): Promise<number | undefined> {
    return this.#store.transact('agent.revoke', async (tx) => {
      const invitations = await deleteUnusedJoinTokens(tx, agentId);
      if (invitations === 0 && !(await isAgentKnown(tx, agentId))) return undefined;
      const revoked = await this.#tokens.revokeIn(tx, agentId);
      await audit(tx, { actor, action: 'agent_token.revoked', target: agentId, data: { revoked, invitations } });
      return revoked;
    });
  }

  async #first(tx: Tx, row: JoinTokenTable, request: JoinRequest): Promise<JoinAnswer> {
    if (row.expires_at <= tx.now) {
      const at = new Date(row.expires_at).toISOString();
      throw new AppError('unauthorized', `this join token was good until ${at}; ask for a new one`, FIELD);
    }
    const agentId = await nameFor(tx, row, request);
    const identity = identityOf(row, agentId);
    const { id: agentTokenId, token } = await this.#tokens.issueIn(tx, identity, row.id);
    const machineHash = request.machineKey === undefined ? null : sha256(request.machineKey);
    if (!(await useJoinToken(tx, row.id, { machineHash, agentId, agentTokenId }))) throw usedUp(row);
    await this.#joined(tx, identity, row, false);
    return { ...identity, agentToken: token };
  }

  async #again(tx: Tx, row: JoinTokenTable, { machineKey, agentId }: JoinRequest): Promise<JoinAnswer> {
    const isSame =
      machineKey !== undefined &&
      row.machine_hash === sha256(machineKey) &&
      (agentId === undefined || agentId === row.joined_agent_id);
    if (!isSame || row.expires_at <= tx.now) throw usedUp(row);
    if (!(await endUnusedToken(tx, row.agent_token_id!))) throw usedUp(row);
    const identity = identityOf(row, row.joined_agent_id!);
    const { id, token } = await this.#tokens.issueIn(tx, identity, row.id);
    await renewJoin(tx, row.id, id);
    await this.#joined(tx, identity, row, true);
    return { ...identity, agentToken: token };
  }

  async #joined(tx: Tx, { agentId, pools, labels }: AgentIdentity, row: JoinTokenTable, repeated: boolean) {
    const data = { pools, labels, repeated, issuedAt: row.created_at };
    await audit(tx, { actor: `agent:${agentId}`, action: 'agent.joined', target: agentId, data });
  }
}

const FIELD = { field: 'joinToken' } as const;

function identityOf(row: JoinTokenTable, agentId: string): AgentIdentity {
  return {
    agentId,
    pools: JSON.parse(row.pools) as string[],
    labels: JSON.parse(row.labels) as Record<string, string>,
  };
}

/** The token's name for the agent, else the machine's own: then nobody may have had it, or a token for a pool would reach its agents. */
async function nameFor(tx: Tx, row: JoinTokenTable, { agentId, host }: JoinRequest): Promise<string> {
  const field = { field: 'agentId' };
  if (row.agent_id !== null) {
    if (agentId === undefined || agentId === row.agent_id) return row.agent_id;
    throw new AppError('forbidden', `this join token is for agent ${row.agent_id}, not for ${agentId}`, field);
  }
  const name = agentId ?? host;
  if (name === undefined)
    throw new AppError(
      'invalid_request',
      'agentId: must be given, since this join token is for no agent by name',
      field,
    );
  if (await isAgentKnown(tx, name)) {
    throw new AppError(
      'conflict',
      `there is an agent ${name} already: choose another id, or ask for a join token for this agent`,
      field,
    );
  }
  return name;
}

function usedUp(row: JoinTokenTable): AppError {
  const at = row.used_at === null ? '' : ` at ${new Date(row.used_at).toISOString()} by agent ${row.joined_agent_id}`;
  return new AppError('conflict', `this join token was used already${at}; ask for a new one`, FIELD);
}
