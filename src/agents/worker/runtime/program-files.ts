import type { RunFolder } from './run-folder.ts';
import { parseProgress, readProgramFile, readProgramTail } from './run-folder.ts';
import type { Job } from './runtime.ts';
import { readCheckpoint } from './saved-checkpoint.ts';

const POLL_MS = 500;
/** Progress is looked at with every second look. */
const LOOKS_PER_PROGRESS = 2;

const NOTHING = Buffer.alloc(0);

/** Looks at the files through which a running program speaks, and passes on what is new: the last progress line and the checkpoint. */
export class ProgramFiles {
  readonly #folder: RunFolder;
  readonly #job: Pick<Job, 'emit' | 'masking'>;
  readonly #remark: (text: string) => void;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> = Promise.resolve();
  #looks = 0;
  /** The last line that was passed on. */
  #progress = '';
  /** What was in the file at the last look, and what is wrong with it. */
  #bytes: Buffer = NOTHING;
  #fault: string | undefined;
  /** What was last passed on, and which fault was told since. */
  #saved = '';
  #toldFault: string | undefined;

  /** @param remark tells the readers of the run's log something */
  constructor(folder: RunFolder, job: Pick<Job, 'emit' | 'masking'>, remark: (text: string) => void) {
    this.#folder = folder;
    this.#job = job;
    this.#remark = remark;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#polling = this.#polling.then(() => this.#look(false)).catch(() => undefined);
    }, POLL_MS);
  }

  /** The program is over: the last look. */
  async finish(): Promise<void> {
    clearInterval(this.#timer);
    await this.#polling;
    await this.#look(true);
  }

  async #look(isLast: boolean): Promise<void> {
    this.#looks += 1;
    if (isLast || this.#looks % LOOKS_PER_PROGRESS === 1) await this.#lookAtProgress(isLast);
    await this.#lookAtCheckpoint(isLast);
  }

  async #lookAtProgress(isLast: boolean): Promise<void> {
    const text = await readProgramTail(this.#folder.progress);
    if (text === undefined) return;
    // A line without its end may still be written to.
    const whole = isLast ? text : text.slice(0, text.lastIndexOf('\n') + 1);
    const line = whole.split('\n').findLast((one) => one.trim() !== '');
    if (line === undefined || line === this.#progress) return;
    this.#progress = line;
    const progress = parseProgress(line);
    if (progress) this.#job.emit({ type: 'progress', ...progress });
  }

  async #lookAtCheckpoint(isLast: boolean): Promise<void> {
    const bytes = await readProgramFile(this.#folder.checkpointOut);
    if (!bytes || bytes.length === 0) return;
    const isSame = bytes.equals(this.#bytes);
    if (!isSame) this.#take(bytes);
    // A file that is being written is wrong for a moment: it is told only of what stays so.
    if (this.#fault !== undefined && (isSame || isLast)) this.#complain(this.#fault);
  }

  #take(bytes: Buffer): void {
    this.#bytes = bytes;
    const read = readCheckpoint(bytes, this.#job.masking);
    this.#fault = typeof read === 'string' ? read : undefined;
    if (typeof read === 'string') return;
    this.#toldFault = undefined;
    if (read.json === this.#saved) return;
    this.#saved = read.json;
    this.#job.emit({ type: 'checkpoint', data: read.data });
  }

  /** Once, however often the program repeats it. */
  #complain(fault: string): void {
    if (this.#toldFault === fault) return;
    this.#toldFault = fault;
    this.#remark(`ERRAND_CHECKPOINT_OUT ${fault}: it is not saved, the last good one stays`);
  }
}
