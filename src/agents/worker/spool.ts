import { writeSync } from 'node:fs';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { Report } from '../protocol.ts';
import { type DeadReports, deadFolder, deadReports } from './dead-reports.ts';
import { type Outgoing, outgoing } from './outgoing.ts';
import { readRecords, recordLine, replaceFile } from './records.ts';

/** After so many answers `rejected` a report is put aside; a gateway that cannot be reached does not count. */
export const MAX_REJECTIONS = 20;

/** The file is rewritten when it is larger than this and mostly holds what is settled. */
const COMPACT_BYTES = 4 * 1024 * 1024;

/** Settled reports are taken off the disk when nothing new comes for so long. */
const IDLE_MS = 100;

/** What the gateway has not answered after so long is forced onto the disk, so that it also survives the loss of power. */
const SYNC_MS = 100;

/** What the disk has refused is tried again after so long, whether or not anything new comes. */
const MEND_MS = 5_000;

/** Whoever holds so much that the gateway has not answered takes no more work: the disk and the memory are bounded. */
const MAX_LIVE = 10_000;
const MAX_LIVE_BYTES = 64 * 1024 * 1024;

export interface SpoolOptions {
  dir: string;
  log: Log;
  compactBytes?: number;
  maxBytes?: number;
  mendMs?: number;
}

interface Live {
  item: Outgoing;
  rejections: number;
  /** By the monotonic clock. */
  addedAt: number;
}

type SpoolRecord = { reports: Report[] } | { settled: string[] } | { rejected: string; times: number };

/**
 * The reports that must reach the gateway, in a file before they are sent and until it has answered them: they survive the death of
 * the agent at once, and the loss of power from a moment later, unless the gateway has them by then (which is the same as never having
 * been sent: the run is given to somebody else). One append-only file of checksummed records. It is emptied when nothing is left, and
 * rewritten when it mostly holds settled reports.
 */
export class Spool {
  readonly #path: string;
  readonly #dir: string;
  readonly #log: Log;
  readonly #compactBytes: number;
  readonly #maxBytes: number;
  readonly #mendMs: number;
  readonly #live = new Map<string, Live>();
  #liveBytes = 0;
  #dead: DeadReports | undefined;
  #file: FileHandle | undefined;
  #fileBytes = 0;
  /** Not yet written: what comes while the file is being put in order, and settlements, which are in no hurry. */
  #lines: string[] = [];
  /** The file does not hold what it should (a write failed): it is to be written anew. */
  #damaged = false;
  #isSynced = true;
  #tidying: Promise<void> | undefined;
  #idle: NodeJS.Timeout | undefined;
  #syncing: NodeJS.Timeout | undefined;
  #mending: NodeJS.Timeout | undefined;

  constructor(options: SpoolOptions) {
    this.#path = join(options.dir, 'reports.log');
    this.#dir = options.dir;
    this.#log = options.log;
    this.#compactBytes = options.compactBytes ?? COMPACT_BYTES;
    this.#maxBytes = options.maxBytes ?? MAX_LIVE_BYTES;
    this.#mendMs = options.mendMs ?? MEND_MS;
  }

  /** Answers what an earlier instance left unsent, oldest first. Torn or damaged records are skipped and logged, never fatal. */
  async open(): Promise<Outgoing[]> {
    await mkdir(deadFolder(this.#dir), { recursive: true, mode: 0o700 });
    this.#dead = await deadReports(this.#dir);
    const { records, skipped } = await readRecords(this.#path);
    if (skipped > 0) this.#log.warn('spool.records_skipped', { path: this.#path, skipped });
    for (const record of records) this.#replay(record as SpoolRecord);
    await this.#rewrite();
    return [...this.#live.values()].map((live) => live.item);
  }

  /** How many reports wait for the gateway's answer. */
  get size(): number {
    return this.#live.size;
  }

  /** Whether results of further tasks may be added. They are taken in any case; this is for whoever asks for tasks. */
  get hasRoom(): boolean {
    return this.#live.size < MAX_LIVE && this.#liveBytes < this.#maxBytes;
  }

  /** What has been put aside; undefined where nothing has. */
  get dead(): DeadReports | undefined {
    return this.#dead;
  }

  /**
   * Puts the reports into the file. What the disk refuses is logged, kept in memory and written as soon as that works again: the
   * caller goes on and sends them.
   */
  add(items: readonly Outgoing[]): void {
    const fresh = items.filter((item) => !this.#live.has(item.key));
    if (fresh.length === 0) return;
    const addedAt = performance.now();
    for (const item of fresh) this.#enter({ item, rejections: 0, addedAt });
    this.#lines.push(recordLine(`{"reports":[${fresh.map((item) => item.json).join(',')}]}`));
    this.#write();
    this.#isSynced = false;
    this.#syncing ??= setTimeout(() => this.#syncOld(), SYNC_MS);
  }

  /** The gateway has answered for good: these are forgotten. Keys that are not here are ignored. */
  settle(keys: readonly string[]): void {
    const settled = keys.filter((key) => this.#leave(key));
    if (settled.length > 0) this.#lines.push(recordLine(JSON.stringify({ settled })));
    // No hurry: were it lost, the report would be sent once more and be a duplicate. Under load it goes with the next reports,
    // which saves a slow truncation per batch.
    if (this.#lines.length > 0) this.#idle ??= setTimeout(() => this.#write(), IDLE_MS);
  }

  /** Counts one answer `rejected`; answers how many there were, or that the report has been put aside into `dead/`. */
  async reject(key: string, reason: string): Promise<number | 'dead'> {
    const live = this.#live.get(key);
    if (!live) return 'dead';
    live.rejections += 1;
    if (live.rejections < MAX_REJECTIONS) {
      this.#lines.push(recordLine(JSON.stringify({ rejected: key, times: live.rejections })));
      this.#write();
      return live.rejections;
    }
    await this.#bury(live, reason);
    return 'dead';
  }

  /** Writes what is left and lets go of the file. */
  async close(): Promise<void> {
    this.#write();
    while (this.#tidying) await this.#tidying;
    await this.#sync();
    for (const timer of [this.#idle, this.#syncing, this.#mending]) clearTimeout(timer);
    await this.#file?.close();
    this.#file = undefined;
  }

  #replay(record: SpoolRecord): void {
    if ('reports' in record) {
      for (const report of record.reports) {
        const item = outgoing(report);
        this.#enter({ item, rejections: 0, addedAt: 0 });
      }
    } else if ('settled' in record) for (const key of record.settled) this.#leave(key);
    else if ('rejected' in record) {
      const live = this.#live.get(record.rejected);
      if (live) live.rejections = record.times;
    }
  }

  #enter(live: Live): void {
    this.#leave(live.item.key);
    this.#live.set(live.item.key, live);
    this.#liveBytes += live.item.bytes;
  }

  #leave(key: string): boolean {
    this.#liveBytes -= this.#live.get(key)?.item.bytes ?? 0;
    return this.#live.delete(key);
  }

  /** On disk in its new place before it leaves the old one. */
  async #bury({ item, rejections }: Live, reason: string): Promise<void> {
    const name = `${item.runId.replace(/[^A-Za-z0-9]/g, '_')}-${item.seq}.json`;
    const path = join(deadFolder(this.#dir), name);
    this.#log.error('spool.report_dead', { runId: item.runId, seq: item.seq, type: item.type, reason, path });
    const rejected = { reason: reason.slice(0, 500), times: rejections, at: Date.now() };
    try {
      await replaceFile(path, `${item.json.slice(0, -1)},"rejected":${JSON.stringify(rejected)}}\n`);
      this.#dead = await deadReports(this.#dir);
      this.settle([item.key]);
    } catch (error) {
      this.#failed(path, error);
    }
  }

  /** Appends at once; what must wait for the disk, such as emptying or rewriting the file, is done beside. */
  #write(): void {
    clearTimeout(this.#idle);
    this.#idle = undefined;
    if (!this.#file || this.#tidying || (this.#lines.length === 0 && !this.#damaged)) return;
    if (this.#live.size === 0 || this.#damaged || this.#isWasteful()) {
      this.#tidying = this.#tidy();
      return;
    }
    const bytes = Buffer.from(this.#lines.join(''));
    this.#lines = [];
    try {
      for (let from = 0; from < bytes.length; ) from += writeSync(this.#file.fd, bytes, from);
      this.#fileBytes += bytes.length;
    } catch (error) {
      this.#damaged = true;
      this.#failed(this.#path, error);
    }
  }

  async #tidy(): Promise<void> {
    this.#lines = [];
    try {
      if (this.#live.size === 0) {
        await this.#file!.truncate(0);
        this.#fileBytes = 0;
        this.#damaged = false;
      } else await this.#rewrite();
    } catch (error) {
      this.#damaged = true;
      this.#failed(this.#path, error);
    }
    this.#tidying = undefined;
    // What has come meanwhile; after a failure the next call tries again.
    if (!this.#damaged) this.#write();
  }

  /** Usually the gateway has answered by now, and others wait that came later. */
  #syncOld(): void {
    this.#syncing = undefined;
    const [oldest] = this.#live.values();
    if (!oldest || this.#isSynced) return;
    const left = oldest.addedAt + SYNC_MS - performance.now();
    if (left > 1) this.#syncing = setTimeout(() => this.#syncOld(), left);
    else void this.#sync();
  }

  async #sync(): Promise<void> {
    if (this.#isSynced || this.#live.size === 0 || !this.#file) return;
    this.#isSynced = true;
    try {
      await this.#file.datasync();
    } catch (error) {
      this.#damaged = true;
      this.#failed(this.#path, error);
    }
  }

  /** Also without anything new the disk is asked again. */
  #failed(path: string, error: unknown): void {
    this.#log.error('spool.write_failed', { path, error: messageOf(error) });
    this.#mending ??= setTimeout(() => {
      this.#mending = undefined;
      if (this.#damaged) this.#write();
    }, this.#mendMs);
  }

  #isWasteful(): boolean {
    return this.#fileBytes >= this.#compactBytes && this.#fileBytes > 2 * this.#liveBytes;
  }

  async #rewrite(): Promise<void> {
    const live = [...this.#live];
    const text = live
      .map(([key, { item, rejections }]) => {
        const line = recordLine(`{"reports":[${item.json}]}`);
        return rejections === 0 ? line : line + recordLine(JSON.stringify({ rejected: key, times: rejections }));
      })
      .join('');
    await replaceFile(this.#path, text);
    const old = this.#file;
    this.#file = await open(this.#path, 'a', 0o600);
    await old?.close();
    this.#fileBytes = Buffer.byteLength(text);
    this.#damaged = false;
  }
}
