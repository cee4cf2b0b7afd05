import { messageOf } from '../../../errors.ts';
import type { Log } from '../../../log.ts';
import { type ShellSpec, WIRE_LIMITS } from '../../protocol.ts';
import type { DoorRun, EffectsDoor } from '../effects-door.ts';
import { OutputStream } from './output-stream.ts';
import { Program, type ProgramExit } from './program.ts';
import { ProgramFiles } from './program-files.ts';
import {
  countArtifacts,
  makeRunFolder,
  parseOutputs,
  programEnvironment,
  type RunFolder,
  readProgramText,
  removeRunFolder,
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
}

const DEFAULT_OUTPUT_BYTES = 1024 * 1024;

/** The `shell` runtime: starts a program by its argument list. No shell ever parses anything, whatever the name says. */
export class ShellRuntime implements Runtime {
  readonly #options: ShellRuntimeOptions;

  constructor(options: ShellRuntimeOptions) {
    this.#options = options;
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
    const files = new ProgramFiles(folder, job, (text) => stderr.remark(text));
    files.start();
    const exit = await program.over(Promise.all([stdout.ended, stderr.ended]));
    return endOf(exit, spec, { folder, files, stdout, stderr });
  }
}

function runOf({ assignment: { runId, leaseToken }, masking }: Job): DoorRun {
  return { runId, leaseToken, masking };
}

interface Remains {
  folder: RunFolder;
  files: ProgramFiles;
  stdout: OutputStream;
  stderr: OutputStream;
}

/** Reads what the program left and judges. */
async function endOf(exit: ProgramExit, spec: ShellSpec, remains: Remains): Promise<RunEnd> {
  const { folder, files, stdout, stderr } = remains;
  await files.finish();
  const complaints: string[] = [];
  const parsed = parseOutputs((await readProgramText(folder.output)) ?? '');
  const artifacts = await countArtifacts(folder);
  if (artifacts > 0) complaints.push(`${artifacts} files in ERRAND_ARTIFACTS were not collected: not available yet`);
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
