import { mkdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError } from '../../errors.ts';
import { processStartedAt } from './process-group.ts';

/** Folders claimed by agents of this very process. */
const claimedHere = new Set<string>();

interface Owner {
  pid: number;
  bootId: string;
  startedAt?: string;
  /** A copied folder carries its original's claim; that one binds nobody. */
  path: string;
}

export interface FolderClaim {
  /** The folder was copied from one on which an agent of this machine is working: the runs that it names are that agent's. */
  isCopy: boolean;
  /** Lets go of the folder. */
  leave(): Promise<void>;
}

/**
 * Claims a spool folder for this process, so that two agents never write the same files. A claim whose process has died is taken over.
 * @throws AppError `conflict` while another living process holds the folder
 */
export async function claimFolder(dir: string, bootId: string): Promise<FolderClaim> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const path = await realpath(dir);
  const file = join(path, 'owner.json');
  const owner = await readOwner(file);
  if (claimedHere.has(path) || isBinding(owner, path, bootId)) {
    throw new AppError(
      'conflict',
      `another agent (process ${owner?.pid ?? process.pid}) is using the spool folder ${dir}`,
      {
        field: 'AGENT_SPOOL_DIR',
      },
    );
  }
  claimedHere.add(path);
  const claim: Owner = { pid: process.pid, bootId, startedAt: processStartedAt(process.pid), path };
  await writeFile(file, JSON.stringify(claim), { mode: 0o600 });
  return {
    isCopy: owner !== undefined && owner.path !== path && isAlive(owner, bootId),
    leave: async () => {
      await rm(file, { force: true });
      claimedHere.delete(path);
    },
  };
}

/** The process id of the agent that uses this folder now; undefined where none does. Changes nothing. */
export async function folderUser(dir: string, bootId: string): Promise<number | undefined> {
  const path = await realpath(dir).catch(() => undefined);
  if (path === undefined) return undefined;
  const owner = await readOwner(join(path, 'owner.json'));
  return isBinding(owner, path, bootId) ? owner?.pid : undefined;
}

async function readOwner(file: string): Promise<Owner | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Owner;
  } catch {
    return undefined;
  }
}

function isBinding(owner: Owner | undefined, path: string, bootId: string): boolean {
  return owner?.path === path && isAlive(owner, bootId);
}

function isAlive(owner: Owner, bootId: string): boolean {
  if (owner.bootId !== bootId || owner.pid === process.pid) return false;
  const startedAt = processStartedAt(owner.pid);
  return startedAt !== undefined && startedAt === owner.startedAt;
}
