import type { Readable } from 'node:stream';
import { WIRE_LIMITS } from '../../protocol.ts';
import type { Masking } from '../masking.ts';
import { CleanText, HeadTail } from './capture.ts';

/** Live text is gathered this long, so that a chatty program does not become a report per line. */
const GATHER_MS = 300;

export interface OutputOptions {
  stream: 'stdout' | 'stderr';
  masking: Masking;
  /** How much of this stream is sent as log. The first half goes out live, of the rest the end is kept and sent when it is over. */
  capBytes: number;
  /** How much is kept for the summary. */
  keepBytes: number;
  emit(body: { type: 'log'; stream: 'stdout' | 'stderr'; text: string; offset: number }): void;
}

/** One output stream of a program: cleaned, masked, sent as log in pieces, its head and tail kept. Memory is bounded by the two caps. */
export class OutputStream {
  readonly ended: Promise<void>;
  readonly #options: OutputOptions;
  readonly #source: Readable;
  readonly #clean: CleanText;
  readonly #kept: HeadTail;
  /** What does not go out live: the first half of the cap is spent. */
  #late: HeadTail | undefined;
  #gathered: string[] = [];
  #gatheredBytes = 0;
  /** Position in this stream's log of what goes out next, bytes. */
  #offset = 0;
  #timer: NodeJS.Timeout | undefined;
  #finished = false;

  constructor(source: Readable, options: OutputOptions) {
    this.#source = source;
    this.#options = options;
    this.#clean = new CleanText(options.masking.stream());
    this.#kept = new HeadTail(Math.ceil(options.keepBytes / 2), Math.floor(options.keepBytes / 2));
    source.on('data', (chunk: Buffer) => this.#push(this.#clean.push(chunk)));
    this.ended = new Promise((resolve) => {
      source.once('close', resolve);
      source.once('end', resolve);
      source.once('error', () => resolve());
    });
  }

  /** Nothing is read any more; what is left goes out, and after it the agent's own remarks, each on a line of its own. */
  finish(remarks: readonly string[] = []): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#source.removeAllListeners('data');
    this.#source.destroy();
    this.#push(this.#clean.end());
    for (const remark of remarks) this.remark(remark);
    this.#sendGathered();
    if (this.#late) this.#send(this.#late.text());
  }

  /** Something that the agent has to say, on a line of its own. */
  remark(text: string): void {
    this.#log(`[errand] ${text}\n`);
  }

  /** Head and tail of what was printed. */
  text(): string {
    return this.#kept.text();
  }

  #push(text: string): void {
    if (text === '') return;
    const bytes = Buffer.from(text);
    this.#kept.push(bytes);
    this.#log(text, bytes);
  }

  #log(text: string, bytes = Buffer.from(text)): void {
    if (this.#late) {
      this.#late.push(bytes);
      return;
    }
    const room = this.#options.capBytes / 2 - this.#offset - this.#gatheredBytes;
    if (bytes.length > room) {
      this.#late = new HeadTail(0, Math.floor(this.#options.capBytes / 2));
      this.#late.push(bytes);
      this.#sendGathered();
      return;
    }
    this.#gathered.push(text);
    this.#gatheredBytes += bytes.length;
    this.#timer ??= setTimeout(() => this.#sendGathered(), GATHER_MS);
  }

  #sendGathered(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const text = this.#gathered.join('');
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.#send(text);
  }

  #send(text: string): void {
    for (const piece of pieces(text, WIRE_LIMITS.log)) {
      this.#options.emit({ type: 'log', stream: this.#options.stream, text: piece, offset: this.#offset });
      this.#offset += Buffer.byteLength(piece);
    }
  }
}

/** Cuts into pieces of at most `max` characters, not through a surrogate pair. */
function pieces(text: string, max: number): string[] {
  const out: string[] = [];
  for (let from = 0; from < text.length; ) {
    let to = Math.min(from + max, text.length);
    const isHigh = to < text.length && /[\uD800-\uDBFF]/.test(text[to - 1]!);
    if (isHigh) to -= 1;
    out.push(text.slice(from, to));
    from = to;
  }
  return out;
}
