import type { BackoffPolicy } from '../../backoff.ts';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import { Poller, type Service } from '../../service.ts';
import type { DiagnosticsRequest, SelfCheckName } from '../health-protocol.ts';
import type { GatewayClient } from './client.ts';
import { type HealthLimits, type HealthMeasures, HealthProbe } from './health-measures.ts';
import { linesOf } from './health-processes.ts';
import { readProcesses } from './process-table.ts';
import type { Run } from './run.ts';

export interface SelfCheckOptions {
  client: Pick<GatewayClient, 'post'>;
  /** `"agentId":…,"instanceId":…`, the head of every body. */
  caller: string;
  spoolDir: string;
  workDir: string;
  /** Reports that wait for the gateway. */
  spool: { readonly size: number };
  runs: { started(): Pick<Run, 'runId' | 'pgid'>[] };
  log: Log;
  version: string;
  /** Between two checks, milliseconds; default a minute. The first comes at a random moment of the first such time. */
  everyMs?: number;
  limits?: Partial<HealthLimits>;
  /** Whether the gateway knows this instance: before that nothing can be posted. */
  isRegistered(): boolean;
}

const EVERY_MS = 60_000;
const RETRY: BackoffPolicy = { baseMs: 5_000, factor: 2, capMs: 60_000, jitter: 0.2 };
/** A trouble that lasts is posted again after this, milliseconds. */
const REPEAT_MS = 15 * 60_000;
const SHOWN_PROCESSES = 48;
const SHOWN_RUNS = 64;

/**
 * The agent looks after itself once a minute; when a check fails it tells the gateway, with what it sees: a second channel beside the
 * heartbeat, for an agent that is there and yet not well. The bundle holds figures and names of programs, nothing else.
 */
export class SelfCheck implements Service {
  readonly #options: SelfCheckOptions;
  readonly #probe: HealthProbe;
  readonly #poller: Poller;
  /** What was posted last, and when, by the monotonic clock. */
  #posted: { failed: string; at: number } | undefined;

  constructor(options: SelfCheckOptions) {
    this.#options = options;
    this.#probe = new HealthProbe(options);
    const everyMs = options.everyMs ?? EVERY_MS;
    let isFirst = true;
    this.#poller = new Poller({
      runOnce: async (signal) => {
        // Agents that start together (a fleet, a machine with many) are not to look at themselves together.
        if (isFirst) {
          isFirst = false;
          return Math.random() * everyMs;
        }
        await this.checkOnce(signal);
        return everyMs;
      },
      onError: (error, failures) => {
        options.log.warn('self_check.failed', { error: messageOf(error) });
        return Math.min(everyMs, RETRY.baseMs * RETRY.factor ** Math.min(failures, 4));
      },
    });
  }

  start(): Promise<void> {
    this.#probe.start();
    return this.#poller.start();
  }

  async stop(): Promise<void> {
    await this.#poller.stop();
    this.#probe.stop();
  }

  /** Answers which checks failed. @throws CallFailed where that could not be told */
  async checkOnce(signal?: AbortSignal): Promise<SelfCheckName[]> {
    const measures = await this.#probe.measure(this.#options.runs.started().flatMap(({ pgid }) => pgid ?? []));
    const failed = this.#probe.failed(measures);
    const name = failed.join();
    if (failed.length === 0) this.#posted = undefined;
    else if (this.#options.isRegistered() && this.#isNews(name)) {
      this.#options.log.warn('self_check.trouble', { failed, ...measures });
      await this.#post({ failed, bundle: await this.#bundle(measures) }, signal);
      this.#posted = { failed: name, at: performance.now() };
    }
    return failed;
  }

  #isNews(failed: string): boolean {
    return this.#posted?.failed !== failed || performance.now() - this.#posted.at >= REPEAT_MS;
  }

  async #post(body: Pick<DiagnosticsRequest, 'failed' | 'bundle'>, signal: AbortSignal | undefined): Promise<void> {
    const { client, caller } = this.#options;
    const text = `{${caller},${JSON.stringify(body).slice(1)}`;
    await client.post('/api/agent/diagnostics', text, signal ? { signal } : {});
  }

  async #bundle(measures: HealthMeasures): Promise<Record<string, unknown>> {
    const { version, runs, spool } = this.#options;
    const all = await readProcesses();
    const own = all.filter(({ pid, ppid }) => pid === process.pid || ppid === process.pid);
    const { rss, heapUsed, external } = process.memoryUsage();
    return {
      version,
      node: process.version,
      platform: `${process.platform} ${process.arch}`,
      uptimeMs: Math.round(process.uptime() * 1_000),
      measures,
      limits: this.#probe.limits,
      memory: { rss, heapUsed, external },
      unsentReports: spool.size,
      runs: runs
        .started()
        .slice(0, SHOWN_RUNS)
        .map(({ runId, pgid }) => ({ runId, pgid })),
      ...(await linesOf(own, SHOWN_PROCESSES)),
    };
  }
}
