import { closeSync, openSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import { processStartedAt } from './process-group.ts';
import { readRecords, recordLine } from './records.ts';

/** So many finished runs are remembered, to recognise one that is offered again. */
const REMEMBERED = 5_000;
const COMPACT_BYTES = 1024 * 1024;

/** A process group that an instance started for a run. */
export interface StartedGroup {
  runId: string;
  pgid: number;
  bootId: string;
  startedAt: string | undefined;
  /** Of its run; without one (written by an earlier version) nothing can be said for it. */
  leaseToken?: string | undefined;
}

export interface EarlierRuns {
  runIds: string[];
  groups: StartedGroup[];
}

type JournalRecord = { boot: string } | { runs: string[] } | { run: string; pgid: number; at?: string; lease?: string };

/**
 * Which runs this agent has taken and which process groups it has started, on disk so that the next instance can end programs whose
 * agent was killed (trap 2) and never starts a run twice. Written synchronously, before the next thing happens, but without fsync:
 * the page cache survives the death of the process, and after a reboot there is nothing to end.
 */
export class RunJournal {
  readonly #path: string;
  readonly #bootId: string;
  readonly #log: Log;
  readonly #seen = new Set<string>();
  readonly #groups = new Map<string, StartedGroup>();
  #fd: number | undefined;
  #bytes = 0;

  constructor(options: { dir: string; bootId: string; log: Log }) {
    this.#path = join(options.dir, 'runs.log');
    this.#bootId = options.bootId;
    this.#log = options.log;
  }

  /** What earlier instances wrote. Nothing is forgotten before `begin`. */
  async read(): Promise<EarlierRuns> {
    const { records, skipped } = await readRecords(this.#path);
    if (skipped > 0) this.#log.warn('journal.records_skipped', { path: this.#path, skipped });
    const earlier: EarlierRuns = { runIds: [], groups: [] };
    let bootId = '';
    for (const record of records as JournalRecord[]) {
      if ('boot' in record) bootId = record.boot;
      else if ('runs' in record) earlier.runIds.push(...record.runs);
      else {
        earlier.runIds.push(record.run);
        const { run: runId, pgid, at: startedAt, lease: leaseToken } = record;
        earlier.groups.push({ runId, pgid, bootId, startedAt, leaseToken });
      }
    }
    for (const runId of earlier.runIds) this.#seen.add(runId);
    return earlier;
  }

  /** The earlier groups have been dealt with: from here on this instance writes. */
  begin(): void {
    this.#rewrite();
  }

  /** Whether this run was taken before, by this or an earlier instance. */
  knows(runId: string): boolean {
    return this.#seen.has(runId);
  }

  /** To be called before any of these runs starts. */
  taken(runIds: string[]): void {
    if (runIds.length === 0) return;
    for (const runId of runIds) this.#seen.add(runId);
    this.#append({ runs: runIds });
  }

  /** To be called right after the spawn. */
  spawned({ runId, leaseToken }: { runId: string; leaseToken: string }, pgid: number): void {
    const startedAt = processStartedAt(pgid);
    this.#groups.set(runId, { runId, pgid, bootId: this.#bootId, startedAt, leaseToken });
    this.#append({ run: runId, pgid, at: startedAt, lease: leaseToken });
  }

  /** The run and its processes are over. Only kept in memory: a group that is gone is recognised anyway. */
  ended(runId: string): void {
    this.#groups.delete(runId);
    if (this.#seen.size > 2 * REMEMBERED || this.#bytes > COMPACT_BYTES) this.#rewrite();
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #append(record: JournalRecord): void {
    if (this.#fd === undefined) return;
    try {
      const line = recordLine(JSON.stringify(record));
      writeSync(this.#fd, line);
      this.#bytes += line.length;
    } catch (error) {
      // A full disk costs the protection against a crash of the agent, not the run.
      this.#log.error('journal.write_failed', { path: this.#path, error: messageOf(error) });
    }
  }

  #rewrite(): void {
    const surplus = this.#seen.size - REMEMBERED;
    for (const runId of surplus > 0 ? [...this.#seen].slice(0, surplus) : []) this.#seen.delete(runId);
    const groups = [...this.#groups.values()].map((group) => ({
      run: group.runId,
      pgid: group.pgid,
      at: group.startedAt,
      lease: group.leaseToken,
    }));
    const records: JournalRecord[] = [{ boot: this.#bootId }, { runs: [...this.#seen] }, ...groups];
    const text = records.map((record) => recordLine(JSON.stringify(record))).join('');
    try {
      writeFileSync(`${this.#path}.new`, text, { mode: 0o600 });
      renameSync(`${this.#path}.new`, this.#path);
      this.close();
      this.#fd = openSync(this.#path, 'a', 0o600);
      this.#bytes = text.length;
    } catch (error) {
      this.#log.error('journal.write_failed', { path: this.#path, error: messageOf(error) });
      this.#fd ??= openSync(this.#path, 'a', 0o600);
    }
  }
}
