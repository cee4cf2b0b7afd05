import { AppError } from '../errors.ts';
import { randomToken, sha256 } from '../ids.ts';
import type { AgentTokenTable } from '../store/agent-tables.ts';
import type { Store } from '../store/store.ts';
import type { Tx } from '../store/tx.ts';
import { insertToken, markTokenUsed, revokeTokens, tokenByHash } from './queries.ts';
import type { AgentQuota } from './quota.ts';

/** What an agent token fixes: another agent's runs, effects and files are out of its reach. */
export interface AgentIdentity {
  agentId: string;
  pools: string[];
  labels: Record<string, string>;
}

export interface AgentTokensOptions {
  /** Absent: an agent may call as often as it likes. */
  quota?: AgentQuota;
  /** After credentials of this agent have stopped working: whoever waits with one is to be sent away. */
  onRevoked?(agentId: string): void;
}

/** Credentials of agents: random, only their hash is stored. */
export class AgentTokens {
  readonly #store: Store;
  readonly #options: AgentTokensOptions;
  readonly #known = new Map<string, AgentIdentity>();
  /** What a connection sent last, and its hash: agents send the same token with every request of a connection. */
  readonly #lastSent = new WeakMap<object, { token: string; hash: string }>();
  /** By which credential an identity was proved, and which of them were revoked while this process runs. */
  readonly #provedBy = new WeakMap<AgentIdentity, number>();
  readonly #revoked = new Set<number>();

  constructor(store: Store, options: AgentTokensOptions = {}) {
    this.#store = store;
    this.#options = options;
  }

  /** The token in clear, once. */
  async issue(identity: AgentIdentity): Promise<string> {
    return this.#store.transact('agent_token.issue', async (tx) => (await this.issueIn(tx, identity)).token);
  }

  /** As `issue`, in the caller's transaction. @param joinId the join that it is for: it replaces older ones when it is first used */
  async issueIn(tx: Tx, identity: AgentIdentity, joinId: number | null = null): Promise<{ id: number; token: string }> {
    const token = `agt_${randomToken(24)}`;
    const id = await tx.ids(1);
    await insertToken(tx, {
      id,
      token_hash: sha256(token),
      agent_id: identity.agentId,
      pools: JSON.stringify(identity.pools),
      labels: JSON.stringify(identity.labels),
      created_at: tx.now,
      revoked_at: null,
      used_at: null,
      join_id: joinId,
    });
    return { id, token };
  }

  /** All tokens of this agent stop working; answers how many. */
  async revoke(agentId: string): Promise<number> {
    return this.#store.transact('agent_token.revoke', (tx) => this.revokeIn(tx, agentId));
  }

  /** As `revoke`, in the caller's transaction. @param kept the id of one that goes on working */
  async revokeIn(tx: Tx, agentId: string, kept?: number): Promise<number> {
    const ids = await revokeTokens(tx, agentId, kept);
    tx.afterCommit(() => this.#forget(agentId, ids));
    return ids.length;
  }

  /** Whether the credential behind this identity has been revoked since it was presented: for calls that wait. */
  isRevoked(identity: AgentIdentity): boolean {
    return this.#revoked.has(this.#provedBy.get(identity) ?? 0);
  }

  /**
   * The lookup is by hash, so its time tells nothing about the token.
   * @param connection the one it came by, which saves hashing the same token again.
   * @throws AppError unauthorized; rate_limited where the agent calls too often
   */
  async identify(token: string | undefined, connection?: object): Promise<AgentIdentity> {
    if (!token) throw new AppError('unauthorized', 'an agent token is needed: Authorization: Bearer <token>');
    const hash = this.#hashOf(token, connection);
    const identity = this.#known.get(hash) ?? (await this.#lookUp(hash));
    this.#options.quota?.spend(identity.agentId);
    return identity;
  }

  async #lookUp(hash: string): Promise<AgentIdentity> {
    const row = (await this.#store.all(tokenByHash, { hash }))[0];
    if (!row) throw new AppError('unauthorized', 'this agent token is not valid');
    if (row.revoked_at !== null) throw revokedError(row.agent_id);
    if (row.used_at === null) await this.#firstUse(row);
    const identity: AgentIdentity = {
      agentId: row.agent_id,
      pools: JSON.parse(row.pools) as string[],
      labels: JSON.parse(row.labels) as Record<string, string>,
    };
    this.#provedBy.set(identity, row.id);
    // Revoked while it was read: what was read must not be remembered.
    if (this.#revoked.has(row.id)) throw revokedError(row.agent_id);
    if (this.#known.size > 10_000) this.#known.clear();
    this.#known.set(hash, identity);
    return identity;
  }

  /** Once in the life of a credential: from now on its join cannot be repeated, and it alone speaks for its agent. */
  async #firstUse({ id, agent_id, join_id }: AgentTokenTable): Promise<void> {
    await this.#store.transact('agent_token.first_use', async (tx) => {
      if (!(await markTokenUsed(tx, id))) throw revokedError(agent_id);
      if (join_id !== null) await this.revokeIn(tx, agent_id, id);
    });
  }

  #forget(agentId: string, ids: readonly number[]): void {
    if (ids.length === 0) return;
    for (const id of ids) this.#revoked.add(id);
    for (const [hash, identity] of this.#known) if (this.isRevoked(identity)) this.#known.delete(hash);
    this.#options.onRevoked?.(agentId);
  }

  #hashOf(token: string, connection: object | undefined): string {
    const last = connection && this.#lastSent.get(connection);
    if (last?.token === token) return last.hash;
    const hash = sha256(token);
    if (connection) this.#lastSent.set(connection, { token, hash });
    return hash;
  }
}

/** What a caller hears whose credential has been taken away. */
export function revokedError(agentId: string): AppError {
  return new AppError(
    'unauthorized',
    `this token of agent ${agentId} has been revoked; join again with a new join token`,
  );
}
