import type { Report } from '../protocol.ts';
import { type Outgoing, outgoing } from './outgoing.ts';
import { omissionNote } from './runtime/capture.ts';

/** Log text waiting for a gateway that is away; beyond this it is replaced by a note of how much is missing. */
const MAX_LOG_BYTES = 4 * 1024 * 1024;

export interface BatchLimits {
  reports: number;
  bytes: number;
  /** Runs that have a report on its way: their next ones wait, so that a run's reports arrive in order. */
  except: ReadonlySet<string>;
}

const NONE: readonly Outgoing[] = [];

interface Omission {
  item: Outgoing;
  bytes: number;
}

/** Reports that wait to be sent, in order. Ends of runs are never dropped; log and progress are, with a note, rather than growing for ever. */
export class Backlog {
  readonly #maxLogBytes: number;
  #items: Outgoing[] = [];
  #logBytes = 0;
  /** By run and stream: the note that stands for what was left out. */
  readonly #omissions = new Map<string, Omission>();
  /** Starts that wait, by run. */
  readonly #starts = new Map<string, Outgoing>();
  /** Starts that the end of their run has overtaken: an end implies its start. */
  readonly #needless = new Set<Outgoing>();

  constructor(maxLogBytes = MAX_LOG_BYTES) {
    this.#maxLogBytes = maxLogBytes;
  }

  get size(): number {
    return this.#items.length - this.#needless.size;
  }

  /** Answers what need not be sent any more, and is not here any more: checkpoints of which the run has a newer one. */
  push(item: Outgoing): readonly Outgoing[] {
    this.#add(item);
    return this.#dropOvertaken([item]);
  }

  #add(item: Outgoing): void {
    if (item.type === 'started') this.#starts.set(item.runId, item);
    if (item.type === 'log' && this.#logBytes + item.bytes > this.#maxLogBytes) this.#omit(item);
    else if (item.type === 'progress' && this.#replaceProgress(item)) return;
    else this.#append(item);
  }

  /** The run has ended: a start that still waits need not be told, the end implies it. */
  dropStart(runId: string): void {
    const start = this.#starts.get(runId);
    if (start && this.#starts.delete(runId)) this.#needless.add(start);
  }

  /** What was taken and could not be sent comes first again. Answers as `push` does. */
  putBack(items: readonly Outgoing[]): readonly Outgoing[] {
    this.#items = [...items, ...this.#items];
    for (const item of items) this.#count(item, 1);
    return this.#dropOvertaken(items);
  }

  /** Takes out the next batch: at least one report where any may be taken. */
  take(limits: BatchLimits): Outgoing[] {
    const batch: Outgoing[] = [];
    const rest: Outgoing[] = [];
    let bytes = 0;
    let full = false;
    for (const item of this.#items) {
      if (this.#needless.delete(item)) continue;
      full ||= batch.length >= limits.reports || (batch.length > 0 && bytes + item.bytes > limits.bytes);
      if (full || limits.except.has(item.runId)) rest.push(item);
      else {
        batch.push(item);
        bytes += item.bytes;
      }
    }
    this.#items = rest;
    for (const item of batch) this.#taken(item);
    return batch;
  }

  #append(item: Outgoing): void {
    this.#items.push(item);
    this.#count(item, 1);
  }

  #taken(item: Outgoing): void {
    if (item.type === 'started') this.#starts.delete(item.runId);
    this.#count(item, -1);
    for (const [key, omission] of this.#omissions) if (omission.item === item) this.#omissions.delete(key);
  }

  #count(item: Outgoing, sign: 1 | -1): void {
    if (item.type === 'log') this.#logBytes += sign * item.bytes;
  }

  /** The first omitted piece keeps its place and number and becomes the note; later ones only raise its figure. */
  #omit(item: Outgoing): void {
    const report = JSON.parse(item.json) as Extract<Report, { type: 'log' }>;
    const key = `${report.runId}:${report.stream}`;
    const omission = this.#omissions.get(key) ?? { item: outgoing(report), bytes: 0 };
    const isNew = omission.bytes === 0;
    omission.bytes += Buffer.byteLength(report.text);
    const original = isNew ? report : (JSON.parse(omission.item.json) as typeof report);
    if (!isNew) this.#count(omission.item, -1);
    omission.item.replace({ ...original, text: `\n${omissionNote(omission.bytes)}\n` });
    if (isNew) {
      this.#omissions.set(key, omission);
      this.#append(omission.item);
    } else this.#count(omission.item, 1);
  }

  /** Only the newest checkpoint of a run counts; while the gateway is away they must not pile up. */
  #dropOvertaken(added: readonly Outgoing[]): readonly Outgoing[] {
    if (!added.some((item) => item.type === 'checkpoint')) return NONE;
    const newest = new Map<string, number>();
    for (const { type, runId, seq } of this.#items)
      if (type === 'checkpoint') newest.set(runId, Math.max(seq, newest.get(runId) ?? seq));
    const overtaken = this.#items.filter(({ type, runId, seq }) => type === 'checkpoint' && seq < newest.get(runId)!);
    if (overtaken.length > 0) this.#items = this.#items.filter((item) => !overtaken.includes(item));
    return overtaken;
  }

  /** Only the newest progress of a run matters: it takes the place of one that still waits. */
  #replaceProgress(item: Outgoing): boolean {
    const at = this.#items.findIndex((other) => other.type === 'progress' && other.runId === item.runId);
    if (at < 0) return false;
    this.#items[at] = item;
    return true;
  }
}
