import { type FileHandle, mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { Report } from '../protocol.ts';
import { type Outgoing, outgoing } from './outgoing.ts';
import { readRecords, recordLine, replaceFile } from './records.ts';

/** After so many answers `rejected` a report is put aside; a gateway that cannot be reached does not count. */
export const MAX_REJECTIONS = 20;

/** The file is rewritten when it is larger than this and mostly holds what is settled. */
const COMPACT_BYTES = 4 * 1024 * 1024;

/** Settled reports are taken off the disk when nothing new comes for so long. */
const IDLE_MS = 100;

export interface SpoolOptions {
  dir: string;
  log: Log;
  compactBytes?: number;
}

interface Live {
  item: Outgoing;
  line: string;
  rejections: number;
}

type SpoolRecord = { report: Report } | { settled: string[] } | { rejected: string; times: number };

/**
 * The reports that must reach the gateway, on disk before they are sent and until it has answered them. One append-only file of
 * checksummed records; one write and one fdatasync for everything that comes while the previous write is on its way. The file is
 * emptied when nothing is left, and rewritten when it mostly holds settled reports.
 */
export class Spool {
  readonly #path: string;
  readonly #deadDir: string;
  readonly #log: Log;
  readonly #compactBytes: number;
  readonly #live = new Map<string, Live>();
  #file: FileHandle | undefined;
  #fileBytes = 0;
  #lines: string[] = [];
  #waiters: { resolve: () => void; reject: (error: unknown) => void }[] = [];
  /** The file does not hold what it should (a write failed): the next turn writes it anew. */
  #damaged = false;
  #writing: Promise<void> | undefined;
  #idle: NodeJS.Timeout | undefined;

  constructor(options: SpoolOptions) {
    this.#path = join(options.dir, 'reports.log');
    this.#deadDir = join(options.dir, 'dead');
    this.#log = options.log;
    this.#compactBytes = options.compactBytes ?? COMPACT_BYTES;
  }

  /** Answers what an earlier instance left unsent, oldest first. Torn or damaged records are skipped and logged, never fatal. */
  async open(): Promise<Outgoing[]> {
    await mkdir(this.#deadDir, { recursive: true, mode: 0o700 });
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

  /**
   * Resolves when the reports are on disk. @throws what the disk said; the reports stay in memory and are written as soon as that
   * works again, so the caller may go on and send them.
   */
  add(items: readonly Outgoing[]): Promise<void> {
    const fresh = items.filter((item) => !this.#live.has(item.key));
    if (fresh.length === 0) return Promise.resolve();
    for (const item of fresh) this.#lines.push(this.#remember(item));
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      this.#pump();
    });
  }

  /** The gateway has answered for good: these are forgotten. Keys that are not here are ignored. */
  settle(keys: readonly string[]): void {
    const settled = keys.filter((key) => this.#live.delete(key));
    if (settled.length > 0) this.#lines.push(recordLine(JSON.stringify({ settled })));
    // No hurry: were it lost, the report would be sent once more and be a duplicate. Under load it goes with the next reports,
    // which saves a slow truncation per batch.
    if (this.#lines.length > 0) this.#idle ??= setTimeout(() => this.#pump(), IDLE_MS);
  }

  /** Counts one answer `rejected`; answers how many there were, or that the report has been put aside into `dead/`. */
  async reject(key: string, reason: string): Promise<number | 'dead'> {
    const live = this.#live.get(key);
    if (!live) return 'dead';
    live.rejections += 1;
    if (live.rejections < MAX_REJECTIONS) {
      this.#lines.push(recordLine(JSON.stringify({ rejected: key, times: live.rejections })));
      this.#pump();
      return live.rejections;
    }
    await this.#bury(live.item, reason);
    return 'dead';
  }

  /** Waits for what is being written and lets go of the file. */
  async close(): Promise<void> {
    if (this.#lines.length > 0) this.#pump();
    while (this.#writing) await this.#writing;
    await this.#file?.close();
    this.#file = undefined;
  }

  #replay(record: SpoolRecord): void {
    if ('report' in record) this.#remember(outgoing(record.report));
    else if ('settled' in record) for (const key of record.settled) this.#live.delete(key);
    else if ('rejected' in record) {
      const live = this.#live.get(record.rejected);
      if (live) live.rejections = record.times;
    }
  }

  #remember(item: Outgoing): string {
    const line = recordLine(`{"report":${item.json}}`);
    this.#live.set(item.key, { item, line, rejections: 0 });
    return line;
  }

  async #bury(item: Outgoing, reason: string): Promise<void> {
    const path = join(this.#deadDir, `${item.runId.replace(/[^A-Za-z0-9]/g, '_')}-${item.seq}.json`);
    this.#log.error('spool.report_dead', { runId: item.runId, seq: item.seq, type: item.type, reason, path });
    try {
      await writeFile(path, `${item.json}\n`, { mode: 0o600 });
      this.settle([item.key]);
    } catch (error) {
      this.#log.error('spool.write_failed', { path, error: messageOf(error) });
    }
  }

  /** One writer at a time; what comes meanwhile goes with the next turn. */
  #pump(): void {
    clearTimeout(this.#idle);
    this.#idle = undefined;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      if (this.#file && this.#lines.length > 0) this.#pump();
    });
  }

  async #writeAll(): Promise<void> {
    while (this.#file && this.#lines.length > 0) {
      const lines = this.#lines;
      const waiters = this.#waiters;
      this.#lines = [];
      this.#waiters = [];
      try {
        await this.#write(lines.join(''), waiters.length > 0);
        for (const waiter of waiters) waiter.resolve();
      } catch (error) {
        this.#damaged = true;
        this.#log.error('spool.write_failed', { path: this.#path, error: messageOf(error) });
        for (const waiter of waiters) waiter.reject(error);
      }
    }
  }

  async #write(text: string, mustLast: boolean): Promise<void> {
    if (this.#live.size === 0) {
      await this.#file!.truncate(0);
      this.#fileBytes = 0;
      this.#damaged = false;
    } else if (this.#damaged || this.#isWasteful()) {
      await this.#rewrite();
    } else {
      await this.#file!.appendFile(text);
      this.#fileBytes += Buffer.byteLength(text);
      if (mustLast) await this.#file!.datasync();
    }
  }

  #isWasteful(): boolean {
    if (this.#fileBytes < this.#compactBytes) return false;
    let liveBytes = 0;
    for (const live of this.#live.values()) liveBytes += live.item.bytes;
    return this.#fileBytes > 2 * liveBytes;
  }

  async #rewrite(): Promise<void> {
    let text = '';
    for (const [key, live] of this.#live) {
      text += live.line;
      if (live.rejections > 0) text += recordLine(JSON.stringify({ rejected: key, times: live.rejections }));
    }
    await replaceFile(this.#path, text);
    const old = this.#file;
    this.#file = await open(this.#path, 'a', 0o600);
    await old?.close();
    this.#fileBytes = Buffer.byteLength(text);
    this.#damaged = false;
  }
}
