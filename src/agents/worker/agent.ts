import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { BackoffPolicy } from '../../backoff.ts';
import type { Clock } from '../../clock.ts';
import type { AgentSettings } from '../../config/agent.ts';
import { randomToken } from '../../ids.ts';
import type { Log } from '../../log.ts';
import type { Service } from '../../service.ts';
import { GatewayClient } from './client.ts';
import { EffectsDoor } from './effects-door.ts';
import { EffectsForwarder } from './effects-forwarder.ts';
import { claimFolder, type FolderClaim } from './folder-claim.ts';
import { snapshotOf } from './health-processes.ts';
import { HeartbeatLoop } from './heartbeat-loop.ts';
import { LeaseGuard, type LeaseGuardOptions } from './lease-guard.ts';
import { orphanCheckpoints } from './orphan-checkpoints.ts';
import { endOrphans } from './orphans.ts';
import { currentBootId } from './process-group.ts';
import { PullLoop } from './pull-loop.ts';
import { Registration } from './registration.ts';
import { ReportSender } from './report-sender.ts';
import type { RetryOptions } from './retry.ts';
import { RunJournal } from './run-journal.ts';
import { RunTable } from './run-table.ts';
import { type BuiltRuntimesOptions, builtRuntimes } from './runtime/built.ts';
import { removeRunFolder } from './runtime/run-folder.ts';
import type { Runtime } from './runtime/runtime.ts';
import { SelfCheck, type SelfCheckOptions } from './self-check.ts';
import { Spool } from './spool.ts';
import { RESTART_EXIT } from './upgrade/restart-exit.ts';
import {
  UPGRADE_TUNING,
  type UpgradeHost,
  type Upgrader,
  type UpgradeTuning,
  upgraderFor,
} from './upgrade/upgrader.ts';

export interface AgentOptions {
  settings: AgentSettings;
  log: Log;
  clock: Clock;
  /** Version of this program, shown by the gateway. */
  version: string;
  /** Default: all of this build. Only those that `settings.runtimes` names are offered. */
  runtimes?: ReadonlyMap<string, Runtime>;
  tuning?: Partial<AgentTuning>;
  /** Present under a supervisor that starts what the installation names as current: only then may this agent upgrade itself. */
  supervisor?: { registered(version: string): void };
}

/** Waits, all milliseconds; the defaults are right outside of tests. */
export interface AgentTuning {
  /** Pauses while the gateway cannot be reached. */
  backoff: BackoffPolicy;
  /** Pause after a refusal that only a person can end. */
  slowRetryMs: number;
  /** How long the gateway may hold a pull. */
  pullWaitMs: number;
  /** How long a stop goes on trying to hand in the last reports. */
  lastReportsMs: number;
  upgrade: UpgradeTuning;
  /** How often this process looks after itself, and from where on that is told. */
  selfCheck?: Pick<SelfCheckOptions, 'everyMs' | 'limits'>;
  /** How often limits are looked at, and how long a run may be over them. */
  limits?: BuiltRuntimesOptions['limits'];
}

const TUNING: AgentTuning = {
  backoff: { baseMs: 500, factor: 2, capMs: 10_000, jitter: 0.5 },
  slowRetryMs: 60_000,
  pullWaitMs: 25_000,
  lastReportsMs: 5_000,
  upgrade: UPGRADE_TUNING,
};

/** The last word is a courtesy: the gateway finds out by itself, later. */
const FAREWELL_MS = 500;

/** Why an agent ended: told to, because a newer instance of the same id has registered, or for its supervisor to start a newer version. */
interface AgentEnd {
  reason: 'stopped' | 'replaced' | 'upgraded';
  /** For the command line: 0, 4 (refused or conflict), or what the supervisor starts again after. */
  exitCode: 0 | 4 | typeof RESTART_EXIT;
}

export interface Agent extends Service {
  readonly instanceId: string;
  /** Resolves when the agent is over. Nothing restarts by itself: a replaced instance must not fight its successor. */
  readonly ended: Promise<AgentEnd>;
  /** Tasks that run or wait for a slot here. */
  busy(): number;
  isRegistered(): boolean;
  /** Ends all running programs at once; for the second signal. A `stop` that waits for them then goes on. */
  hurry(): void;
}

/**
 * An agent: pulls tasks from the gateway, runs them, brings the results home. `start` resolves when this machine is prepared; the
 * gateway may be away, then it is tried for ever. `stop` takes nothing new, gives running programs their grace, hands in what it can;
 * what it cannot is in the spool folder for the next start.
 */
export function createAgent(options: AgentOptions): Agent {
  return new AgentProcess(options);
}

interface Parts {
  client: GatewayClient;
  door: EffectsDoor;
  spool: Spool;
  journal: RunJournal;
  runs: RunTable;
  sender: ReportSender;
  registration: Registration;
  pull: PullLoop;
  heartbeat: HeartbeatLoop;
  leases: LeaseGuard;
  upgrader: Upgrader | undefined;
  selfCheck: SelfCheck;
  leaveFolder(): Promise<void>;
}

class AgentProcess implements Agent {
  readonly instanceId = randomToken(18);
  readonly ended: Promise<AgentEnd>;
  readonly #options: AgentOptions;
  readonly #tuning: AgentTuning;
  readonly #hurry = new AbortController();
  #resolveEnded: (end: AgentEnd) => void = () => undefined;
  #parts: Parts | undefined;
  #heartbeatMs = 10_000;
  #isReplaced = false;
  /** Takes nothing new: a newer version is about to take over. */
  #isQuiet = false;
  #isUpgraded = false;
  #stopping: Promise<void> | undefined;

  constructor(options: AgentOptions) {
    this.#options = options;
    this.#tuning = { ...TUNING, ...options.tuning };
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
  }

  busy(): number {
    return this.#parts?.runs.busy ?? 0;
  }

  isRegistered(): boolean {
    return this.#parts?.registration.isDone ?? false;
  }

  hurry(): void {
    this.#hurry.abort();
  }

  /** @throws AppError `conflict` while another process uses the spool folder; what the disk says */
  async start(): Promise<void> {
    const { settings, log } = this.#options;
    for (const secret of [settings.token, ...settings.secrets.values()]) log.addSecret(secret);
    for (const warning of settings.warnings) log.warn('agent.warning', { warning });
    const bootId = await currentBootId();
    const claim = await claimFolder(settings.spoolDir, bootId);
    try {
      this.#parts = await this.#prepare(bootId, claim);
    } catch (error) {
      await claim.leave();
      throw error;
    }
    await this.#parts.door.start();
    await this.#parts.pull.start();
    await this.#parts.heartbeat.start();
    await this.#parts.upgrader?.start();
    await this.#parts.selfCheck.start();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#shutDown();
    return this.#stopping;
  }

  async #prepare(bootId: string, { leave: leaveFolder, isCopy }: FolderClaim): Promise<Parts> {
    const { settings, log } = this.#options;
    await mkdir(settings.workDir, { recursive: true, mode: 0o700 });
    const journal = new RunJournal({ dir: settings.spoolDir, bootId, log });
    const { groups: started } = await journal.read();
    // What a copied journal names is run by the original, which is alive.
    const groups = isCopy ? [] : started;
    await endOrphans(groups, bootId, log, settings.workDir);
    const spool = new Spool({ dir: settings.spoolDir, log });
    const unsent = await spool.open();
    const saved = await orphanCheckpoints(groups, { ...settings, leftovers: unsent, clock: this.#options.clock, log });
    spool.add(saved);
    for (const { runId } of groups) {
      if (/^[a-z0-9]+$/i.test(runId)) await removeRunFolder(join(settings.workDir, runId)).catch(() => undefined);
    }
    journal.begin();
    const known = new Set(unsent.map(({ key }) => key));
    const leftovers = [...unsent, ...saved.filter(({ key }) => !known.has(key))];
    return { ...this.#assemble({ bootId, journal, spool, leftovers }), journal, spool, leaveFolder };
  }

  #assemble(base: {
    bootId: string;
    journal: RunJournal;
    spool: Spool;
    leftovers: Awaited<ReturnType<Spool['open']>>;
  }) {
    const { settings, log, version } = this.#options;
    const client = new GatewayClient(settings);
    const retry = this.#retry();
    const caller = JSON.stringify({ agentId: settings.agentId, instanceId: this.instanceId }).slice(1, -1);
    const forwarder = new EffectsForwarder({ client, caller, log });
    const door = new EffectsDoor({ dir: settings.workDir, name: settings.spoolDir, forwarder, log });
    const runtimes = this.#runtimes({ door, client, caller });
    const leases: LeaseGuard = this.#leases(caller, {
      active: () => runs.active(),
      obey: (told) => heartbeat.obey(told),
    });
    const runs: RunTable = new RunTable({
      leases,
      concurrency: settings.concurrency,
      runtimes,
      policy: settings,
      journal: base.journal,
      log,
      onSlotFree: () => pull.wake(),
      mayTake: () => !this.#isQuiet && base.spool.hasRoom,
      context: {
        clock: this.#options.clock,
        secrets: settings.secrets,
        hurry: this.#hurry.signal,
        send: (item) => sender.push(item),
        spawned: (run, pgid) => base.journal.spawned(run, pgid),
      },
    });
    const sender = new ReportSender({ client, caller, spool: base.spool, runs, retry, onTurn: () => pull.wake() });
    const registration = new Registration({
      ...{ settings, version, caller, client, sender, log },
      ...{ runtimes: [...runtimes.keys()], bootId: base.bootId, leftovers: base.leftovers },
      onRegistered: (answer) => {
        this.#heartbeatMs = answer.heartbeatMs;
        leases.leaseMs = answer.leaseMs;
        this.#options.supervisor?.registered(version);
        heartbeat.wake();
      },
    });
    const pull = new PullLoop({
      client,
      caller,
      runs,
      retry,
      waitMs: this.#tuning.pullWaitMs,
      ensureRegistered: (signal) => registration.ensure(signal),
    });
    const heartbeat = new HeartbeatLoop({
      ...{ client, caller, runs, retry, leases },
      heartbeatMs: () => this.#heartbeatMs,
      isHealthy: () => registration.isDone && (pull.isAlive() || this.#isQuiet || this.#stopping !== undefined),
      onProbe: (runId) => void this.#tellSnapshot(runs, runId),
      extras: () => ({ version, deadReports: base.spool.dead, upgrade: upgrader?.status() }),
      onRelease: (release) => upgrader?.offer(release),
    });
    const host = this.#upgradeHost({ pull, sender, runs });
    const upgrader = upgraderFor({ ...this.#options, client, tuning: this.#tuning.upgrade }, host);
    const selfCheck = this.#selfCheck({ client, caller, runs, spool: base.spool }, registration);
    return { client, door, runs, sender, registration, pull, heartbeat, leases, upgrader, selfCheck };
  }

  #selfCheck(
    parts: Pick<SelfCheckOptions, 'client' | 'caller' | 'runs' | 'spool'>,
    registration: Registration,
  ): SelfCheck {
    const { settings, log, version } = this.#options;
    return new SelfCheck({
      ...parts,
      ...{ log, version, spoolDir: settings.spoolDir, workDir: settings.workDir },
      ...this.#tuning.selfCheck,
      isRegistered: () => registration.isDone,
    });
  }

  #leases(caller: string, loop: Pick<LeaseGuardOptions, 'active' | 'obey'>): LeaseGuard {
    const { settings, log } = this.#options;
    return new LeaseGuard({ client: settings, caller, log, onReplaced: () => this.#replaced(), ...loop });
  }

  #upgradeHost({ pull, sender, runs }: Pick<Parts, 'pull' | 'sender' | 'runs'>): UpgradeHost {
    return {
      isBusy: () => runs.busy > 0 || !sender.isIdle,
      quiesce: () => {
        this.#isQuiet = true;
        return pull.stop();
      },
      resume: async () => {
        this.#isQuiet = false;
        if (!this.#stopping) await pull.start();
      },
      restart: () => {
        this.#isUpgraded = true;
        this.stop().catch((error: unknown) => this.#options.log.error('agent.stop_failed', { error }));
      },
    };
  }

  #runtimes(parts: Pick<BuiltRuntimesOptions, 'door' | 'client' | 'caller'>): ReadonlyMap<string, Runtime> {
    const { settings, log, runtimes } = this.#options;
    const built = runtimes ?? builtRuntimes({ settings, log, ...parts, limits: this.#tuning.limits });
    return new Map([...built].filter(([name]) => settings.runtimes.includes(name)));
  }

  /** The gateway has not heard of this run for long: it is told what its processes do. */
  async #tellSnapshot(runs: RunTable, runId: string): Promise<void> {
    const run = runs.started().find((one) => one.runId === runId);
    if (!run) return;
    try {
      run.tellSnapshot(await snapshotOf(run.pgid));
    } catch (error) {
      this.#options.log.warn('run.snapshot_failed', { runId, error });
    }
  }

  #retry(): RetryOptions {
    return {
      log: this.#options.log,
      backoff: this.#tuning.backoff,
      slowRetryMs: this.#tuning.slowRetryMs,
      onReplaced: () => this.#replaced(),
      onUnknown: () => this.#parts?.registration.forget(),
    };
  }

  /** The gateway has put this instance's runs back into the queue: nothing of it may go on. */
  #replaced(): void {
    if (this.#isReplaced) return;
    this.#isReplaced = true;
    const { log, settings } = this.#options;
    log.error('agent.replaced', {
      agentId: settings.agentId,
      advice: 'a newer instance uses this id; this one ends for good',
    });
    this.#parts?.sender.close();
    this.stop().catch((error: unknown) => log.error('agent.stop_failed', { error }));
  }

  async #shutDown(): Promise<void> {
    const parts = this.#parts;
    if (parts) {
      this.#options.log.info('agent.stopping', { busy: parts.runs.busy });
      void parts.upgrader?.stop();
      void parts.selfCheck.stop();
      const runsOver = parts.runs.stopAll(this.#isReplaced ? 'lost' : 'stop');
      await parts.pull.stop();
      await runsOver;
      await parts.door.stop();
      if (!this.#isReplaced) await parts.sender.drain(this.#tuning.lastReportsMs);
      await parts.heartbeat.stop();
      await parts.leases.stop();
      if (!this.#isReplaced && parts.registration.isDone)
        await parts.heartbeat.farewell(FAREWELL_MS).catch(() => undefined);
      await parts.client.close();
      await parts.spool.close();
      parts.journal.close();
      await parts.leaveFolder();
    }
    this.#resolveEnded(this.#end());
  }

  #end(): AgentEnd {
    if (this.#isReplaced) return { reason: 'replaced', exitCode: 4 };
    return this.#isUpgraded ? { reason: 'upgraded', exitCode: RESTART_EXIT } : { reason: 'stopped', exitCode: 0 };
  }
}
