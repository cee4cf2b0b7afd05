import { type Report, type ReportType, TERMINAL_REPORTS } from '../protocol.ts';

/** A report on its way out. Its JSON is made once: the same text goes to the spool and onto the wire. */
export interface Outgoing {
  /** `runId:seq`, what the gateway deduplicates by. */
  readonly key: string;
  readonly runId: string;
  readonly seq: number;
  readonly type: ReportType;
  readonly json: string;
  readonly bytes: number;
  /** Survives a crash of the agent. Ends of runs and checkpoints do; logs and progress do not. */
  readonly durable: boolean;
  /** Says something else under the same number; for what has not been sent. */
  replace(report: Report): void;
}

/** Distributes over the union, so that every kind of report keeps its own fields. */
type WithoutHead<T> = T extends unknown ? Omit<T, 'runId' | 'leaseToken' | 'seq' | 'at'> : never;

/** What a runtime says; who says it is added by the run. */
export type ReportBody = WithoutHead<Report>;
export type TerminalBody = Extract<
  ReportBody,
  { type: 'needs_input' | 'blocked' | 'succeeded' | 'failed' | 'timed_out' | 'cancelled' | 'released' }
>;

export function outgoing(report: Report): Outgoing {
  return new OutgoingReport(report);
}

class OutgoingReport implements Outgoing {
  readonly key: string;
  readonly runId: string;
  readonly seq: number;
  readonly type: ReportType;
  readonly durable: boolean;
  #report: Report;
  /** Made when it is asked for: a start that its end overtakes is never sent. */
  #json: string | undefined;

  constructor(report: Report) {
    this.key = reportKey(report.runId, report.seq);
    this.runId = report.runId;
    this.seq = report.seq;
    this.type = report.type;
    this.durable = TERMINAL_REPORTS.has(report.type) || report.type === 'checkpoint';
    this.#report = report;
  }

  get json(): string {
    this.#json ??= JSON.stringify(this.#report);
    return this.#json;
  }

  get bytes(): number {
    return Buffer.byteLength(this.json);
  }

  replace(report: Report): void {
    this.#report = report;
    this.#json = undefined;
  }
}

export function reportKey(runId: string, seq: number): string {
  return `${runId}:${seq}`;
}
