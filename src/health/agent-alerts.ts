import type { Clock } from '../clock.ts';
import type { Log } from '../log.ts';
import type { NewMessage } from '../outbox/message.ts';
import { Poller, type Service } from '../service.ts';
import { type Lang, langOf } from '../sessions/lang.ts';
import { getSession, type Session } from '../sessions/sessions.ts';
import type { Store } from '../store/store.ts';
import type { Reader, Tx } from '../store/tx.ts';
import { type AlertPlan, backText, offlineText, planOf, type Told } from './alert-words.ts';
import { type AlertRow, alertStates, deleteAlerts, insertAlerts, markBack } from './queries.ts';

export interface AgentAlertsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  outbox: { enqueue(tx: Tx, messages: readonly NewMessage[]): Promise<void> };
  /** ERRAND_ALERT_SESSIONS: whose conversations are told. */
  sessionKeys: readonly string[];
  /** ERRAND_LANG. */
  lang: 'auto' | Lang;
  /** Monotonic milliseconds; injectable for tests. */
  monotonic?: () => number;
}

const LOOK_MS = 5_000;
const RETRY_MS = 10_000;

/**
 * Tells people that agents have gone away and come back: once each, whatever crashes. That people believe an agent to be away is a
 * row; it and the message are one transaction. An agent that is back is told of after two minutes without another absence.
 */
export class AgentAlerts implements Service {
  readonly #options: AgentAlertsOptions;
  readonly #poller: Poller;
  readonly #monotonic: () => number;
  /** Since when this process has seen an agent away without a break, by its own clock. */
  #awaySince = new Map<string, number>();
  /** Conversations that have never spoken, as far as this process has seen; undefined before its first look. */
  #silent: Set<string> | undefined;

  constructor(options: AgentAlertsOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
    this.#poller = new Poller({
      runOnce: async () => {
        await this.lookOnce();
        return LOOK_MS;
      },
      onError: (error) => {
        options.log.error('alerts.failed', { error });
        return RETRY_MS;
      },
    });
  }

  async start(): Promise<void> {
    if (this.#options.sessionKeys.length > 0) await this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  async lookOnce(): Promise<void> {
    const { store } = this.#options;
    await this.#welcome();
    const seen = await store.all(alertStates, {});
    this.#watch(seen);
    if (isNothing(this.#plan(seen, this.#options.clock.now()))) return;
    await store.transact('health.alerts', async (tx) => {
      // Read again: what was true a moment ago may have changed.
      const plan = this.#plan(await tx.all(alertStates, {}), tx.now);
      if (!isNothing(plan)) await this.#carryOut(tx, plan);
    });
  }

  /** A conversation that speaks for the first time hears of the agents that the others believe to be away. */
  async #welcome(): Promise<void> {
    const { store, sessionKeys, log } = this.#options;
    if (this.#silent?.size === 0) return;
    const known = await this.#known(store, [...(this.#silent ?? sessionKeys)]);
    const keys = new Set(known.map(({ sessionKey }) => sessionKey));
    if (this.#silent === undefined) {
      this.#silent = new Set(sessionKeys.filter((key) => !keys.has(key)));
      const advice = 'ERRAND_ALERT_SESSIONS names a conversation that never spoke; say anything there once';
      for (const sessionKey of this.#silent) log.warn('alerts.session_unknown', { sessionKey, advice });
    } else if (known.length > 0) {
      await store.transact('health.alerts_welcome', async (tx) => {
        const agents = (await tx.all(alertStates, {})).flatMap(toldAway);
        if (agents.length > 0) await this.#tell(tx, known, agents, offlineText);
      });
      for (const key of keys) this.#silent.delete(key);
    }
  }

  #watch(rows: readonly AlertRow[]): void {
    const since = new Map<string, number>();
    for (const { agent_id, offline_at } of rows)
      if (offline_at !== null) since.set(agent_id, this.#awaySince.get(agent_id) ?? this.#monotonic());
    this.#awaySince = since;
  }

  #plan(rows: readonly AlertRow[], now: number): AlertPlan {
    const at = this.#monotonic();
    return planOf(rows, now, (agentId) => at - (this.#awaySince.get(agentId) ?? at));
  }

  /** While none of the conversations has spoken nothing counts as told: the first that speaks hears of everything. */
  async #carryOut(tx: Tx, { away, returned, back, gone }: AlertPlan): Promise<void> {
    const speaking = this.#options.sessionKeys.filter((key) => !this.#silent?.has(key));
    const homes = await this.#known(tx, speaking);
    if (returned.length + gone.length > 0)
      await tx.run(markBack, {
        rows: [...returned.map((agentId) => [agentId, tx.now]), ...gone.map((agentId) => [agentId, null])],
      });
    if (away.length > 0 && homes.length > 0) {
      const rows = away.map(({ agentId, offlineAt }) => [agentId, offlineAt]);
      const told = new Set((await tx.all(insertAlerts, { rows, now: tx.now })).map(({ agent_id }) => agent_id));
      await this.#tell(
        tx,
        homes,
        away.filter(({ agentId }) => told.has(agentId)),
        offlineText,
      );
    }
    if (back.length > 0 && homes.length > 0) {
      const rows = await tx.all(deleteAlerts, { rows: back.map((agentId) => [agentId]) });
      await this.#tell(
        tx,
        homes,
        rows.map(({ agent_id, offline_at }) => ({ agentId: agent_id, offlineAt: offline_at, seenAt: null })),
        backText,
      );
    }
  }

  /** Those of the conversations that have spoken: the way to the others is not known. */
  async #known(reader: Reader, sessionKeys: readonly string[]): Promise<Session[]> {
    const sessions: Session[] = [];
    for (const sessionKey of sessionKeys) {
      const session = await getSession(reader, sessionKey);
      if (session) sessions.push(session);
    }
    return sessions;
  }

  async #tell(
    tx: Tx,
    homes: readonly Session[],
    agents: readonly Told[],
    textOf: (lang: Lang, agents: readonly Told[], now: number) => string,
  ): Promise<void> {
    const { outbox, lang, log } = this.#options;
    const messages = homes.map((home): NewMessage => {
      const text = textOf(langOf(home, '', lang), agents, tx.now);
      return { route: home.route, sessionKey: home.sessionKey, kind: 'notice', text };
    });
    await outbox.enqueue(tx, messages);
    tx.afterCommit(() => log.info('alerts.told', { agents: agents.map(({ agentId }) => agentId) }));
  }
}

const isNothing = ({ away, returned, back, gone }: AlertPlan) =>
  away.length + returned.length + back.length + gone.length === 0;

/** What people were told of this agent and still holds. */
function toldAway({ agent_id: agentId, told_at, offline_at: offlineAt, last_seen_at: seenAt }: AlertRow): Told[] {
  return told_at === null || offlineAt === null ? [] : [{ agentId, offlineAt, seenAt }];
}
