/** Reads a stream of chunks in pieces of a wanted size; never holds more than a chunk and a piece. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Exactly `size` bytes; null at the end of the stream. @throws Error where it ends in between */
  async exactly(size: number): Promise<Buffer | null> {
    const pieces: Buffer[] = [];
    let missing = size;
    for await (const piece of this.pieces(size, false)) {
      pieces.push(piece);
      missing -= piece.length;
    }
    if (missing === size && size > 0) return null;
    if (missing > 0) throw new Error('it ends too early');
    return Buffer.concat(pieces);
  }

  /** The next `size` bytes as they come. @throws Error where the stream ends before, unless `isWhole` is false */
  async *pieces(size: number, isWhole = true): AsyncGenerator<Buffer> {
    let missing = size;
    while (missing > 0) {
      if (this.#rest.length === 0) {
        const { value, done } = await this.#source.next();
        if (done) {
          if (isWhole) throw new Error('it ends too early');
          return;
        }
        this.#rest = value;
        continue;
      }
      const piece = this.#rest.subarray(0, missing);
      this.#rest = this.#rest.subarray(piece.length);
      missing -= piece.length;
      yield piece;
    }
  }
}
