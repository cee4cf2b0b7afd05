import type { Clock } from '../../clock.ts';
import { messageOf } from '../../errors.ts';
import { type Assignment, CHECKPOINT_LIMITS, type Report, type RunSnapshot, WIRE_LIMITS } from '../protocol.ts';
import { type Masking, maskingOf } from './masking.ts';
import { type Outgoing, outgoing, type ReportBody } from './outgoing.ts';
import { clip } from './runtime/capture.ts';
import type { Job, RunEnd, Runtime, StopReason } from './runtime/runtime.ts';

export interface RunContext {
  clock: Clock;
  secrets: ReadonlyMap<string, string>;
  /** Aborted when the agent has no time left. */
  hurry: AbortSignal;
  /** Takes a report; in the order of `seq`. */
  send(item: Outgoing): void;
  spawned(run: { runId: string; leaseToken: string }, pgid: number): void;
}

/** No timer of Node is longer than about 24 days; a run that may last longer is looked at once a day. */
const LONGEST_TIMER_MS = 86_400_000;

/** One assignment from its acceptance to its last report: numbers its reports, masks them, watches its time. */
export class Run {
  readonly assignment: Assignment;
  readonly runId: string;
  readonly leaseToken: string;
  readonly #context: RunContext;
  /** Made when a runtime first asks: most runs end before anybody wants them to. */
  #controller: AbortController | undefined;
  #stopReason: StopReason | undefined;
  readonly #secrets: ReadonlyMap<string, string>;
  readonly #masking: Masking;
  #seq = 0;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;
  #lost = false;
  /** Of the program, once there is one. */
  #pgid: number | undefined;

  constructor(assignment: Assignment, context: RunContext) {
    this.assignment = assignment;
    this.runId = assignment.runId;
    this.leaseToken = assignment.leaseToken;
    this.#context = context;
    this.#secrets = pick(context.secrets, assignment.secrets ?? []);
    this.#masking = maskingOf(this.#secrets.values());
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** The reason for which it is to end, once there is one. */
  get stopping(): StopReason | undefined {
    return this.#stopReason;
  }

  /** Whether the gateway has given the run to somebody else: nothing is reported any more. */
  get lost(): boolean {
    return this.#lost;
  }

  /** The process group of its program; undefined before there is one, and where its runtime has none. */
  get pgid(): number | undefined {
    return this.#pgid;
  }

  /** A sign of life that the gateway has asked for. */
  tellSnapshot(snapshot: RunSnapshot): void {
    this.#report({
      type: 'snapshot',
      processes: [...snapshot.processes],
      ...(snapshot.omitted ? { omitted: snapshot.omitted } : {}),
    });
  }

  /** Runs to the end and reports it. Never throws. */
  async execute(runtime: Runtime): Promise<void> {
    this.#report({ type: 'started' });
    this.#watchTime(this.assignment.timeoutMs);
    let end: RunEnd;
    try {
      end = await runtime.run(this.#job());
    } catch (error) {
      end = faultEnd(error);
    }
    this.finish(end);
  }

  /** Ends the run without having run it, or after it. Only the first end counts. */
  finish(end: RunEnd): void {
    if (this.#ended) return;
    clearTimeout(this.#timer);
    this.#report(end);
    this.#ended = true;
  }

  /** The run is to end; the first reason counts, except that a lost run is lost whatever came before. */
  stop(reason: StopReason): void {
    if (reason === 'lost') this.#lost = true;
    if (this.#stopReason) return;
    this.#stopReason = reason;
    this.#controller?.abort(reason);
  }

  #job(): Job {
    const run = this;
    return {
      assignment: this.assignment,
      secrets: this.#secrets,
      masking: this.#masking,
      hurry: this.#context.hurry,
      get signal() {
        return run.#signal();
      },
      emit: (body) => this.#report(body),
      spawned: (pgid) => {
        this.#pgid = pgid;
        this.#context.spawned(this, pgid);
      },
    };
  }

  #signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#stopReason) this.#controller.abort(this.#stopReason);
    }
    return this.#controller.signal;
  }

  #watchTime(leftMs: number): void {
    const nextMs = Math.min(leftMs, LONGEST_TIMER_MS);
    this.#timer = setTimeout(() => {
      if (leftMs > nextMs) this.#watchTime(leftMs - nextMs);
      else this.stop('timeout');
    }, nextMs);
  }

  #report(body: ReportBody): void {
    if (this.#ended || this.#lost) return;
    const head = { runId: this.runId, leaseToken: this.leaseToken, seq: this.#seq, at: this.#context.clock.now() };
    this.#seq += 1;
    const masked = this.#secrets.size > 0 ? maskBody(body, this.#masking) : body;
    this.#context.send(outgoing({ ...head, ...masked } as Report));
  }
}

/** What the runtime threw is a fault of the agent or its machine, not of the task. */
function faultEnd(error: unknown): RunEnd {
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  const isShortage =
    code === 'ENOSPC' || code === 'EMFILE' || code === 'ENFILE' || code === 'ENOMEM' || code === 'EDQUOT';
  const sentence = `the agent could not run this: ${messageOf(error)}`;
  return {
    type: 'failed',
    errorClass: isShortage ? 'transient' : 'permanent',
    error: clip(sentence, WIRE_LIMITS.error),
  };
}

/** Words of the protocol itself: never masked, whatever a secret may be. */
const PROTOCOL_FIELDS = new Set(['type', 'stream', 'errorClass', 'signal']);
const FIELD_LIMITS: Partial<Record<string, number>> = {
  ...WIRE_LIMITS,
  text: WIRE_LIMITS.log,
  prompt: WIRE_LIMITS.error,
  // As a whole, by those who read it.
  data: CHECKPOINT_LIMITS.bytes,
};

/** Masks every text in a report, at any depth. Texts stay within the wire's limits: the mask may be longer than a secret. */
export function maskBody(body: ReportBody, masking: Masking): ReportBody {
  const entries = Object.entries(body).map(([field, value]) => {
    const limit = FIELD_LIMITS[field] ?? WIRE_LIMITS.output;
    return [field, PROTOCOL_FIELDS.has(field) ? value : maskValue(value, masking, limit)];
  });
  return Object.fromEntries(entries) as ReportBody;
}

function maskValue(value: unknown, masking: Masking, limit: number): unknown {
  if (typeof value === 'string') return clip(masking.text(value), limit);
  if (Array.isArray(value)) return value.map((item) => maskValue(item, masking, limit));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [masking.text(name), maskValue(item, masking, limit)]),
  );
}

function pick(secrets: ReadonlyMap<string, string>, names: readonly string[]): ReadonlyMap<string, string> {
  if (names.length === 0) return NO_SECRETS;
  return new Map(names.flatMap((name) => (secrets.has(name) ? [[name, secrets.get(name)!]] : [])));
}

const NO_SECRETS: ReadonlyMap<string, string> = new Map();
