import type { ByteReader } from './byte-reader.ts';

/** One thing in a tar archive. The content must be read (or left) before the next entry is asked for. */
export interface TarEntry {
  /** As it is written there: nothing is checked. */
  name: string;
  kind: 'file' | 'folder' | 'other';
  isExecutable: boolean;
  content: AsyncIterable<Buffer>;
}

const BLOCK = 512;
/** Of a header that only carries a long name. */
const MAX_EXTRA_BYTES = 64 * 1024;
const KINDS: Readonly<Record<string, TarEntry['kind']>> = { '0': 'file', '\0': 'file', '7': 'file', '5': 'folder' };

/**
 * The entries of a tar archive as GNU tar, bsdtar and npm write it: ustar, with long names by pax or GNU headers (POSIX.1-2017, pax;
 * tar(5)). @throws Error where it is damaged
 */
export async function* tarEntries(reader: ByteReader): AsyncGenerator<TarEntry> {
  let said: Said = {};
  for (;;) {
    const block = await reader.exactly(BLOCK);
    // The end is told by empty blocks; some writers leave them out.
    if (block === null || block.every((byte) => byte === 0)) return;
    const header = parse(block);
    if (header.type === 'g') await skip(reader, header.size);
    else if (header.type === 'x' || header.type === 'L' || header.type === 'K') {
      const text = await extra(reader, header.size);
      if (header.type === 'L') said = { ...said, name: text.replace(/\0.*$/s, '') };
      if (header.type === 'x') said = { ...said, ...paxRecords(text) };
    } else {
      const { name, size } = { ...header, ...said };
      const content = new EntryContent(reader, size);
      yield { name, kind: KINDS[header.type] ?? 'other', isExecutable: (header.mode & 0o100) !== 0, content };
      await content.leave();
      said = {};
    }
  }
}

/** What headers before the entry say about it; it goes before the entry's own. */
interface Said {
  name?: string;
  size?: number;
}

interface Header {
  name: string;
  mode: number;
  size: number;
  type: string;
}

function parse(block: Buffer): Header {
  const sum = block.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (sum !== number(block, 148, 8)) throw new Error('a header is damaged, or it is no tar archive');
  const prefix = block.toString('latin1', 257, 262) === 'ustar' ? text(block, 345, 155) : '';
  const name = text(block, 0, 100);
  return {
    name: prefix === '' ? name : `${prefix}/${name}`,
    mode: number(block, 100, 8),
    size: number(block, 124, 12),
    type: block.toString('latin1', 156, 157),
  };
}

function text(block: Buffer, from: number, length: number): string {
  const field = block.subarray(from, from + length);
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end < 0 ? length : end);
}

/** Octal. The binary form for eight gigabytes and more is not taken. */
function number(block: Buffer, from: number, length: number): number {
  const digits = text(block, from, length).trim();
  if (!/^[0-7]*$/.test(digits)) throw new Error('a header has no valid number');
  return Number.parseInt(digits || '0', 8);
}

async function extra(reader: ByteReader, size: number): Promise<string> {
  if (size > MAX_EXTRA_BYTES) throw new Error('a name is too long');
  const content = new EntryContent(reader, size);
  const pieces: Buffer[] = [];
  for await (const piece of content) pieces.push(piece);
  await content.leave();
  return Buffer.concat(pieces).toString('utf8');
}

/** Records `<length> <key>=<value>\n`. */
function paxRecords(records: string): Said {
  let rest = Buffer.from(records);
  const said: Said = {};
  while (rest.length > 0) {
    const match = /^(\d{1,6}) ([^=]+)=/.exec(rest.toString('utf8', 0, 128));
    const length = match ? Number(match[1]) : 0;
    if (!match || length <= match[0].length || length > rest.length) throw new Error('a pax header is damaged');
    const value = rest.toString('utf8', match[0].length, length - 1);
    if (match[2] === 'path') said.name = value;
    if (match[2] === 'size') said.size = sizeOf(value);
    rest = rest.subarray(length);
  }
  return said;
}

function sizeOf(value: string): number {
  if (!/^\d{1,15}$/.test(value)) throw new Error('a pax header has no valid size');
  return Number(value);
}

async function skip(reader: ByteReader, size: number): Promise<void> {
  await new EntryContent(reader, size).leave();
}

class EntryContent implements AsyncIterable<Buffer> {
  readonly #reader: ByteReader;
  /** Bytes with the filling up to the next block. */
  #missing: number;
  #left: number;

  constructor(reader: ByteReader, size: number) {
    this.#reader = reader;
    this.#left = size;
    this.#missing = Math.ceil(size / BLOCK) * BLOCK - size;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    while (this.#left > 0) {
      const wanted = Math.min(this.#left, 64 * 1024);
      const piece = await this.#reader.exactly(wanted);
      if (piece === null) throw new Error('it ends too early');
      this.#left -= wanted;
      yield piece;
    }
  }

  /** Goes on to the next header. */
  async leave(): Promise<void> {
    for await (const _rest of this);
    for await (const _filling of this.#reader.pieces(this.#missing));
    this.#missing = 0;
  }
}
