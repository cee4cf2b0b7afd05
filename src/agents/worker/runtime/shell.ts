import { messageOf } from '../../../errors.ts';
import type { Log } from '../../../log.ts';
import { type ShellSpec, WIRE_LIMITS } from '../../protocol.ts';
import type { DoorRun, EffectsDoor } from '../effects-door.ts';
import { type OomCount, OomKills } from '../limits-oom.ts';
import { RunMeter, type RunMeterOptions, type Shortage } from '../limits-run.ts';
import { LimitSampler } from '../limits-sampler.ts';
import { killStrays } from '../process-group.ts';
import { type ArtifactSender, findArtifacts } from './artifacts.ts';
import { OutputStream } from './output-stream.ts';
import { Program, type ProgramExit } from './program.ts';
import { ProgramFiles } from './program-files.ts';
import {
  makeRunFolder,
  parseOutputs,
  programEnvironment,
  type RunFolder,
  readProgramText,
  removeRunFolder,
  runVariable,
} from './run-folder.ts';
import { type Job, type RunEnd, type Runtime, type StopReason, stoppedEnd } from './runtime.ts';
import { notStarted, verdictOn } from './verdict.ts';

export interface ShellRuntimeOptions {
  workDir: string;
  /** The longest a program may take to end in order, milliseconds. */
  killGraceMs: number;
  log: Log;
  /** Where programs may ask about side effects; absent: nowhere. */
  door?: Pick<EffectsDoor, 'admit'>;
  /** Brings the files of a run to the gateway; absent: they are told of and lost. */
  artifacts?: Pick<ArtifactSender, 'send'>;
  /** How often limits are looked at, and how long a run may be over them; milliseconds. */
  tuning?: { sampleMs?: number; overMs?: number };
  /** For tests. */
  oomKills?: OomKills;
}

const DEFAULT_OUTPUT_BYTES = 1024 * 1024;
/** After that process ids may have come round. */
const LONG_RUN_MS = 10_000;

/** The `shell` runtime: starts a program by its argument list. No shell ever parses anything, whatever the name says. */
export class ShellRuntime implements Runtime {
  readonly #options: ShellRuntimeOptions;
  readonly #meters: RunMeterOptions;

  constructor(options: ShellRuntimeOptions) {
    this.#options = options;
    this.#meters = {
      sampler: new LimitSampler({ log: options.log, ...options.tuning }),
      oomKills: options.oomKills ?? new OomKills(),
    };
  }

  async run(job: Job): Promise<RunEnd> {
    const spec = readSpec(job.assignment.spec);
    if (typeof spec === 'string') return { type: 'failed', errorClass: 'permanent', error: spec };
    if (job.signal.aborted) return stoppedEnd(job.signal.reason as StopReason);
    const folder = await makeRunFolder(this.#options.workDir, job.assignment);
    const admission = this.#options.door?.admit(runOf(job));
    try {
      return await this.#runIn(folder, spec, job, admission?.env ?? {});
    } finally {
      admission?.leave();
      await removeRunFolder(folder.root).catch((error: unknown) =>
        this.#options.log.warn('run.folder_left', { folder: folder.root, error: messageOf(error) }),
      );
    }
  }

  async #runIn(
    folder: RunFolder,
    spec: ShellSpec,
    job: Job,
    doorEnv: Readonly<Record<string, string>>,
  ): Promise<RunEnd> {
    let program: Program;
    const killsBefore = await this.#meters.oomKills.count();
    const startedAt = performance.now();
    try {
      program = await Program.start({
        argv: spec.argv,
        cwd: folder.work,
        env: { ...programEnvironment(folder, job.assignment, spec.env, job.secrets), ...doorEnv },
        graceMs: Math.min(spec.graceMs, this.#options.killGraceMs),
        signal: job.signal,
        hurry: job.hurry,
        onSpawn: (pgid) => job.spawned(pgid),
      });
    } catch (error) {
      return notStarted(error as NodeJS.ErrnoException, spec);
    }
    const stdout = outputOf(program, 'stdout', job);
    const stderr = outputOf(program, 'stderr', job);
    const remark = (text: string) => stderr.remark(text);
    const files = new ProgramFiles(folder, job, remark);
    const meter = this.#meter(program, killsBefore, job, remark);
    files.start();
    const exit = await program.over(Promise.all([stdout.ended, stderr.ended]));
    const shortage = await meter.finish(exit);
    const ranLong = performance.now() - startedAt > LONG_RUN_MS;
    const strays = await killStrays({ pgid: program.pgid, variable: runVariable(folder.root), ranLong });
    for (const text of [shortage.remark, strayRemark(strays)]) if (text !== undefined) remark(text);
    return this.#endOf({ ...exit, ...shortage }, spec, { job, folder, files, stdout, stderr });
  }

  #meter(program: Program, killsBefore: OomCount | undefined, job: Job, warn: (text: string) => void): RunMeter {
    const { runId, limits } = job.assignment;
    const { memoryBytes, cpuCores, cpuTimeMs } = limits ?? {};
    return new RunMeter(this.#meters, killsBefore, {
      ...{ runId, pgid: program.pgid, limits: { memoryBytes, cpuCores, cpuTimeMs } },
      warn,
      exceeded: () => program.end(),
    });
  }

  /** Reads what the program left and judges. */
  async #endOf(exit: ProgramExit & Shortage, spec: ShellSpec, remains: Remains): Promise<RunEnd> {
    const { job, folder, files, stdout, stderr } = remains;
    await files.finish();
    const parsed = parseOutputs((await readProgramText(folder.output)) ?? '');
    const complaints = await this.#bringArtifacts(exit, job, folder);
    stdout.finish();
    stderr.finish([...complaints, ...parsed.complaints]);
    return verdictOn(
      {
        ...exit,
        stdout: stdout.text(),
        stderr: stderr.text(),
        summary: await readProgramText(folder.summary),
        question: await readProgramText(folder.question),
        retryAfter: await readProgramText(folder.retryAfter),
        outputs: parsed.outputs,
      },
      spec.exitClasses,
    );
  }

  /** Before the end is told: afterwards the run has no lease any more. Answers what did not work, one sentence each. */
  async #bringArtifacts({ stopped }: ProgramExit, job: Job, folder: RunFolder): Promise<string[]> {
    if (stopped !== undefined && stopped !== 'timeout') return [];
    const { files, complaints } = await findArtifacts(folder.artifacts);
    if (files.length === 0) return complaints;
    const { artifacts } = this.#options;
    if (!artifacts) return [...complaints, `${files.length} files in ERRAND_ARTIFACTS were not collected`];
    return [...complaints, ...(await artifacts.send(job, files))];
  }
}

function runOf({ assignment: { runId, leaseToken }, masking }: Job): DoorRun {
  return { runId, leaseToken, masking };
}

interface Remains {
  job: Job;
  folder: RunFolder;
  files: ProgramFiles;
  stdout: OutputStream;
  stderr: OutputStream;
}

function strayRemark({ found, left }: { found: number; left: number }): string | undefined {
  if (found + left === 0) return undefined;
  const rest = left === 0 ? '' : `; ${left} could not be ended`;
  return `${found} processes had left the process group of the run and were killed${rest}`;
}

function outputOf(program: Program, stream: 'stdout' | 'stderr', job: Job): OutputStream {
  return new OutputStream(program[stream], {
    stream,
    masking: job.masking,
    capBytes: job.assignment.limits?.outputBytes ?? DEFAULT_OUTPUT_BYTES,
    keepBytes: stream === 'stdout' ? WIRE_LIMITS.summary - 100 : WIRE_LIMITS.error,
    emit: (body) => job.emit(body),
  });
}

/** The spec with its defaults, or what is wrong with it. The gateway checks templates; this only keeps nonsense from being run. */
function readSpec(spec: unknown): ShellSpec | string {
  const { argv, env = {}, graceMs = 10_000, exitClasses = {} } = (spec ?? {}) as Partial<ShellSpec>;
  const isArgv =
    Array.isArray(argv) && argv.length > 0 && argv.every((item) => typeof item === 'string') && argv[0] !== '';
  if (!isArgv) return 'the template has no command';
  const bad = Object.entries(env).find(
    ([name, value]) => !/^[A-Z_][A-Z0-9_]*$/.test(name) || typeof value !== 'string',
  );
  if (bad)
    return `the template sets an environment variable with the impossible name or value ${JSON.stringify(bad[0])}`;
  return { argv, env, graceMs, exitClasses };
}
