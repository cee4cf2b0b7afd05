import { type ChildProcess, spawn } from 'node:child_process';
import { type BackoffPolicy, backoffMs } from '../../../backoff.ts';
import { messageOf } from '../../../errors.ts';
import type { Log } from '../../../log.ts';
import { Sleeper } from '../../../service.ts';
import { hasVersion, type InstallFolder, MAX_TRIES, type Trial } from './install-folder.ts';
import { RESTART_EXIT } from './restart-exit.ts';

/** What a supervised agent says to its supervisor. Versions on both sides differ: only ever add to it. */
export interface SupervisorNews {
  errand: 'registered';
  version: string;
}

export interface SupervisorOptions {
  install: InstallFolder;
  /** The program that runs while no version is installed, and what follows its path. */
  baseScript: string;
  nodeArgs: readonly string[];
  args: readonly string[];
  cwd: string;
  env: Readonly<Record<string, string>>;
  log: Log;
  /** Whether the gateway answers at all: without it no version can prove itself, and none is blamed. */
  isReachable(): Promise<boolean>;
  tuning?: Partial<SupervisorTuning>;
}

/** Waits, all milliseconds. */
export interface SupervisorTuning {
  /** A version on trial has to register within. */
  registerMs: number;
  /** And to live for so long from then on. */
  aliveMs: number;
  /** From SIGTERM to SIGKILL, for a version that has failed. */
  killMs: number;
  /** Before a start after an unexpected end. */
  restart: BackoffPolicy;
}

const TUNING: SupervisorTuning = {
  registerMs: 60_000,
  aliveMs: 120_000,
  killMs: 10_000,
  restart: { baseMs: 500, factor: 2, capMs: 30_000, jitter: 0.2 },
};

/** Exit codes after which a start would end the same way: stopped, wrong settings, refused or replaced. */
const FINAL_EXITS: ReadonlySet<number> = new Set([0, 2, 4]);

interface Plan {
  script: string;
  trial: Trial | undefined;
}

interface End {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Why a version on trial is to go; undefined where it was none or has passed. */
  failure: string | undefined;
}

/**
 * Runs the current version of an agent as a child process and starts it again when it ends. A version on trial has to register and stay
 * alive; else the one before it comes back. After three tries in vain it is not tried again. The child ends when this process
 * does, however that ends (its channel to us closes).
 */
export class Supervisor {
  /** Resolves with the exit code when there is nothing to start any more. */
  readonly ended: Promise<number>;
  readonly #options: SupervisorOptions;
  readonly #tuning: SupervisorTuning;
  readonly #sleeper = new Sleeper();
  #resolveEnded: (code: number) => void = () => undefined;
  #running: Promise<void> = Promise.resolve();
  #child: ChildProcess | undefined;
  #isStopping = false;
  #failures = 0;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#tuning = { ...TUNING, ...options.tuning };
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
  }

  async start(): Promise<void> {
    await this.#options.install.prepare();
    this.#running = this.#loop();
  }

  /** The child is told to stop; resolves when it has ended. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#child?.kill('SIGTERM');
    this.#sleeper.wake();
    await this.#running;
  }

  /** A second signal: the child ends its programs at once. */
  hurry(): void {
    this.#child?.kill('SIGTERM');
  }

  async #loop(): Promise<void> {
    while (!this.#isStopping) {
      const pauseMs = await this.#runOnce().catch((error: unknown) => {
        this.#options.log.error('supervisor.failed', { error: messageOf(error) });
        return this.#pause();
      });
      if (pauseMs === undefined) return;
      if (pauseMs > 0 && !this.#isStopping) await this.#sleeper.sleep(pauseMs);
    }
    this.#resolveEnded(0);
  }

  /** One life of the agent. Answers the pause before the next; undefined where there is none. */
  async #runOnce(): Promise<number | undefined> {
    const plan = await this.#plan();
    if (!plan) return 0;
    const startedAt = performance.now();
    const end = await this.#live(plan);
    const { log, install } = this.#options;
    if (this.#isStopping) {
      // It was not its fault: the next start is its first again.
      if (plan.trial && end.failure !== undefined) await install.uncountStart(plan.trial);
      return 0;
    }
    if (performance.now() - startedAt > this.#tuning.restart.capMs) this.#failures = 0;
    if (plan.trial && end.failure !== undefined) {
      const { tries, isBad } = await install.failTrial(plan.trial, end.failure);
      log.error('supervisor.rolled_back', { ...plan.trial, reason: end.failure, tries, isBad: isBad === true });
      return 0;
    }
    if (end.code === RESTART_EXIT && (await install.read()).trial) return 0;
    if (end.code !== null && FINAL_EXITS.has(end.code)) {
      this.#resolveEnded(end.code);
      return undefined;
    }
    const pauseMs = this.#pause();
    log.error('supervisor.agent_ended', { code: end.code, signal: end.signal, restartMs: pauseMs });
    return pauseMs;
  }

  #pause(): number {
    this.#failures += 1;
    return backoffMs(this.#tuning.restart, this.#failures);
  }

  /** What to start. Undefined: what was to be started cannot be, and has been replaced. */
  async #plan(): Promise<Plan | undefined> {
    const { install, log, baseScript } = this.#options;
    const { trial } = await install.read();
    if (trial) {
      const tries = await install.countStart(trial);
      const script = await install.entryOf(trial.version).catch(() => undefined);
      if (tries <= MAX_TRIES && script !== undefined) {
        await install.point(trial.version);
        return { script, trial };
      }
      await install.failTrial(
        trial,
        script === undefined ? 'it is not on the disk any more' : 'it was started in vain',
      );
      return undefined;
    }
    const version = await install.current();
    if (version === null) return { script: baseScript, trial: undefined };
    const script = await install.entryOf(version).catch(() => undefined);
    if (script !== undefined) return { script, trial: undefined };
    log.error('supervisor.version_missing', { version, isThere: await hasVersion(install, version) });
    await install.point(null);
    return undefined;
  }

  #live(plan: Plan): Promise<End> {
    const { args, nodeArgs, cwd, env, log } = this.#options;
    log.info('supervisor.starting', { script: plan.script, trial: plan.trial?.version });
    const child = spawn(process.execPath, [...nodeArgs, plan.script, ...args], {
      cwd,
      env: { ...env, ERRAND_SUPERVISED: '1' },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      // Its own group: Ctrl-C reaches only us, and we stop it in order.
      detached: true,
    });
    this.#child = child;
    if (this.#isStopping) child.kill('SIGTERM');
    const watch = plan.trial && new TrialWatch(plan.trial, child, this.#options, this.#tuning);
    return new Promise((resolve) => {
      let spawnError: Error | undefined;
      const over = (code: number | null, signal: NodeJS.Signals | null) => {
        this.#child = undefined;
        const how = spawnError?.message ?? `it ended with ${signal ?? `exit code ${code}`}`;
        void Promise.resolve(watch?.over(how)).then((failure) => resolve({ code, signal, failure }));
      };
      child.on('error', (error) => {
        spawnError = error;
        if (child.pid === undefined) over(null, null);
      });
      child.on('exit', over);
    });
  }
}

/** Judges a version on trial while it runs. */
class TrialWatch {
  readonly #trial: Trial;
  readonly #child: ChildProcess;
  readonly #options: SupervisorOptions;
  readonly #tuning: SupervisorTuning;
  #timer: NodeJS.Timeout;
  #kill: NodeJS.Timeout | undefined;
  #failure: string | undefined;
  #isRegistered = false;
  #isOver = false;
  /** Being written down. */
  #passing: Promise<boolean> | undefined;

  constructor(trial: Trial, child: ChildProcess, options: SupervisorOptions, tuning: SupervisorTuning) {
    this.#trial = trial;
    this.#child = child;
    this.#options = options;
    this.#tuning = tuning;
    this.#timer = setTimeout(() => void this.#late(), tuning.registerMs);
    child.on('message', (news: Partial<SupervisorNews>) => this.#hear(news));
  }

  /** The child has ended. Answers why the version has failed; undefined where it had passed. */
  async over(how: string): Promise<string | undefined> {
    this.#isOver = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#kill);
    if (await this.#passing) return undefined;
    return (
      this.#failure ?? `${how} ${this.#isRegistered ? 'soon after it had registered' : 'before it had registered'}`
    );
  }

  #hear(news: Partial<SupervisorNews> | null): void {
    if (news?.errand !== 'registered' || this.#isRegistered || this.#failure !== undefined) return;
    this.#isRegistered = true;
    clearTimeout(this.#timer);
    if (news.version !== this.#trial.version) {
      this.#fail(`it says that it is version ${JSON.stringify(String(news.version).slice(0, 32))}`);
      return;
    }
    this.#timer = setTimeout(() => {
      this.#passing = this.#pass();
    }, this.#tuning.aliveMs);
  }

  /** Not registered in time. While the gateway cannot be reached the time begins anew. */
  async #late(): Promise<void> {
    const isReachable = await this.#options.isReachable().catch(() => false);
    if (this.#isRegistered || this.#failure !== undefined || this.#isOver) return;
    if (isReachable) this.#fail(`it has not registered within ${Math.round(this.#tuning.registerMs / 1_000)} s`);
    else this.#timer = setTimeout(() => void this.#late(), this.#tuning.registerMs);
  }

  async #pass(): Promise<boolean> {
    const { install, log } = this.#options;
    try {
      await install.passTrial(this.#trial);
      log.info('supervisor.version_passed', { version: this.#trial.version });
      return true;
    } catch (error) {
      // It goes on running; the next start judges it again.
      log.error('supervisor.failed', { error: messageOf(error) });
      return false;
    }
  }

  #fail(reason: string): void {
    this.#failure = reason;
    this.#child.kill('SIGTERM');
    this.#kill = setTimeout(() => this.#child.kill('SIGKILL'), this.#tuning.killMs);
  }
}
