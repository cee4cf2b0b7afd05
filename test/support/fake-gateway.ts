import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type Assignment,
  type HeartbeatAnswer,
  type HeartbeatRequest,
  heartbeatRequestSchema,
  type PullAnswer,
  pullRequestSchema,
  type RegisterAnswer,
  type RegisterRequest,
  type Report,
  type ReportAnswer,
  type ReportResult,
  registerRequestSchema,
  reportRequestSchema,
  TERMINAL_REPORTS,
} from '../../src/agents/protocol.ts';

export type FakeCall = 'register' | 'heartbeat' | 'pull' | 'report';

export interface FakeGatewayOptions {
  token?: string;
  heartbeatMs?: number;
}

interface Grant {
  assignment: Assignment;
  holder?: string;
  ended: boolean;
  cancelled: boolean;
  lost: boolean;
  /** A sign of life is asked for, once. */
  probed?: boolean;
}

/**
 * The gateway's side of agent protocol v1 in memory, as a real HTTP server that can be told to misbehave. Every body is checked
 * against the wire schemas: what the real gateway would refuse is refused here.
 */
export class FakeGateway {
  readonly calls: { call: FakeCall; body: Record<string, unknown>; at: number }[] = [];
  readonly registrations: RegisterRequest[] = [];
  /** Accepted reports in order of arrival; a repeat is not here twice. */
  readonly reports: Report[] = [];
  /** Answers `duplicate` that were given. */
  duplicates = 0;
  /** Calls that did not fit the schema. */
  readonly malformed: string[] = [];
  readonly #token: string;
  readonly #heartbeatMs: number;
  #port = 0;
  readonly #grants = new Map<string, Grant>();
  readonly #seen = new Set<string>();
  readonly #parked = new Set<() => void>();
  readonly #drops = new Map<FakeCall, number>();
  readonly #rejectedRuns = new Set<string>();
  readonly #replaced = new Set<string>();
  #current: string | undefined;
  /** How many cancels and losses there were. */
  #alarms = 0;
  #failWith: { status: number; code: string; only?: FakeCall } | undefined;
  #server: Server | undefined;

  constructor(options: FakeGatewayOptions = {}) {
    this.#token = options.token ?? 'agent-token-1';
    this.#heartbeatMs = options.heartbeatMs ?? 2_000;
  }

  /** After a `stop` it comes back under the same address, and remembers everything. */
  async start(): Promise<string> {
    const server = createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (server.address() as AddressInfo).port;
    return this.url;
  }

  async stop(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    this.#wakeAll();
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  grant(...assignments: Assignment[]): void {
    for (const assignment of assignments) {
      this.#grants.set(assignment.runId, { assignment, ended: false, cancelled: false, lost: false });
    }
    this.#wakeAll();
  }

  cancel(runId: string): void {
    this.#grants.get(runId)!.cancelled = true;
    this.#alarms += 1;
    this.#wakeAll();
  }

  /** The next answer to a heartbeat asks for a sign of life. */
  probe(runId: string): void {
    this.#grants.get(runId)!.probed = true;
    this.#alarms += 1;
    this.#wakeAll();
  }

  /** The lease is gone: heartbeats say `lost`, reports are answered `lease_lost`. */
  lose(runId: string): void {
    this.#grants.get(runId)!.lost = true;
    this.#alarms += 1;
    this.#wakeAll();
  }

  /** Carries the next call out and then cuts the connection instead of answering. */
  dropNextAnswer(call: FakeCall): void {
    this.#drops.set(call, (this.#drops.get(call) ?? 0) + 1);
  }

  /** Answers every call (or only this one) with an error, until `recover`. */
  fail(status: number, code = 'unavailable', only?: FakeCall): void {
    this.#failWith = { status, code, only };
    this.#wakeAll();
  }

  recover(): void {
    this.#failWith = undefined;
  }

  reject(runId: string): void {
    this.#rejectedRuns.add(runId);
  }

  accept(runId: string): void {
    this.#rejectedRuns.delete(runId);
  }

  reportsOf(runId: string): Report[] {
    return this.reports.filter((report) => report.runId === runId);
  }

  /** The last word about a run, where there is one. */
  endOf(runId: string): Report | undefined {
    return this.reports.find((report) => report.runId === runId && TERMINAL_REPORTS.has(report.type));
  }

  /** The log of a run as a person would read it. */
  logOf(runId: string, stream: 'stdout' | 'stderr' = 'stdout'): string {
    return this.reportsOf(runId)
      .filter((report) => report.type === 'log')
      .filter((report) => report.stream === stream)
      .sort((a, b) => a.offset - b.offset)
      .map((report) => report.text)
      .join('');
  }

  count(call: FakeCall): number {
    return this.calls.filter((item) => item.call === call).length;
  }

  /** Whether some agent waits in a parked pull or heartbeat. */
  get parked(): number {
    return this.#parked.size;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = request.url?.replace('/api/agent/', '') as FakeCall;
    const text = await bodyOf(request);
    if (request.headers.authorization !== `Bearer ${this.#token}`) return problem(response, 401, 'unauthorized');
    const body = JSON.parse(text) as Record<string, unknown>;
    this.calls.push({ call, body, at: Date.now() });
    if (this.#failing(call)) return problem(response, this.#failing(call)!.status, this.#failing(call)!.code);
    const answer = await this.#answer(call, body);
    if (typeof answer === 'string') return problem(response, ...(answer.split(' ') as [string, string]));
    if ((this.#drops.get(call) ?? 0) > 0) {
      this.#drops.set(call, this.#drops.get(call)! - 1);
      response.destroy();
      return;
    }
    if (this.#failing(call)) return problem(response, this.#failing(call)!.status, this.#failing(call)!.code);
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }

  /** The answer, or `status code` of a refusal. */
  async #answer(call: FakeCall, body: Record<string, unknown>): Promise<object | string> {
    const schema = SCHEMAS[call];
    const parsed = schema?.safeParse(body);
    if (!parsed?.success) {
      this.malformed.push(`${call}: ${parsed?.error.message}`);
      return '400 invalid_request';
    }
    const instanceId = String(body.instanceId);
    if (call !== 'register' && this.#replaced.has(instanceId)) return '409 session_replaced';
    switch (call) {
      case 'register':
        return this.#register(registerRequestSchema.parse(body));
      case 'pull':
        return this.#pull(pullRequestSchema.parse(body));
      case 'heartbeat':
        return this.#heartbeat(heartbeatRequestSchema.parse(body));
      case 'report': {
        const { reports, next } = reportRequestSchema.parse(body);
        const answer: ReportAnswer = { results: reports.map((report) => this.#record(report)) };
        if (next) answer.tasks = this.#take(instanceId, next);
        return answer;
      }
    }
  }

  #register(request: RegisterRequest): RegisterAnswer {
    this.registrations.push(request);
    const results = (request.reports ?? []).map((report) => this.#record(report));
    if (this.#current && this.#current !== request.instanceId) this.#replaced.add(this.#current);
    this.#current = request.instanceId;
    this.#wakeAll();
    const serverTime = Date.now();
    return {
      ok: true,
      serverTime,
      leaseMs: 30_000,
      heartbeatMs: this.#heartbeatMs,
      latestVersion: '0',
      hasUpdate: false,
      results,
    };
  }

  async #pull(request: {
    instanceId: string;
    maxTasks: number;
    waitMs: number;
    holding: string[];
  }): Promise<PullAnswer | string> {
    const held = new Set(request.holding);
    for (const grant of this.#grants.values()) {
      if (grant.holder === request.instanceId && !grant.ended && !held.has(grant.assignment.runId))
        grant.holder = undefined;
    }
    let tasks: Assignment[] = [];
    await this.#parkUntil(request.waitMs, () => {
      if (this.#replaced.has(request.instanceId)) return true;
      tasks = this.#take(request.instanceId, request.maxTasks);
      return tasks.length > 0 || this.#failing('pull') !== undefined;
    });
    return this.#replaced.has(request.instanceId) ? '409 session_replaced' : { tasks };
  }

  /** As the real one: it speaks of the runs that the heartbeat names, and a cancel or a loss answers every parked heartbeat. */
  async #heartbeat(request: HeartbeatRequest): Promise<HeartbeatAnswer | string> {
    const alarms = this.#alarms;
    const told = () =>
      request.activeRuns.map(({ runId }): HeartbeatAnswer['runs'][number] => {
        const grant = this.#grants.get(runId);
        return {
          runId,
          action: !grant || grant.lost || grant.ended ? 'lost' : grant.cancelled ? 'cancel' : 'continue',
        };
      });
    await this.#parkUntil(request.waitMs ?? 0, () => {
      const isReplaced = this.#replaced.has(request.instanceId);
      return (
        isReplaced ||
        this.#alarms > alarms ||
        told().some((run) => run.action !== 'continue') ||
        !!this.#failing('heartbeat')
      );
    });
    if (this.#replaced.has(request.instanceId)) return '409 session_replaced';
    const runs = told().map((run) => {
      const grant = this.#grants.get(run.runId);
      if (!grant?.probed || run.action !== 'continue') return run;
      grant.probed = false;
      return { ...run, probe: true as const };
    });
    return { ok: true, serverTime: Date.now(), latestVersion: '0', hasUpdate: false, runs };
  }

  #take(instanceId: string, max: number): Assignment[] {
    const free: Grant[] = [];
    for (const grant of this.#grants.values()) {
      if (free.length === max) break;
      if (!grant.holder && !grant.ended) free.push(grant);
    }
    for (const grant of free) grant.holder = instanceId;
    return free.map((grant) => grant.assignment);
  }

  #record(report: Report): ReportResult {
    const head = { runId: report.runId, seq: report.seq };
    const grant = this.#grants.get(report.runId);
    if (!grant || this.#rejectedRuns.has(report.runId)) return { ...head, result: 'rejected', reason: 'unknown run' };
    if (grant.lost || grant.assignment.leaseToken !== report.leaseToken) return { ...head, result: 'lease_lost' };
    const key = `${report.runId}:${report.seq}`;
    if (this.#seen.has(key)) {
      this.duplicates += 1;
      return { ...head, result: 'duplicate' };
    }
    this.#seen.add(key);
    this.reports.push(report);
    if (TERMINAL_REPORTS.has(report.type)) grant.ended = true;
    return { ...head, result: 'accepted' };
  }

  #failing(call: FakeCall): { status: number; code: string } | undefined {
    const failure = this.#failWith;
    return failure && (failure.only ?? call) === call ? failure : undefined;
  }

  async #parkUntil(waitMs: number, done: () => boolean): Promise<void> {
    const deadline = performance.now() + waitMs;
    while (this.#server && !done() && performance.now() < deadline) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(wake, deadline - performance.now());
        const parked = this.#parked;
        function wake(): void {
          clearTimeout(timer);
          parked.delete(wake);
          resolve();
        }
        parked.add(wake);
      });
    }
  }

  #wakeAll(): void {
    for (const wake of [...this.#parked]) wake();
  }
}

let assignments = 0;

/** An assignment of the shell runtime with everything filled in. */
export function shellTask(argv: string[], overrides: Partial<Assignment> & { spec?: object } = {}): Assignment {
  assignments += 1;
  const { spec, ...rest } = overrides;
  return {
    runId: `run${assignments}`,
    taskId: `task${assignments}`,
    attempt: 1,
    leaseToken: `lease-${assignments}`,
    leaseMs: 30_000,
    template: 'test',
    runtime: 'shell',
    spec: { argv, env: {}, graceMs: 1_000, exitClasses: {}, ...spec },
    args: {},
    secrets: [],
    timeoutMs: 60_000,
    limits: { outputBytes: 1024 * 1024 },
    idempotencyKey: null,
    ...rest,
  };
}

const SCHEMAS = {
  register: registerRequestSchema,
  heartbeat: heartbeatRequestSchema,
  pull: pullRequestSchema,
  report: reportRequestSchema,
} as const;

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

function problem(response: ServerResponse, status: number | string, code: string): void {
  const body = {
    type: 'about:blank',
    title: code,
    status: Number(status),
    code,
    detail: `the fake gateway says ${code}`,
  };
  response.writeHead(Number(status), { 'content-type': 'application/problem+json' }).end(JSON.stringify(body));
}
