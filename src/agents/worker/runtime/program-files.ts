import { WIRE_LIMITS } from '../../protocol.ts';
import { parseProgress, type RunFolder, readProgramFile, readProgramText } from './run-folder.ts';
import type { Job } from './runtime.ts';

const POLL_MS = 500;

/** Looks at the files through which a running program speaks, and passes on what is new: the last progress line and the checkpoint. */
export class ProgramFiles {
  readonly #folder: RunFolder;
  readonly #emit: Job['emit'];
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> = Promise.resolve();
  #progressAt = 0;
  #checkpoint = '';

  constructor(folder: RunFolder, emit: Job['emit']) {
    this.#folder = folder;
    this.#emit = emit;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#polling = this.#polling.then(() => this.#poll(false)).catch(() => undefined);
    }, POLL_MS);
  }

  /** The program is over: the last look. Answers complaints about what could not be used. */
  async finish(): Promise<string[]> {
    clearInterval(this.#timer);
    await this.#polling;
    await this.#poll(true);
    return this.#checkpointComplaint();
  }

  async #poll(isLast: boolean): Promise<void> {
    await this.#readProgress(isLast);
    await this.#readCheckpoint();
  }

  async #readProgress(isLast: boolean): Promise<void> {
    const bytes = await readProgramFile(this.#folder.progress, this.#progressAt);
    if (!bytes || bytes.length === 0) return;
    const end = isLast ? bytes.length : bytes.lastIndexOf(0x0a) + 1;
    this.#progressAt += end;
    const text = bytes.subarray(0, end).toString('utf8').replaceAll('\0', '');
    const last = text.split('\n').findLast((line) => line.trim() !== '');
    const progress = last === undefined ? undefined : parseProgress(last);
    if (progress) this.#emit({ type: 'progress', ...progress });
  }

  /** A file that is being written does not parse and is read again at the next look. */
  async #readCheckpoint(): Promise<void> {
    const text = await readProgramText(this.#folder.checkpointOut);
    if (!text || text === this.#checkpoint || text.length > WIRE_LIMITS.checkpoint) return;
    const data = parseJson(text);
    if (data === undefined) return;
    this.#checkpoint = text;
    this.#emit({ type: 'checkpoint', data });
  }

  async #checkpointComplaint(): Promise<string[]> {
    const text = await readProgramText(this.#folder.checkpointOut);
    if (!text || text === this.#checkpoint) return [];
    const reason =
      text.length > WIRE_LIMITS.checkpoint ? `longer than ${WIRE_LIMITS.checkpoint} characters` : 'not JSON';
    return [`ERRAND_CHECKPOINT_OUT is ${reason}; it was left out`];
  }
}

type Json = Extract<Parameters<Job['emit']>[0], { type: 'checkpoint' }>['data'];

function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
