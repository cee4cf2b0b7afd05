import { type FileHandle, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { crc32 } from 'node:zlib';

/**
 * Lines of JSON with a checksum in front, so that what a crash or a full disk cut off is recognised and skipped instead of being
 * read as something else. Each record carries its own checksum; one bad line costs that line only.
 */
export function recordLine(json: string): string {
  return `${crc32(json).toString(16).padStart(8, '0')} ${json}\n`;
}

export interface ReadRecords {
  records: unknown[];
  /** Lines that were torn or damaged. */
  skipped: number;
}

/** All readable records of a file, oldest first; none where there is no such file. */
export async function readRecords(path: string): Promise<ReadRecords> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const records: unknown[] = [];
  let skipped = 0;
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const record = parseLine(line);
    if (record === undefined) skipped += 1;
    else records.push(record);
  }
  return { records, skipped };
}

/** Puts a file in place of another in one step: after a crash there is the old or the new one, whole. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const draft = `${path}.new`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
  await syncFolder(dirname(path));
}

async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const folder: FileHandle = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function parseLine(line: string): unknown {
  const json = line.slice(9);
  if (line.length < 10 || line.slice(0, 8) !== crc32(json).toString(16).padStart(8, '0')) return undefined;
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
