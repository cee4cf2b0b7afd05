import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import type { Database as Connection } from 'better-sqlite3';

const PAGE_BYTES = 4_096;
const FRAME_HEADER_BYTES = 24;
const LOG_HEADER_BYTES = 32;
const CHUNK_BYTES = 1024 ** 2;

/**
 * Fills the write-ahead log with zeros up to the length at which it is written over from its start: a commit then writes into blocks
 * that are there, which costs the disk half the time of letting the file grow. SQLite takes zeros for the end of the log. Under the
 * write lock, so that nobody appends meanwhile; a disk that has no room for it is left as it was.
 * @param pages of the log, as in `wal_autocheckpoint`
 */
export function reserveLog(writer: Connection, logPath: string, pages: number): void {
  writer.exec('begin immediate');
  try {
    fill(logPath, LOG_HEADER_BYTES + pages * (FRAME_HEADER_BYTES + PAGE_BYTES));
  } finally {
    writer.exec('rollback');
  }
}

function fill(path: string, target: number): void {
  const file = openSync(path, 'r+');
  const length = fstatSync(file).size;
  try {
    const zeros = Buffer.alloc(CHUNK_BYTES);
    for (let at = length; at < target; ) at += writeSync(file, zeros, 0, Math.min(CHUNK_BYTES, target - at), at);
    fsyncSync(file);
  } catch {
    ftruncateSync(file, length);
  } finally {
    closeSync(file);
  }
}
