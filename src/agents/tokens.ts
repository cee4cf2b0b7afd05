import { AppError } from '../errors.ts';
import { randomToken, sha256 } from '../ids.ts';
import type { Store } from '../store/store.ts';
import { insertToken, revokeTokens, tokenByHash } from './queries.ts';

/** What an agent token fixes: another agent's runs, effects and files are out of its reach. */
export interface AgentIdentity {
  agentId: string;
  pools: string[];
  labels: Record<string, string>;
}

/** Credentials of agents: random, only their hash is stored. */
export class AgentTokens {
  readonly #store: Store;
  readonly #known = new Map<string, AgentIdentity>();
  /** What a connection sent last, and its hash: agents send the same token with every request of a connection. */
  readonly #lastSent = new WeakMap<object, { token: string; hash: string }>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** The token in clear, once. */
  async issue(identity: AgentIdentity): Promise<string> {
    const token = `agt_${randomToken(24)}`;
    await this.#store.transact('agent_token.issue', async (tx) =>
      insertToken(tx, {
        id: await tx.ids(1),
        token_hash: sha256(token),
        agent_id: identity.agentId,
        pools: JSON.stringify(identity.pools),
        labels: JSON.stringify(identity.labels),
        created_at: tx.now,
        revoked_at: null,
      }),
    );
    return token;
  }

  /** All tokens of this agent stop working. */
  async revoke(agentId: string): Promise<number> {
    const count = await this.#store.transact('agent_token.revoke', (tx) => revokeTokens(tx, agentId));
    this.#known.clear();
    return count;
  }

  /**
   * The lookup is by hash, so its time tells nothing about the token.
   * @param connection the one it came by, which saves hashing the same token again. @throws AppError unauthorized
   */
  async identify(token: string | undefined, connection?: object): Promise<AgentIdentity> {
    if (!token) throw new AppError('unauthorized', 'an agent token is needed: Authorization: Bearer <token>');
    const hash = this.#hashOf(token, connection);
    const known = this.#known.get(hash);
    if (known) return known;
    const row = (await this.#store.all(tokenByHash, { hash }))[0];
    if (!row) throw new AppError('unauthorized', 'this agent token is not valid');
    const identity: AgentIdentity = {
      agentId: row.agent_id,
      pools: JSON.parse(row.pools) as string[],
      labels: JSON.parse(row.labels) as Record<string, string>,
    };
    if (this.#known.size > 10_000) this.#known.clear();
    this.#known.set(hash, identity);
    return identity;
  }

  #hashOf(token: string, connection: object | undefined): string {
    const last = connection && this.#lastSent.get(connection);
    if (last?.token === token) return last.hash;
    const hash = sha256(token);
    if (connection) this.#lastSent.set(connection, { token, hash });
    return hash;
  }
}
