import type { MaskedStream } from '../masking.ts';

/** The first and the last part of a text of any length, in bounded memory. */
export class HeadTail {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  #head: Buffer[] = [];
  #headLength = 0;
  #ring: Buffer | undefined;
  #total = 0;

  /** How many bytes are kept from either end; the head may be 0. */
  constructor(headBytes: number, tailBytes: number) {
    this.#headBytes = headBytes;
    this.#tailBytes = Math.max(1, tailBytes);
  }

  push(bytes: Buffer): void {
    const room = this.#headBytes - this.#headLength;
    const toHead = room > 0 ? bytes.subarray(0, room) : EMPTY;
    if (toHead.length > 0) {
      // A copy: a slice would keep the whole chunk alive.
      this.#head.push(Buffer.from(toHead));
      this.#headLength += toHead.length;
    }
    this.#total += toHead.length;
    if (toHead.length < bytes.length) this.#pushTail(bytes.subarray(toHead.length));
  }

  get totalBytes(): number {
    return this.#total;
  }

  /** The whole text, or head, a note of what is missing, and tail. */
  text(): string {
    const head = Buffer.concat(this.#head);
    const tailTotal = this.#total - this.#headLength;
    if (tailTotal <= this.#tailBytes) return Buffer.concat([head, this.#tail()]).toString('utf8');
    const first = wholeEnd(head);
    const last = wholeStart(this.#tail());
    const omitted = this.#total - first.length - last.length;
    return `${first.toString('utf8')}\n${omissionNote(omitted)}\n${last.toString('utf8')}`;
  }

  /** What came after the head, as far as it is kept. */
  #tail(): Buffer {
    const length = Math.min(this.#total - this.#headLength, this.#tailBytes);
    if (!this.#ring || length === 0) return EMPTY;
    if (length < this.#tailBytes) return this.#ring.subarray(0, length);
    const at = (this.#total - this.#headLength) % this.#tailBytes;
    return Buffer.concat([this.#ring.subarray(at), this.#ring.subarray(0, at)]);
  }

  #pushTail(bytes: Buffer): void {
    this.#ring ??= Buffer.allocUnsafe(this.#tailBytes);
    const skipped = Math.max(0, bytes.length - this.#tailBytes);
    const kept = bytes.subarray(skipped);
    const at = (this.#total - this.#headLength + skipped) % this.#tailBytes;
    const copied = kept.copy(this.#ring, at);
    if (copied < kept.length) kept.copy(this.#ring, 0, copied);
    this.#total += bytes.length;
  }
}

const EMPTY = Buffer.alloc(0);

export function omissionNote(bytes: number): string {
  return `[… ${bytes} bytes omitted …]`;
}

/** The first `maxChars` characters, never through a surrogate pair. */
export function clip(text: string, maxChars: number): string {
  return text.length <= maxChars ? text : text.slice(0, maxChars).replace(/[\uD800-\uDBFF]$/, '');
}

/** Cuts a text to at most `maxChars` characters, head and tail kept, never through a surrogate pair. */
export function cutText(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const room = Math.max(0, maxChars - 48);
  const first = clip(text, Math.ceil(room / 2));
  const last = text.slice(text.length - Math.floor(room / 2)).replace(/^[\uDC00-\uDFFF]/, '');
  const omitted = Buffer.byteLength(text) - Buffer.byteLength(first) - Buffer.byteLength(last);
  return `${first}\n${omissionNote(omitted)}\n${last}`;
}

/** Any bytes in, readable text out: valid UTF-8 with U+FFFD where it was not, no NUL, secrets masked; across chunk borders. */
export class CleanText {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #masked: MaskedStream;

  constructor(masked: MaskedStream) {
    this.#masked = masked;
  }

  push(chunk: Buffer): string {
    return this.#masked.push(withoutNul(this.#decoder.decode(chunk, { stream: true })));
  }

  end(): string {
    return this.#masked.push(withoutNul(this.#decoder.decode())) + this.#masked.end();
  }
}

/** NUL is valid text that databases and terminals cannot take. */
export function withoutNul(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '') : text;
}

/** Takes off a UTF-8 sequence that is not whole. */
function wholeEnd(bytes: Buffer): Buffer {
  let start = bytes.length - 1;
  while (start >= 0 && bytes.length - start < 4 && (bytes[start]! & 0xc0) === 0x80) start -= 1;
  if (start < 0) return bytes;
  const lead = bytes[start]!;
  const needs = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return bytes.length - start < needs ? bytes.subarray(0, start) : bytes;
}

function wholeStart(bytes: Buffer): Buffer {
  let start = 0;
  while (start < bytes.length && start < 4 && (bytes[start]! & 0xc0) === 0x80) start += 1;
  return bytes.subarray(start);
}
