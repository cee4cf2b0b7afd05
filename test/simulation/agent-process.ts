import type { Assignment, Report, ReportResult } from '../../src/agents/protocol.ts';
import { TERMINAL_REPORTS } from '../../src/agents/protocol.ts';
import type { AgentIdentity } from '../../src/agents/tokens.ts';
import { AppError } from '../../src/errors.ts';
import { type GatewayProcess, Unreachable } from './gateway-process.ts';
import type { Random } from './random.ts';

/** What a machine keeps when its agent is killed: the runs it ever took, and the reports that nobody has answered yet. */
export interface AgentDisk {
  readonly journal: Set<string>;
  readonly spool: Map<string, Report>;
}

/** A machine on which at most one agent process is known to run (a clone is another one with the same identity). */
export interface AgentMachine {
  readonly identity: AgentIdentity;
  readonly concurrency: number;
  readonly disk: AgentDisk;
  /** No request gets through. */
  cutOff: boolean;
  process: AgentProcess | null;
}

export interface AgentSurroundings {
  random(): Random;
  monotonic(): number;
  note(text: string): void;
  /** The run's number, as the rows have it. */
  nameOf(runId: string): string;
  /** @throws Unreachable */
  request<T>(machine: AgentMachine, call: (gateway: GatewayProcess) => Promise<T>): Promise<T>;
  /** The gateway has answered for the end of a run. */
  onAnsweredEnd(report: Report): void;
  /** Whether this run holds its task now and nobody else is about to take it away, as far as the rows tell. */
  isHeld(report: Report, process: AgentProcess): boolean;
}

type Body<T = Report> = T extends unknown ? Omit<T, 'runId' | 'leaseToken' | 'seq' | 'at'> : never;

interface AgentRun {
  readonly assignment: Assignment;
  state: 'waiting' | 'running' | 'ended';
  /** Reports that the gateway has answered for. */
  readonly answered: Report[];
  seq: number;
  startedAt: number;
  cancelled: boolean;
}

/** One life of an agent, scripted: it keeps its promises as `src/agents/worker` does, and does what it is told in between. */
export class AgentProcess {
  readonly machine: AgentMachine;
  readonly instanceId: string;
  dead = false;
  registered = false;
  /** Monotonic: since when the gateway may hold its pull. */
  waitsSince: number | undefined;
  readonly runs = new Map<string, AgentRun>();
  /** Reports that wait to be sent, in order. */
  backlog: Report[] = [];
  readonly #leftovers: readonly Report[];
  readonly #around: AgentSurroundings;
  readonly #gone = new AbortController();
  /** Requests on their way, by kind: one of each at a time. */
  readonly #busy = new Set<'register' | 'pull' | 'beat' | 'send'>();
  /** Reports of the last try that was not answered: the next one takes them all along. */
  #tried = 0;
  /** Offered again although an earlier life had taken them. */
  readonly #refused = new Set<string>();

  constructor(machine: AgentMachine, instanceId: string, around: AgentSurroundings) {
    this.machine = machine;
    this.instanceId = instanceId;
    this.#around = around;
    this.#leftovers = [...machine.disk.spool.values()];
  }

  get name(): string {
    return `${this.machine.identity.agentId}#${this.instanceId}`;
  }

  is(kind: 'register' | 'pull' | 'beat' | 'send'): boolean {
    return this.#busy.has(kind);
  }

  /** Slots that neither a run nor a request takes. */
  get free(): number {
    const taken = [...this.runs.values()].filter(({ state }) => state !== 'ended').length;
    return this.#busy.has('pull') ? 0 : Math.max(0, this.machine.concurrency - taken);
  }

  /** @param noticed whether the gateway learns that the connections are gone */
  kill(noticed: boolean): void {
    this.dead = true;
    if (this.machine.process === this) this.machine.process = null;
    if (noticed) this.#gone.abort();
  }

  async register(): Promise<void> {
    if (this.registered) return;
    const { identity, concurrency } = this.machine;
    const reports = this.#leftovers.filter(({ type }) => TERMINAL_REPORTS.has(type));
    const body = {
      ...this.#caller,
      bootId: 'boot',
      version: '1.0.0',
      protocol: 1 as const,
      host: 'machine',
      pools: identity.pools,
      labels: identity.labels,
      runtimes: ['shell'],
      concurrency,
      ...(reports.length > 0 ? { reports } : {}),
    };
    await this.#exchange('register', async (ask) => {
      const [at, held] = [this.#around.monotonic(), reports.filter((report) => this.#around.isHeld(report, this))];
      const answer = await ask(({ gateway }) => gateway.register(identity, body));
      if (this.dead) return;
      this.registered = true;
      const lost = held.find((report) => answer.results[reports.indexOf(report)]!.result === 'lease_lost');
      if (lost && at === this.#around.monotonic())
        throw new Error(`${keyOf(lost)} ${lost.type} was brought home in time, and yet its lease was lost`);
      this.#settle(reports, answer.results);
      const known = new Set(reports);
      this.backlog.push(...this.#leftovers.filter((report) => !known.has(report)));
    });
  }

  async pull(waitMs: number): Promise<void> {
    const maxTasks = this.free;
    if (!this.registered || maxTasks === 0) return;
    const body = { ...this.#caller, maxTasks, waitMs, holding: [...this.runs.keys(), ...this.#refused] };
    await this.#exchange('pull', async (ask) => {
      if (waitMs > 0) this.waitsSince = this.#around.monotonic();
      const answer = await ask(({ gateway }) => gateway.pull(this.machine.identity, body, this.#gone.signal));
      if (!this.dead) this.#accept(answer.tasks);
    });
  }

  async beat(waitMs: number): Promise<void> {
    if (!this.registered) return;
    const activeRuns = [...this.runs.values()].map(({ assignment: { runId, leaseToken } }) => ({ runId, leaseToken }));
    const body = { ...this.#caller, uptimeMs: 1, load: 0.5, activeRuns, ...(waitMs > 0 ? { waitMs } : {}) };
    await this.#exchange('beat', async (ask) => {
      const { runs } = await ask(({ gateway }) => gateway.heartbeat(this.machine.identity, body, this.#gone.signal));
      if (this.dead) return;
      for (const { runId, action } of runs) {
        if (action === 'cancel') this.#cancel(runId);
        else if (action === 'lost' && this.runs.get(runId)?.state !== 'ended') this.runs.delete(runId);
      }
    });
  }

  /** Sends what waits, in order; `next` also asks for tasks. */
  async send(max: number, next: boolean): Promise<void> {
    if (!this.registered || this.backlog.length === 0) return;
    const batch = this.backlog.slice(0, Math.max(max, this.#tried));
    const wanted = next ? this.free : 0;
    const body = { ...this.#caller, reports: batch, ...(wanted > 0 ? { next: wanted } : {}) };
    await this.#exchange('send', async (ask) => {
      this.#tried = batch.length;
      // The slots are asked for: no pull may ask for them too.
      if (wanted > 0) this.#busy.add('pull');
      try {
        const answer = await ask(({ gateway }) => gateway.report(this.machine.identity, body));
        if (this.dead) return;
        this.#tried = 0;
        const sent = new Set(batch);
        this.backlog = this.backlog.filter((report) => !sent.has(report));
        if (answer.tasks) this.#accept(answer.tasks);
        this.#settle(batch, answer.results);
      } finally {
        if (wanted > 0) this.#busy.delete('pull');
      }
    });
  }

  /** The program of one run goes a step further; answers what it did. */
  work(wellBehaved: boolean): string | null {
    const random = this.#around.random();
    const run = random.pick([...this.runs.values()].filter(({ state }) => state !== 'ended'));
    if (!run) return null;
    const { runId, timeoutMs } = run.assignment;
    if (run.state === 'waiting') {
      run.state = 'running';
      run.startedAt = this.#around.monotonic();
      this.#say(run, { type: 'started' });
      return `starts ${this.#around.nameOf(runId)}`;
    }
    const isLate = this.#around.monotonic() - run.startedAt >= timeoutMs;
    let body: Body = wellBehaved ? success(run) : random.weighted(WORK).body(run, random);
    const isSick = SICK.has(run.assignment.template) && !wellBehaved && random.chance(0.5);
    if (isSick) body = failure('transient')(run, random);
    if (run.cancelled && random.chance(0.8)) body = { type: 'cancelled' };
    else if (isLate && random.chance(0.8)) body = { type: 'timed_out' };
    this.#say(run, body);
    return `in ${this.#around.nameOf(runId)} says ${body.type}`;
  }

  /** Runs whose program runs, as far as this process knows. */
  running(): { runId: string; leaseToken: string }[] {
    const runs = [...this.runs.values()].filter(({ state }) => state === 'running');
    return runs.map(({ assignment: { runId, leaseToken } }) => ({ runId, leaseToken }));
  }

  /** A graceful end: what runs is handed back. */
  release(): void {
    for (const run of this.runs.values()) if (run.state !== 'ended') this.#say(run, { type: 'released' });
  }

  get #caller() {
    return { agentId: this.machine.identity.agentId, instanceId: this.instanceId };
  }

  async #exchange(
    kind: 'register' | 'pull' | 'beat' | 'send',
    talk: (ask: <T>(call: (gateway: GatewayProcess) => Promise<T>) => Promise<T>) => Promise<void>,
  ): Promise<void> {
    if (this.dead || this.#busy.has(kind)) return;
    this.#busy.add(kind);
    try {
      await talk((call) => this.#around.request(this.machine, call));
    } catch (error) {
      if (!this.dead) this.#failed(kind, error);
    } finally {
      this.#busy.delete(kind);
      if (kind === 'pull') this.waitsSince = undefined;
    }
  }

  #failed(kind: string, error: unknown): void {
    if (error instanceof Unreachable) return;
    if (!(error instanceof AppError)) throw error;
    this.#around.note(`${this.name} ${kind}: ${error.code}`);
    if (error.code === 'session_replaced') this.kill(true);
    else if (error.code === 'conflict') this.registered = false;
    else throw error;
  }

  #accept(assignments: readonly Assignment[]): void {
    const { journal } = this.machine.disk;
    for (const assignment of assignments) {
      const { runId } = assignment;
      if (this.runs.has(runId)) continue;
      if (journal.has(runId)) this.#refused.add(runId);
      else this.runs.set(runId, { assignment, state: 'waiting', answered: [], seq: 0, startedAt: 0, cancelled: false });
      journal.add(runId);
    }
  }

  #cancel(runId: string): void {
    const run = this.runs.get(runId);
    if (!run || run.state === 'ended' || run.cancelled) return;
    run.cancelled = true;
    if (run.state === 'waiting') this.#say(run, { type: 'cancelled' });
  }

  #say(run: AgentRun, body: Body): void {
    const { runId, leaseToken } = run.assignment;
    const report = { runId, leaseToken, seq: run.seq, ...body } as Report;
    run.seq += 1;
    if (TERMINAL_REPORTS.has(report.type)) run.state = 'ended';
    if (isDurable(report)) this.machine.disk.spool.set(keyOf(report), report);
    this.backlog.push(report);
  }

  #settle(reports: readonly Report[], results: readonly ReportResult[]): void {
    for (const [index, report] of reports.entries()) {
      const { result } = results[index]!;
      if (result !== 'accepted')
        this.#around.note(`${this.#around.nameOf(report.runId)} ${report.type} ${report.seq}: ${result}`);
      if (result === 'rejected') throw new Error(`${keyOf(report)} was rejected: ${results[index]!.reason}`);
      this.machine.disk.spool.delete(keyOf(report));
      const isEnd = TERMINAL_REPORTS.has(report.type);
      if (!isEnd) this.runs.get(report.runId)?.answered.push(report);
      if (isEnd && result !== 'lease_lost') this.#around.onAnsweredEnd(report);
      if (isEnd || result === 'lease_lost') this.runs.delete(report.runId);
    }
  }
}

const keyOf = ({ runId, seq }: Report) => `${runId}:${seq}`;
const isDurable = ({ type }: Report) => TERMINAL_REPORTS.has(type) || type === 'checkpoint';

/** Texts name the run that wrote them and when, so that the rows show whose word counted. */
const mark = ({ assignment: { runId }, seq }: AgentRun) => `${runId}:${seq}`;
const success = (run: AgentRun): Body => ({ type: 'succeeded', summary: mark(run), exitCode: 0 });
const failure =
  (errorClass: 'transient' | 'rate_limited' | 'permanent') =>
  (run: AgentRun, random: Random): Body => ({
    type: 'failed',
    errorClass,
    error: mark(run),
    ...(random.chance(0.5) ? { retryAfterMs: random.between(0, 20_000) } : {}),
  });

/** Templates whose site fails often, so that its breaker has something to do. */
const SICK: ReadonlySet<string> = new Set(['guarded', 'impatient']);

/** What a program may do next. A new kind of report is one line. */
const WORK: readonly { weight: number; body(run: AgentRun, random: Random): Body }[] = [
  { weight: 4, body: (run, random) => ({ type: 'progress', percent: random.between(0, 100), message: mark(run) }) },
  { weight: 3, body: (run) => ({ type: 'checkpoint', data: { by: mark(run) } }) },
  { weight: 1, body: (run) => ({ type: 'output', key: 'by', value: mark(run) }) },
  { weight: 1, body: (run) => ({ type: 'log', stream: 'stdout', text: mark(run), offset: 0 }) },
  { weight: 5, body: success },
  { weight: 4, body: failure('transient') },
  { weight: 1, body: failure('rate_limited') },
  { weight: 1, body: failure('permanent') },
  { weight: 0.7, body: (run) => ({ type: 'blocked', summary: mark(run) }) },
  { weight: 0.7, body: (run) => ({ type: 'needs_input', prompt: mark(run) }) },
  { weight: 0.3, body: () => ({ type: 'timed_out' }) },
];
