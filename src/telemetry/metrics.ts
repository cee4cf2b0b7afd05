import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';

/** What is measured at a scrape. Names in maps are states, never ids, users or texts: the number of series stays what it is. */
export interface Figures {
  /** Epoch milliseconds of the reading; ages are counted from it. */
  readonly now: number;
  /** Tasks that are not over, by state. */
  readonly tasks: ReadonlyMap<string, number>;
  /** Tasks that ended since this process started, by final state. */
  readonly finished: ReadonlyMap<string, number>;
  /** Messages of people who may not, since this process started, by reason. */
  readonly refused: ReadonlyMap<string, number>;
  /** Messages that are not `sent` or `superseded`, by state. */
  readonly outbox: ReadonlyMap<string, number>;
  /** Messages that nobody has worked off. */
  readonly inboxNew: number;
  /** When the oldest of each was due, epoch milliseconds; null where nothing waits. */
  readonly oldest: { readonly task: number | null; readonly outbox: number | null; readonly inbox: number | null };
  /** Of the breakers of loaded templates, by name: 0 closed, 1 half-open, 2 open. */
  readonly breakers: ReadonlyMap<string, number>;
  /** Since when a task of the lane has been due that nobody took, epoch milliseconds; null where none waits. Named lanes only. */
  readonly lanes: ReadonlyMap<string, number | null>;
  readonly agents: { readonly online: number; readonly offline: number };
  /** Agents that wait for work. */
  readonly parkedPulls: number;
  readonly store: {
    readonly transactions: number;
    readonly units: number;
    readonly rollbacks: number;
    readonly walBytes: number;
  };
}

/** The closed sets that labels come from. */
export interface MetricLabels {
  readonly liveStates: readonly string[];
  readonly finalStates: readonly string[];
  readonly outboxStates: readonly string[];
  readonly refusals: readonly string[];
}

export interface Metrics {
  readonly contentType: string;
  /** The text of `/metrics`. */
  text(figures: Figures): Promise<string>;
}

/** Metrics of one gateway, in a registry of their own, with those of the process (CPU, memory, event-loop lag, GC). */
export function createMetrics(version: string, labels: MetricLabels): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  gauge(registry, 'errand_info', 'Always 1; the label is the version.', ['version']).set({ version }, 1);
  const write = [
    taskSeries(registry, labels),
    messageSeries(registry, labels),
    peerSeries(registry),
    storeSeries(registry),
    breakerSeries(registry),
    laneSeries(registry),
  ];
  return {
    contentType: registry.contentType,
    async text(figures) {
      for (const series of write) series(figures);
      return registry.metrics();
    },
  };
}

type Series = (figures: Figures) => void;

function taskSeries(registry: Registry, labels: MetricLabels): Series {
  const live = gauge(registry, 'errand_tasks', 'Tasks that are not over, by state.', ['state']);
  const finished = counter(
    registry,
    'errand_tasks_finished_total',
    'Tasks that ended since the process started, by final state.',
    ['state'],
  );
  const age = gauge(registry, 'errand_task_oldest_due_seconds', 'For how long the oldest queued task has been due.');
  return ({ tasks, finished: ended, oldest, now }) => {
    for (const state of labels.liveStates) live.set({ state }, tasks.get(state) ?? 0);
    finished.reset();
    for (const state of labels.finalStates) finished.inc({ state }, ended.get(state) ?? 0);
    age.set(seconds(oldest.task, now));
  };
}

function messageSeries(registry: Registry, labels: MetricLabels): Series {
  const outbox = gauge(registry, 'errand_outbox_messages', 'Outgoing messages that are not delivered, by state.', [
    'state',
  ]);
  const outboxAge = gauge(
    registry,
    'errand_outbox_oldest_pending_seconds',
    'Age of the oldest message that waits to be sent.',
  );
  const inbox = gauge(registry, 'errand_inbox_new', 'Incoming messages that wait to be worked off.');
  const inboxAge = gauge(
    registry,
    'errand_inbox_oldest_new_seconds',
    'Age of the oldest message that waits to be worked off.',
  );
  const refused = counter(
    registry,
    'errand_access_refused_total',
    'Messages of people who may not, since the process started, by reason.',
    ['reason'],
  );
  return (figures) => {
    for (const state of labels.outboxStates) outbox.set({ state }, figures.outbox.get(state) ?? 0);
    outboxAge.set(seconds(figures.oldest.outbox, figures.now));
    inbox.set(figures.inboxNew);
    inboxAge.set(seconds(figures.oldest.inbox, figures.now));
    refused.reset();
    for (const reason of labels.refusals) refused.inc({ reason }, figures.refused.get(reason) ?? 0);
  };
}

function peerSeries(registry: Registry): Series {
  const agents = gauge(registry, 'errand_agents', 'Agents that ever registered, by whether they are heard of.', [
    'state',
  ]);
  const parked = gauge(registry, 'errand_agent_pulls_parked', 'Long polls of agents that wait for work.');
  return (figures) => {
    agents.set({ state: 'online' }, figures.agents.online);
    agents.set({ state: 'offline' }, figures.agents.offline);
    parked.set(figures.parkedPulls);
  };
}

function storeSeries(registry: Registry): Series {
  const transactions = counter(registry, 'errand_store_transactions_total', 'Committed transactions.');
  const units = counter(
    registry,
    'errand_store_units_total',
    'Units of work in committed transactions (several share one).',
  );
  const rollbacks = counter(registry, 'errand_store_rollbacks_total', 'Transactions that were rolled back.');
  const wal = gauge(registry, 'errand_store_wal_bytes', 'Size of the write-ahead log.');
  return ({ store }) => {
    setTo(transactions, store.transactions);
    setTo(units, store.units);
    setTo(rollbacks, store.rollbacks);
    wal.set(store.walBytes);
  };
}

function breakerSeries(registry: Registry): Series {
  const state = gauge(
    registry,
    'errand_breaker_state',
    'Circuit breakers of loaded templates: 0 closed, 1 half-open, 2 open.',
    ['name'],
  );
  return ({ breakers }) => {
    // A breaker that no template names any more has no series.
    state.reset();
    for (const [name, value] of breakers) state.set({ name }, value);
  };
}

function laneSeries(registry: Registry): Series {
  const waiting = gauge(
    registry,
    'errand_lane_waiting_seconds',
    'For how long the oldest due task of a lane has been waiting: built-in lanes, and those of loaded templates.',
    ['lane'],
  );
  return ({ lanes, now }) => {
    waiting.reset();
    for (const [lane, since] of lanes) waiting.set({ lane }, seconds(since, now));
  };
}

/** The store counts by itself; the counter repeats its number. */
function setTo(target: Counter, value: number): void {
  target.reset();
  target.inc(value);
}

function gauge(registry: Registry, name: string, help: string, labelNames: string[] = []): Gauge {
  return new Gauge({ name, help, labelNames, registers: [registry] });
}

function counter(registry: Registry, name: string, help: string, labelNames: string[] = []): Counter {
  return new Counter({ name, help, labelNames, registers: [registry] });
}

function seconds(since: number | null, now: number): number {
  return since === null ? 0 : Math.max(0, now - since) / 1_000;
}
