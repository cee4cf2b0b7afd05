import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** Reports that the gateway has rejected for good. They stay in the folder `dead` of the spool until a person removes them. */
export interface DeadReports {
  count: number;
  /** Of the newest. */
  reason?: string;
}

/** Where a spool folder keeps them. */
export function deadFolder(spoolDir: string): string {
  return join(spoolDir, 'dead');
}

/** What a spool folder holds; undefined where there are none. Files that cannot be read count all the same. */
export async function deadReports(spoolDir: string): Promise<DeadReports | undefined> {
  const dir = deadFolder(spoolDir);
  const names = (await readdir(dir).catch(() => [] as string[])).filter((name) => name.endsWith('.json'));
  if (names.length === 0) return undefined;
  const times = await Promise.all(names.map((name) => changedAt(join(dir, name))));
  const newest = names[times.indexOf(Math.max(...times))]!;
  const reason = await reasonIn(join(dir, newest));
  return { count: names.length, ...(reason !== undefined && { reason }) };
}

async function changedAt(path: string): Promise<number> {
  return stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  );
}

async function reasonIn(path: string): Promise<string | undefined> {
  try {
    const { rejected } = JSON.parse(await readFile(path, 'utf8')) as { rejected?: { reason?: unknown } };
    return typeof rejected?.reason === 'string' ? rejected.reason : undefined;
  } catch {
    return undefined;
  }
}
