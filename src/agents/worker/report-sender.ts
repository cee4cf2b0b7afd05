import { backoffMs } from '../../backoff.ts';
import { type ReportAnswer, type ReportResult, TERMINAL_REPORTS } from '../protocol.ts';
import { Backlog } from './backlog.ts';
import { CallFailed, type GatewayClient } from './client.ts';
import { type Outgoing, reportKey } from './outgoing.ts';
import { pauseAfter, type RetryOptions } from './retry.ts';
import type { RunTable } from './run-table.ts';
import type { Spool } from './spool.ts';

export interface ReportSenderOptions {
  client: GatewayClient;
  /** `"agentId":…,"instanceId":…`, the head of every body. */
  caller: string;
  spool: Spool;
  runs: RunTable;
  retry: RetryOptions;
  /** After every answer or failure: slots may be free that no request asks for. */
  onTurn(): void;
}

const MAX_REPORTS = 1_000;
const MAX_BYTES = 1024 * 1024;
/** A start or a log line waits this long for company; the end of a run never waits. */
const LINGER_MS = 25;
/** While little is under way a further request is opened at once; under load one at a time carries what came meanwhile. */
const MAX_REQUESTS = 4;
const FEW_REPORTS = 8;

/** Brings reports to the gateway: ends of runs first onto disk, then everything in batches, again and again until it is answered. */
export class ReportSender {
  readonly #options: ReportSenderOptions;
  readonly #backlog = new Backlog();
  /** Runs that have a report on its way. */
  readonly #inFlight = new Set<string>();
  readonly #again = new Set<NodeJS.Timeout>();
  #unstored: Outgoing[] = [];
  #requests = 0;
  #inFlightReports = 0;
  #maxReports = MAX_REPORTS;
  #failures = 0;
  #isOpen = false;
  #isScheduled = false;
  #linger: NodeJS.Timeout | undefined;
  #pause: NodeJS.Timeout | undefined;
  #onIdle: (() => void)[] = [];

  constructor(options: ReportSenderOptions) {
    this.#options = options;
  }

  push(item: Outgoing): void {
    if (item.durable) {
      // Before it is on disk, else the start would leave in a request of its own meanwhile.
      if (TERMINAL_REPORTS.has(item.type)) this.#backlog.dropStart(item.runId);
      this.#unstored.push(item);
      this.#schedule();
    } else {
      this.#backlog.push(item);
      this.#linger ??= setTimeout(() => this.#lingered(), LINGER_MS);
    }
  }

  /** Whether everything has been answered. */
  get isIdle(): boolean {
    return this.#requests + this.#unstored.length + this.#backlog.size + this.#again.size === 0;
  }

  /** The agent is registered: sending may begin. */
  open(): void {
    this.#isOpen = true;
    this.#flush();
  }

  /** Resolves when everything has been answered, or after `limitMs`; what is left stays in the spool. Ends all sending. */
  async drain(limitMs: number): Promise<void> {
    if (this.#isOpen && !this.#isIdle()) {
      clearTimeout(this.#pause);
      this.#pause = undefined;
      this.#flush();
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, limitMs);
        this.#onIdle.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
    this.close();
  }

  close(): void {
    this.#isOpen = false;
    for (const timer of [this.#linger, this.#pause, ...this.#again]) clearTimeout(timer);
    // Whoever drains need not wait any longer.
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** Takes in the answers to reports, of this class's own calls or of a registration. */
  async settle(items: readonly Outgoing[], results: readonly ReportResult[]): Promise<void> {
    const answerTo = answersBy(results);
    const done: string[] = [];
    for (const [index, item] of items.entries()) {
      const answer = answerTo(item, index);
      if (!answer) this.#sendAgain(item, 1);
      else if (answer.result === 'rejected') await this.#rejected(item, answer.reason ?? 'no reason given');
      else {
        if (item.durable) done.push(item.key);
        this.#answered(item, answer);
      }
    }
    if (done.length > 0) this.#options.spool.settle(done);
  }

  /** What is being stored is about to go and takes the rest along. */
  #lingered(): void {
    this.#linger = undefined;
    if (!this.#isScheduled) this.#flush();
  }

  /** Everything that ends in this turn of the event loop is stored and travels together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#store();
    });
  }

  /** Into the file first, whether or not the gateway is there. */
  #store(): void {
    const items = this.#unstored;
    this.#unstored = [];
    this.#options.spool.add(items);
    this.#forget(items.flatMap((item) => this.#backlog.push(item)));
    this.#flush();
    this.#turn();
  }

  /** Newer ones say what these would. */
  #forget(overtaken: readonly Outgoing[]): void {
    if (overtaken.length > 0) this.#options.spool.settle(overtaken.map((item) => item.key));
  }

  #turn(): void {
    if (this.#options.runs.hasFree) this.#options.onTurn();
  }

  #flush(): void {
    clearTimeout(this.#linger);
    this.#linger = undefined;
    while (this.#mayOpenRequest()) {
      const batch = this.#backlog.take({ reports: this.#maxReports, bytes: MAX_BYTES, except: this.#inFlight });
      if (batch.length === 0) break;
      void this.#send(batch);
    }
  }

  #mayOpenRequest(): boolean {
    if (!this.#isOpen || this.#pause || this.#backlog.size === 0) return false;
    return this.#requests === 0 || (this.#requests < MAX_REQUESTS && this.#inFlightReports < FEW_REPORTS);
  }

  async #send(batch: Outgoing[]): Promise<void> {
    this.#track(batch, 1);
    const next = this.#options.runs.reserve(slotsToAskFor(batch));
    try {
      await this.#post(batch, next);
      this.#failures = 0;
      this.#maxReports = MAX_REPORTS;
    } catch (error) {
      await this.#failed(batch, error);
    } finally {
      this.#options.runs.release(next);
      this.#track(batch, -1);
    }
    this.#flush();
    this.#turn();
    if (this.#isIdle()) for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  #track(batch: readonly Outgoing[], sign: 1 | -1): void {
    this.#requests += sign;
    this.#inFlightReports += sign * batch.length;
    for (const { runId } of batch) {
      if (sign === 1) this.#inFlight.add(runId);
      else this.#inFlight.delete(runId);
    }
  }

  async #post(batch: readonly Outgoing[], next: number): Promise<void> {
    const { client, caller, runs } = this.#options;
    const reports = batch.map((item) => item.json).join(',');
    const body = `{${caller},"reports":[${reports}]${next > 0 ? `,"next":${next}` : ''}}`;
    const answer = await client.post<ReportAnswer>('/api/agent/report', body);
    if (answer.tasks && answer.tasks.length > 0) runs.accept(answer.tasks);
    await this.settle(batch, answer.results ?? []);
  }

  async #failed(batch: Outgoing[], error: unknown): Promise<void> {
    const isRefused = error instanceof CallFailed && error.verdict === 'refused';
    if (isRefused && batch.length === 1) {
      await this.#rejected(batch[0]!, error.message);
      return;
    }
    this.#forget(this.#backlog.putBack(batch));
    if (isRefused) {
      // One bad report must not hold up the others: smaller and smaller batches, until it stands alone.
      this.#maxReports = Math.ceil(batch.length / 2);
      return;
    }
    this.#failures += 1;
    this.#pauseFor(pauseAfter(this.#options.retry, 'report', error, this.#failures));
  }

  #pauseFor(ms: number): void {
    this.#pause ??= setTimeout(() => {
      this.#pause = undefined;
      this.#flush();
    }, ms);
  }

  #answered(item: Outgoing, answer: ReportResult): void {
    const { runs, retry } = this.#options;
    if (answer.result === 'lease_lost') {
      retry.log.warn('report.lease_lost', { runId: item.runId, seq: item.seq, type: item.type });
      runs.stop(item.runId, 'lost');
    }
    if (TERMINAL_REPORTS.has(item.type)) runs.settled(item.runId);
  }

  async #rejected(item: Outgoing, reason: string): Promise<void> {
    if (!item.durable) {
      this.#options.retry.log.warn('report.rejected', { runId: item.runId, seq: item.seq, type: item.type, reason });
      return;
    }
    const times = await this.#options.spool.reject(item.key, reason);
    if (times === 'dead') this.#options.runs.settled(item.runId);
    else this.#sendAgain(item, times);
  }

  #sendAgain(item: Outgoing, times: number): void {
    const timer = setTimeout(
      () => {
        this.#again.delete(timer);
        this.push(item);
      },
      backoffMs(this.#options.retry.backoff, times),
    );
    this.#again.add(timer);
  }

  #isIdle(): boolean {
    return this.#requests + this.#unstored.length + this.#backlog.size === 0;
  }
}

/** Finds the answer to a report: usually they come in the order of the reports. */
function answersBy(results: readonly ReportResult[]): (item: Outgoing, index: number) => ReportResult | undefined {
  let byKey: Map<string, ReportResult> | undefined;
  return (item, index) => {
    const same = results[index];
    if (same?.runId === item.runId && same.seq === item.seq) return same;
    byKey ??= new Map(results.map((result) => [reportKey(result.runId, result.seq), result]));
    return byKey.get(item.key);
  };
}

/**
 * How many tasks a request may ask for along with its reports. While little happens no more than have ended: the other slots are asked
 * for by a pull, which waits at the gateway and is answered the moment a task comes. Under load, all: fewer requests.
 */
function slotsToAskFor(batch: readonly Outgoing[]): number {
  const ended = batch.filter(({ type }) => TERMINAL_REPORTS.has(type)).length;
  return ended < FEW_REPORTS ? ended : Number.POSITIVE_INFINITY;
}
