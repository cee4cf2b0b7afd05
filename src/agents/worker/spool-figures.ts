import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Report } from '../protocol.ts';
import { reportKey } from './outgoing.ts';
import { readRecords } from './records.ts';

export interface SpoolFigures {
  /** Reports that wait for the gateway. */
  waiting: number;
  /** Reports that were put aside because the gateway rejected them again and again. */
  dead: number;
  /** Of all files of the spool; bytes. */
  bytes: number;
}

/** What is in a spool folder, whether or not an agent is running on it. Changes nothing; a folder that is not there is empty. */
export async function spoolFigures(dir: string): Promise<SpoolFigures> {
  const { records } = await readRecords(join(dir, 'reports.log'));
  const waiting = new Set<string>();
  for (const record of records as { reports?: Report[]; settled?: string[] }[]) {
    for (const { runId, seq } of record.reports ?? []) waiting.add(reportKey(runId, seq));
    for (const key of record.settled ?? []) waiting.delete(key);
  }
  const dead = (await filesOf(join(dir, 'dead'))).filter(({ name }) => name.endsWith('.json'));
  const files = [...(await filesOf(dir)), ...dead];
  return { waiting: waiting.size, dead: dead.length, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
}

async function filesOf(dir: string): Promise<{ name: string; bytes: number }[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  const files = entries.filter((entry) => entry.isFile());
  return Promise.all(
    files.map(async ({ name }) => ({
      name,
      // Gone by now, with an agent that works meanwhile.
      bytes: await stat(join(dir, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    })),
  );
}
