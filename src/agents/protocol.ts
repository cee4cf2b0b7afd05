import { z } from 'zod';
import { CHECKPOINT_LIMITS, checkpointText, isShallow } from '../tasks/checkpoint-words.ts';
import { classify, MAX_PAUSE_MS, retryAfterMs, ruleFor } from '../tasks/classify.ts';
import {
  EFFECT_LIMITS,
  EFFECT_POLICIES,
  type EffectBeginAnswer,
  type EffectMarkAnswer,
} from '../tasks/effect-words.ts';
import { type ArgValue, ERROR_CLASSES, type ErrorClass, RUN_ENDS } from '../tasks/run-words.ts';
import { type ProcessLine, type RunSnapshot, SNAPSHOT_LIMITS } from '../tasks/snapshot-words.ts';

/**
 * Agent protocol v1 (docs/agent-protocol.md): JSON over HTTP, only the agent opens connections, `Authorization: Bearer <agent token>`.
 * All times are epoch milliseconds, all durations milliseconds. Times that an agent sends are information; the server's clock decides.
 */
export const PROTOCOL_VERSION = 1;

/** What a gateway of this version still speaks: its own protocol and the one before, so that agents may be upgraded after it. */
export function isProtocolSpoken(version: unknown, own: number = PROTOCOL_VERSION): version is number {
  return Number.isSafeInteger(version) && (version === own || version === own - 1) && (version as number) >= 1;
}

/** What an agent may be called. */
export const AGENT_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

const agentId = z.string().regex(AGENT_ID, 'must be 1 to 64 letters, digits, dots, dashes or underscores');
const token = z.string().min(1).max(128);
const runId = z.string().min(1).max(32);
const name = z.string().min(1).max(64);
const text = (max: number) => z.string().max(max);

export {
  CHECKPOINT_LIMITS,
  checkpointText,
  classify,
  ERROR_CLASSES,
  type ErrorClass,
  MAX_PAUSE_MS,
  type ProcessLine,
  type RunSnapshot,
  retryAfterMs,
  ruleFor,
  SNAPSHOT_LIMITS,
};

/** Largest texts on the wire, characters. Longer ones are cut by the agent before they are sent. */
export const WIRE_LIMITS = {
  summary: 20_000,
  error: 4_000,
  message: 500,
  log: 65_536,
  output: 32_768,
} as const;

/** Any JSON. One that is too large is refused by itself; one that is too deep could not even be looked at. */
const checkpointData = z
  .unknown()
  .refine(isShallow, `is missing, or nested deeper than ${CHECKPOINT_LIMITS.depth} levels`);

const reportHead = {
  runId,
  leaseToken: token,
  /** Rises by one with every report of a run; (runId, seq) is reported once, however often it is sent. */
  seq: z.number().int().nonnegative(),
  /** The agent's clock; information. */
  at: z.number().optional(),
};

const processLine = z.object({
  pid: z.number().int().nonnegative(),
  name: text(SNAPSHOT_LIMITS.name),
  state: text(1),
  ...{ cpuMs: z.number().nonnegative(), rssBytes: z.number().nonnegative() },
});

export const reportSchema = z.discriminatedUnion('type', [
  z.object({ ...reportHead, type: z.literal('started') }),
  z.object({
    ...reportHead,
    type: z.literal('progress'),
    percent: z.number().min(0).max(100).optional(),
    message: text(WIRE_LIMITS.message).optional(),
  }),
  z.object({
    ...reportHead,
    type: z.literal('log'),
    stream: z.enum(['stdout', 'stderr']),
    text: text(WIRE_LIMITS.log),
    offset: z.number().int().nonnegative(),
  }),
  /** A sign of life, when the gateway asks for one: what the processes of the run do. */
  z.object({
    ...reportHead,
    type: z.literal('snapshot'),
    processes: z.array(processLine).max(SNAPSHOT_LIMITS.processes),
    omitted: z.number().int().positive().optional(),
  }),
  z.object({ ...reportHead, type: z.literal('checkpoint'), data: checkpointData }),
  z.object({ ...reportHead, type: z.literal('output'), key: name, value: text(WIRE_LIMITS.output) }),
  z.object({
    ...reportHead,
    type: z.literal('needs_input'),
    prompt: text(WIRE_LIMITS.error),
    options: z.array(text(64)).max(10).optional(),
  }),
  z.object({ ...reportHead, type: z.literal('blocked'), summary: text(WIRE_LIMITS.summary) }),
  z.object({
    ...reportHead,
    type: z.literal('succeeded'),
    summary: text(WIRE_LIMITS.summary),
    outputs: z.record(name, text(WIRE_LIMITS.output)).optional(),
    exitCode: z.number().int().optional(),
  }),
  z.object({
    ...reportHead,
    type: z.literal('failed'),
    errorClass: z.enum(ERROR_CLASSES),
    error: text(WIRE_LIMITS.error),
    /** Also kept of a failed run: what the program printed. */
    summary: text(WIRE_LIMITS.summary).optional(),
    retryAfterMs: z.number().int().nonnegative().max(MAX_PAUSE_MS).optional(),
    exitCode: z.number().int().optional(),
    signal: text(16).optional(),
    /** What failed, where it was a call: the template's own rules for these go before `errorClass`. */
    httpStatus: z.number().int().min(100).max(599).optional(),
    errorType: text(64).optional(),
  }),
  z.object({ ...reportHead, type: z.literal('timed_out'), summary: text(WIRE_LIMITS.summary).optional() }),
  z.object({ ...reportHead, type: z.literal('cancelled'), summary: text(WIRE_LIMITS.summary).optional() }),
  z.object({ ...reportHead, type: z.literal('released') }),
]);
export type Report = z.infer<typeof reportSchema>;
export type ReportType = Report['type'];

/** After one of these the run is over for the agent. */
export const TERMINAL_REPORTS: ReadonlySet<ReportType> = RUN_ENDS;

const caller = { agentId, instanceId: token };

export const registerRequestSchema = z.object({
  ...caller,
  /** Identifies this boot of the machine; recorded process groups are only killed within the same boot. */
  bootId: text(64),
  version: text(32),
  protocol: z.custom<number>((version) => isProtocolSpoken(version), {
    error: ({ input }) =>
      `this gateway speaks agent protocol ${PROTOCOL_VERSION} and the agent ${JSON.stringify(input)}: upgrade the older of the two`,
  }),
  host: text(255),
  pools: z.array(name).min(1).max(32),
  labels: z.record(name, text(64)),
  runtimes: z
    .array(z.string().regex(/^[a-z][a-z0-9-]{0,31}$/))
    .min(1)
    .max(16),
  concurrency: z.number().int().min(1).max(1024),
  /** Terminal reports from the spool of an earlier instance; applied before that instance's leases are re-queued (trap 1). */
  reports: z.array(reportSchema).max(1000).optional(),
});
export type RegisterRequest = z.infer<typeof registerRequestSchema>;

export interface RegisterAnswer {
  ok: true;
  serverTime: number;
  leaseMs: number;
  heartbeatMs: number;
  latestVersion: string;
  hasUpdate: boolean;
  /** One for each of `reports`, same order. */
  results: ReportResult[];
}

/** What agents and packages may call themselves: `1.2.3`, `1.2.3-rc.1`. */
export const RELEASE_VERSION = /^\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z]+([.-][0-9A-Za-z]+)*)?$/;

/** The package that the gateway names to its agents. */
export interface ReleaseOffer {
  version: string;
  /** Of the package, 64 hexadecimal digits. */
  sha256: string;
  /** Ed25519 over version and sha256, base64 (docs/agents.md); null where it was published without. */
  signature: string | null;
  bytes: number;
}

/** How an agent gets on with a release. `failed` and `refused` stay until another one is published. */
export const UPGRADE_STATES = ['loading', 'waiting', 'trying', 'failed', 'refused'] as const;

export const heartbeatRequestSchema = z.object({
  ...caller,
  /** The version that runs; absent in agents that know no upgrades. */
  version: text(32).optional(),
  /** Reports that the gateway has rejected for good and that wait on the agent's disk for a person; absent: none. */
  deadReports: z.object({ count: z.number().int().positive(), reason: text(500).optional() }).optional(),
  upgrade: z
    .object({
      version: text(32),
      state: z.enum(UPGRADE_STATES),
      /** How often the version was started in vain. */
      tries: z.number().int().nonnegative(),
      reason: text(500).optional(),
    })
    .optional(),
  uptimeMs: z.number().nonnegative(),
  /** One-minute load average divided by the number of cores. */
  load: z.number().nonnegative(),
  /** What the load is spread over. This and the next absent: an agent that does not tell it yet. */
  cores: z.number().int().min(1).max(65_536).optional(),
  /** What programs could still take, of what there is. */
  memory: z.object({ freeBytes: z.number().nonnegative(), totalBytes: z.number().positive() }).optional(),
  /** True in the last word of an instance that ends in order: what it does not name in `activeRuns` goes back at once. */
  stopping: z.boolean().optional(),
  activeRuns: z.array(z.object({ runId, leaseToken: token })).max(1024),
  /** Long poll: how long the server may hold the answer while there is nothing to say. It answers early for a cancel. */
  waitMs: z.number().int().min(0).max(60_000).optional(),
});
export type HeartbeatRequest = z.infer<typeof heartbeatRequestSchema>;
export type UpgradeStatus = NonNullable<HeartbeatRequest['upgrade']>;

export interface HeartbeatAnswer {
  ok: true;
  serverTime: number;
  latestVersion: string;
  hasUpdate: boolean;
  /** Absent where none is published. */
  release?: ReleaseOffer;
  runs: {
    runId: string;
    action: 'continue' | 'cancel' | 'steer' | 'lost';
    reason?: string;
    text?: string;
    /** It has said nothing for too long: a report `snapshot` is asked for. */
    probe?: true;
  }[];
}

export const pullRequestSchema = z.object({
  ...caller,
  maxTasks: z.number().int().min(1).max(1024),
  waitMs: z.number().int().min(0).max(60_000),
  /** Runs this instance knows of; its other grants are offered again, same run and token (trap 3). */
  holding: z.array(runId).max(2048),
});
export type PullRequest = z.infer<typeof pullRequestSchema>;

export interface PullAnswer {
  tasks: Assignment[];
}

export const reportRequestSchema = z.object({
  ...caller,
  reports: z.array(reportSchema).min(1).max(1000),
  /** Also pull, without waiting, up to this many tasks. */
  next: z.number().int().min(1).max(1024).optional(),
});
export type ReportRequest = z.infer<typeof reportRequestSchema>;

export interface ReportResult {
  runId: string;
  seq: number;
  /**
   * `accepted`: applied. `duplicate`: this (runId, seq) was there before. `lease_lost`: the fence has moved on; nothing changed.
   * `rejected`: not a report this run can have (unknown run, another agent's run).
   */
  result: 'accepted' | 'duplicate' | 'lease_lost' | 'rejected';
  reason?: string;
}

export interface ReportAnswer {
  results: ReportResult[];
  tasks?: Assignment[];
}

/** What the agent is asked to run. */
export interface Assignment {
  runId: string;
  taskId: string;
  /** Which execution of the task this is, from 1. */
  attempt: number;
  leaseToken: string;
  leaseMs: number;
  template: string;
  runtime: string;
  /** The runtime's own part of the template; for `shell`: `ShellSpec`, for `http`: `HttpSpec`. */
  spec: unknown;
  /** Checked arguments of the task. */
  args: Record<string, ArgValue>;
  /** Names of secrets the agent resolves from its own file. */
  secrets: string[];
  /** Wall limit of this run. */
  timeoutMs: number;
  /** Output beyond its limit is cut; over any other the program is ended. */
  limits: { outputBytes: number; memoryBytes?: number; cpuCores?: number; cpuTimeMs?: number };
  idempotencyKey: string | null;
  /** What the last attempt saved, and how often the task has saved one; absent together. */
  checkpoint?: unknown;
  checkpointVersion?: number;
}

export type { ArgValue };

/** `spec` of the shell runtime: argv with `{{name}}` places already filled in; nothing is ever parsed by a shell. */
export interface ShellSpec {
  argv: string[];
  /** Further environment, names `[A-Z_][A-Z0-9_]*`. */
  env: Record<string, string>;
  /** Milliseconds between SIGTERM and SIGKILL. */
  graceMs: number;
  /** Exit code → error class, on top of the general rule (75 transient, 76 rate limited, 77 blocked, other non-zero permanent). */
  exitClasses: Record<string, ErrorClass>;
}

/** Agent API errors are problem JSON (RFC 9457); the agent acts on `code`. */
export interface ProblemJson {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  field?: string;
}

export { EFFECT_LIMITS, EFFECT_POLICIES, type EffectBeginAnswer, type EffectMarkAnswer };

/** Text that can be stored, shown and compared: no broken halves of characters, nothing that steers a terminal. */
const plainText = (max: number) =>
  z
    .string()
    .min(1, 'must not be empty')
    .max(max, `must be at most ${max} characters`)
    .refine((value) => value.isWellFormed() && !/[\u0000-\u001f\u007f]/.test(value), 'has a control character');
const freeText = (max: number) =>
  z
    .string()
    .max(max, `must be at most ${max} characters`)
    .refine((value) => value.isWellFormed() && !value.includes('\0'), 'has a NUL or half a character');

/** What makes two effects the same. */
export const effectName = {
  type: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, 'must be 1 to 64 letters, digits, dots, dashes or underscores'),
  key: plainText(EFFECT_LIMITS.key),
};

/** What a program says; the agent adds who it is. */
export const effectCallSchemas = {
  begin: z.strictObject({
    ...effectName,
    digest: plainText(EFFECT_LIMITS.digest).optional(),
    policy: z.enum(EFFECT_POLICIES).default('ask'),
  }),
  done: z.strictObject({ ...effectName, result: freeText(EFFECT_LIMITS.result).optional() }),
  /** `again`: it certainly did not take place; whoever begins it next is the first. */
  fail: z.strictObject({
    ...effectName,
    error: freeText(EFFECT_LIMITS.error).optional(),
    again: z.boolean().default(false),
  }),
};
export type EffectVerb = keyof typeof effectCallSchemas;

const effectHead = { ...caller, runId, leaseToken: token };
export const effectRequestSchemas = {
  begin: effectCallSchemas.begin.extend(effectHead),
  done: effectCallSchemas.done.extend(effectHead),
  fail: effectCallSchemas.fail.extend(effectHead),
};

/** What agents and the pools of a token may be called. */
export const fleetName = agentId;
