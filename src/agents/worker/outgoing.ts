import { type Report, type ReportType, TERMINAL_REPORTS } from '../protocol.ts';

/** A report on its way out. Its JSON is made once: the same text goes to the spool and onto the wire. */
export interface Outgoing {
  /** `runId:seq`, what the gateway deduplicates by. */
  key: string;
  runId: string;
  seq: number;
  type: ReportType;
  readonly json: string;
  readonly bytes: number;
  /** Survives a crash of the agent. Ends of runs and checkpoints do; logs and progress do not. */
  durable: boolean;
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
  const { runId, seq, type } = report;
  let text: string | undefined;
  const json = () => {
    text ??= JSON.stringify(report);
    return text;
  };
  return {
    key: reportKey(runId, seq),
    runId,
    seq,
    type,
    // Made when it is asked for: a start that its end overtakes is never sent.
    get json() {
      return json();
    },
    get bytes() {
      return Buffer.byteLength(json());
    },
    durable: TERMINAL_REPORTS.has(type) || type === 'checkpoint',
  };
}

export function reportKey(runId: string, seq: number): string {
  return `${runId}:${seq}`;
}
