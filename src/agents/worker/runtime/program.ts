import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { endGroup, killGroup } from '../process-group.ts';
import type { StopReason } from './runtime.ts';

export interface ProgramOptions {
  argv: readonly string[];
  cwd: string;
  env: Record<string, string>;
  /** Between SIGTERM and SIGKILL, milliseconds. */
  graceMs: number;
  /** Aborted with a `StopReason`. */
  signal: AbortSignal;
  hurry: AbortSignal;
  /** Called before anything else happens after the spawn. */
  onSpawn(pgid: number): void;
}

export interface ProgramExit {
  exitCode: number | null;
  signal: NodeJS.Signals | null;
  stopped?: StopReason;
  /** Whether the agent ended it, for whatever reason: else a SIGKILL came from somebody else. */
  endedByUs: boolean;
}

/** After a program's end its own children may hold its output open; they get this long. */
const DRAIN_MS = 1_000;
/** After the last writer was killed, what lies in the pipe is there at once. */
const LAST_READ_MS = 250;

/** A program in a process group of its own: started without a shell, without input, ended with everything it has started. */
export class Program {
  readonly #child: ChildProcessByStdio<null, Readable, Readable>;
  readonly #options: ProgramOptions;
  readonly #exit: Promise<ProgramExit>;
  #ending: Promise<void> | undefined;
  #stopped: StopReason | undefined;

  private constructor(child: ChildProcessByStdio<null, Readable, Readable>, options: ProgramOptions) {
    this.#child = child;
    this.#options = options;
    const onStop = () => this.#stop();
    options.signal.addEventListener('abort', onStop, { once: true });
    this.#exit = new Promise((resolve) => {
      child.once('exit', (exitCode, signal) => {
        options.signal.removeEventListener('abort', onStop);
        resolve({ exitCode, signal, stopped: this.#stopped, endedByUs: this.#ending !== undefined });
      });
    });
    if (options.signal.aborted) onStop();
  }

  /** @throws NodeJS.ErrnoException where it could not be started */
  static async start(options: ProgramOptions): Promise<Program> {
    const [command, ...args] = options.argv as [string, ...string[]];
    const child = spawn(command, args, {
      cwd: options.cwd,
      env: options.env,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
      windowsHide: true,
    });
    if (child.pid === undefined) throw await new Promise((resolve) => child.once('error', resolve));
    options.onSpawn(child.pid);
    // Later errors (a signal that cannot be sent) are told by the group functions.
    child.on('error', () => undefined);
    return new Program(child, options);
  }

  get stdout(): Readable {
    return this.#child.stdout;
  }

  get stderr(): Readable {
    return this.#child.stderr;
  }

  get pgid(): number {
    return this.#child.pid!;
  }

  /** Ends it before its time, in order: it is over the limits of its run. */
  end(): void {
    this.#ending ??= endGroup(this.pgid, this.#options.graceMs, this.#options.hurry);
  }

  /**
   * Answers when the program and its whole group are gone. After an ordinary end, children that outlive it get a second to finish
   * writing and are then killed.
   * @param outputEnded resolves when both streams are read to their end
   */
  async over(outputEnded: Promise<unknown>): Promise<ProgramExit> {
    const exit = await this.#exit;
    if (this.#ending) await this.#ending;
    else {
      await Promise.race([outputEnded, delay(DRAIN_MS)]);
      await killGroup(this.pgid);
    }
    await Promise.race([outputEnded, delay(LAST_READ_MS)]);
    return exit;
  }

  #stop(): void {
    this.#stopped = this.#options.signal.reason as StopReason;
    // A result that nobody wants needs no orderly end, and another agent may run the task by now.
    const graceMs = this.#stopped === 'lost' ? 0 : this.#options.graceMs;
    // Both may be on: the shorter grace counts, and both are waited for.
    const before = this.#ending;
    this.#ending = Promise.all([before, endGroup(this.pgid, graceMs, this.#options.hurry)]).then(() => undefined);
  }
}
