import type { KeyObject } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { type BackoffPolicy, backoffMs } from '../../../backoff.ts';
import type { Clock } from '../../../clock.ts';
import type { AgentSettings } from '../../../config/agent.ts';
import { AppError, messageOf } from '../../../errors.ts';
import { randomToken } from '../../../ids.ts';
import type { Log } from '../../../log.ts';
import { Poller, type Service } from '../../../service.ts';
import { isNewerVersion } from '../../../version.ts';
import { RELEASE_VERSION, type ReleaseOffer, type UpgradeStatus } from '../../protocol.ts';
import type { GatewayClient } from '../client.ts';
import { unpack } from './archive.ts';
import { download } from './download.ts';
import { entryIn, type Failure, InstallFolder } from './install-folder.ts';
import { isSignedBy } from './signature.ts';

/** The agent that is to be upgraded. */
export interface UpgradeHost {
  /** Whether anything runs, waits for a slot or has not been handed in. */
  isBusy(): boolean;
  /** From here on nothing new is taken. */
  quiesce(): Promise<void>;
  /** Takes tasks again. */
  resume(): Promise<void>;
  /** Ends the process, for its supervisor to start the current version. */
  restart(): void;
}

export interface UpgraderOptions {
  install: InstallFolder;
  /** What runs now. */
  version: string;
  /** Present: packages without a signature of this key are refused. */
  key: KeyObject | undefined;
  client: GatewayClient;
  host: UpgradeHost;
  clock: Clock;
  log: Log;
  tuning: UpgradeTuning;
}

/** Waits, all milliseconds. */
export interface UpgradeTuning {
  /** Between tries of one version, and of a download that was cut off. */
  tryPause: BackoffPolicy;
  /** An agent that is never idle takes nothing new after so long. */
  patienceMs: number;
  /** How often it is looked whether the agent is idle. */
  idleCheckMs: number;
}

export const UPGRADE_TUNING: UpgradeTuning = {
  tryPause: { baseMs: 60_000, factor: 5, capMs: 1_800_000, jitter: 0.2 },
  patienceMs: 3_600_000,
  idleCheckMs: 500,
};

/** The upgrader of an agent; undefined where its owner wants none, or nobody would start the next version. */
export function upgraderFor(
  agent: Pick<UpgraderOptions, 'version' | 'client' | 'clock' | 'log' | 'tuning'> & {
    settings: Pick<AgentSettings, 'autoUpgrade' | 'installDir' | 'upgradeKey'>;
    supervisor?: object;
  },
  host: UpgradeHost,
): Upgrader | undefined {
  const { settings, supervisor, clock, log } = agent;
  if (settings.autoUpgrade === 'off') return undefined;
  if (!supervisor) {
    log.warn('agent.warning', { warning: 'AGENT_AUTO_UPGRADE: works under `errand agent --supervise` only' });
    return undefined;
  }
  const install = new InstallFolder(settings.installDir, clock);
  return new Upgrader({ ...agent, install, key: settings.upgradeKey, host });
}

/** Nothing to do until an offer comes. */
const REST_MS = 3_600_000;
/** The version that runs may still be on trial itself. */
const ON_TRIAL_MS = 10_000;

/**
 * Brings the package that the gateway names onto this machine and hands over to it: loaded and checked while tasks run, made the current
 * version when nothing runs. Whether it works is the supervisor's to judge. Only what is newer than this version is taken, so that
 * nobody can bring back an old one with an old signature.
 */
export class Upgrader implements Service {
  readonly #options: UpgraderOptions;
  readonly #poller: Poller;
  #offer: ReleaseOffer | undefined;
  #status: UpgradeStatus | undefined;
  /** The package that is unpacked and ready. */
  #ready: string | undefined;
  #waitingSince: number | undefined;

  constructor(options: UpgraderOptions) {
    this.#options = options;
    this.#poller = new Poller({
      runOnce: (signal) => this.#runOnce(signal),
      onError: (error, failures) => this.#failed(error, failures),
    });
  }

  async start(): Promise<void> {
    await this.#options.install.prepare();
    await this.#poller.start();
  }

  stop(): Promise<void> {
    return this.#poller.stop();
  }

  /** What the gateway names, as often as it does. */
  offer(offer: ReleaseOffer): void {
    const known = this.#offer;
    if (known?.sha256 === offer.sha256 && known.version === offer.version && known.signature === offer.signature)
      return;
    this.#offer = offer;
    this.#status = undefined;
    this.#waitingSince = undefined;
    this.#poller.wake();
  }

  /** For the heartbeat; undefined where there is nothing to tell. */
  status(): UpgradeStatus | undefined {
    return this.#status;
  }

  /** One look at what is to be done; answers when to look again. */
  async #runOnce(signal: AbortSignal): Promise<number> {
    const offer = this.#offer;
    if (!offer || !isNewerVersion(offer.version, this.#options.version)) return REST_MS;
    const state = await this.#options.install.read();
    if (state.trial) return ON_TRIAL_MS;
    const failure = Object.hasOwn(state.failures, offer.sha256) ? state.failures[offer.sha256] : undefined;
    const pauseMs = this.#verdict(offer, failure);
    if (pauseMs > 0) return pauseMs;
    if (this.#ready !== offer.sha256 && !(await this.#fetch(offer, failure?.tries ?? 0, signal))) return 0;
    this.#tell(offer, 'waiting', failure?.tries ?? 0);
    if (!this.#isTime()) return this.#options.tuning.idleCheckMs;
    await this.#handOver(offer, signal);
    return REST_MS;
  }

  /** How long nothing is to be done about this offer, milliseconds. */
  #verdict(offer: ReleaseOffer, failure: Failure | undefined): number {
    const { key, clock, tuning } = this.#options;
    if (!RELEASE_VERSION.test(offer.version) || !/^[0-9a-f]{64}$/.test(offer.sha256)) {
      this.#tell(offer, 'refused', 0, 'the gateway names no valid version or sha256');
      return REST_MS;
    }
    if (key && !isSignedBy(offer, key)) {
      const what = offer.signature === null ? 'it has no signature' : 'its signature is not of AGENT_UPGRADE_KEY';
      this.#tell(offer, 'refused', 0, what);
      return REST_MS;
    }
    if (!failure) return 0;
    if (failure.isBad) {
      this.#tell(offer, 'failed', failure.tries, failure.reason);
      return REST_MS;
    }
    const pauseMs = backoffMs({ ...tuning.tryPause, jitter: 0 }, failure.tries);
    // A clock that was set back must not keep it waiting for longer than the pause.
    const leftMs = Math.min(pauseMs, failure.at + pauseMs - clock.now());
    if (leftMs > 0) this.#tell(offer, 'waiting', failure.tries, failure.reason);
    return leftMs;
  }

  /** Answers whether the package is ready; else it was of no use, which has been counted. */
  async #fetch(offer: ReleaseOffer, tries: number, signal: AbortSignal): Promise<boolean> {
    const { install, client, log } = this.#options;
    this.#tell(offer, 'loading', tries);
    const file = install.path(`package-${offer.sha256}`);
    const folder = install.path('versions', `.unpack-${randomToken(6)}`);
    try {
      await download(client, offer, file, signal);
      await unpack(file, folder);
      await entryIn(folder);
      await install.adopt(folder, offer.version);
      await rm(file, { force: true });
      this.#ready = offer.sha256;
      return true;
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      if (!(error instanceof AppError) || error.code !== 'invalid_request' || 'verdict' in error) throw error;
      await rm(file, { force: true });
      const failure = await install.packageFailed(offer, error.message);
      log.error('upgrade.package_failed', { version: offer.version, reason: error.message, tries: failure.tries });
      return false;
    }
  }

  /** Idle, or not idle for so long that it has to be forced. */
  #isTime(): boolean {
    const { host, tuning } = this.#options;
    this.#waitingSince ??= performance.now();
    return !host.isBusy() || performance.now() - this.#waitingSince >= tuning.patienceMs;
  }

  async #handOver(offer: ReleaseOffer, signal: AbortSignal): Promise<void> {
    const { host, install, log, tuning } = this.#options;
    log.info('upgrade.draining', { version: offer.version, busy: host.isBusy() });
    try {
      await host.quiesce();
      while (host.isBusy() && !signal.aborted) await pause(tuning.idleCheckMs);
      if (signal.aborted) return;
      await install.beginTrial(offer);
    } catch (error) {
      await host.resume();
      throw error;
    }
    log.info('upgrade.restarting', { version: offer.version });
    host.restart();
  }

  #tell(offer: ReleaseOffer, state: UpgradeStatus['state'], tries: number, reason?: string): void {
    const { version } = offer;
    if (this.#status?.state !== state || this.#status.tries !== tries || this.#status.reason !== reason) {
      const isTrouble = state === 'failed' || state === 'refused';
      this.#options.log[isTrouble ? 'error' : 'info'](`upgrade.${state}`, { version, tries, reason });
    }
    this.#status = { version, state, tries, ...(reason !== undefined && { reason }) };
  }

  /** The gateway, the way to it or the disk: nothing that speaks against the package. */
  #failed(error: unknown, failures: number): number {
    const reason = messageOf(error).slice(0, 400);
    if ((failures & (failures - 1)) === 0) this.#options.log.warn('upgrade.interrupted', { reason, failures });
    if (this.#status) this.#status = { ...this.#status, reason };
    return backoffMs(this.#options.tuning.tryPause, failures);
  }
}
