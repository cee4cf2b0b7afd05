import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, rm, rmdir, stat, statfs, writeFile } from 'node:fs/promises';
import { delimiter, dirname, isAbsolute, join } from 'node:path';
import { folderUser } from '../agents/worker/folder-claim.ts';
import { currentBootId } from '../agents/worker/process-group.ts';
import { type SpoolFigures, spoolFigures } from '../agents/worker/spool-figures.ts';
import type { AgentSettings } from '../config/agent.ts';
import { AppError, messageOf } from '../errors.ts';
import type { Finding } from './agent-doctor.ts';

const MIB = 1024 ** 2;
/** Below this, results of a gateway that is away for long no longer fit. */
const FREE_WARN_BYTES = 1024 * MIB;
const FREE_FAIL_BYTES = 50 * MIB;
const SPOOL_WARN_BYTES = 512 * MIB;

/** The file holds the token: nobody else may read it. */
export async function settingsFileFinding(path: string | undefined): Promise<Finding> {
  const check = 'file';
  if (path === undefined)
    return { check, status: 'ok', detail: 'no settings file; settings come from the environment' };
  const mode = (await stat(path)).mode & 0o777;
  const shown = `${path} (mode ${mode.toString(8).padStart(4, '0')})`;
  if (process.platform === 'win32' || (mode & 0o077) === 0) return { check, status: 'ok', detail: shown };
  return {
    check,
    status: 'warn',
    detail: `${shown} can be read by others, and holds the token`,
    advice: `chmod 600 ${path}`,
  };
}

/** Folders, disk, spool, programs, and whether an agent runs here. */
export async function machineFindings(settings: AgentSettings, searchPath: string): Promise<Finding[]> {
  const { spoolDir, workDir } = settings;
  return [
    await folderFinding('spool', spoolDir),
    await diskFinding(spoolDir),
    ...(await reportFindings(spoolDir)),
    await folderFinding('work', workDir),
    await programFinding(settings, searchPath),
    await instanceFinding(spoolDir),
  ];
}

/** Tries it out, and leaves nothing behind. */
async function folderFinding(check: string, dir: string): Promise<Finding> {
  const made = await mkdir(dir, { recursive: true, mode: 0o700 }).catch((error: unknown) => error as Error);
  const probe = join(dir, `.doctor-${randomBytes(6).toString('hex')}`);
  try {
    if (made instanceof Error) throw made;
    await writeFile(probe, 'x', { flag: 'wx', mode: 0o600, flush: true });
    return { check, status: 'ok', detail: `${dir} can be written` };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? messageOf(error);
    const setting = check === 'spool' ? 'AGENT_SPOOL_DIR' : 'AGENT_WORK_DIR';
    return {
      check,
      status: 'fail',
      detail: `${dir} cannot be written (${code})`,
      advice: `free the disk, give this user the folder, or set ${setting}`,
    };
  } finally {
    await rm(probe, { force: true }).catch(() => undefined);
    if (typeof made === 'string') await removeMade(made, dir);
  }
}

/** Folders that were made for the try: from the innermost outwards, as long as they are empty. */
async function removeMade(first: string, last: string): Promise<void> {
  for (let dir = last; dir.length >= first.length; dir = dirname(dir)) await rmdir(dir).catch(() => undefined);
}

async function diskFinding(dir: string): Promise<Finding> {
  const check = 'disk';
  const { bsize, bavail } = await statfs(await existing(dir));
  const free = bsize * bavail;
  const detail = `${size(free)} free where results wait`;
  if (free >= FREE_WARN_BYTES) return { check, status: 'ok', detail };
  const advice = 'free some: while the gateway is away results are kept here';
  return { check, status: free < FREE_FAIL_BYTES ? 'fail' : 'warn', detail, advice };
}

/** The folder, or the next one above that there is. */
async function existing(dir: string): Promise<string> {
  for (let path = dir; ; path = dirname(path)) {
    const isThere = await stat(path).then(
      () => true,
      () => false,
    );
    if (isThere || dirname(path) === path) return path;
  }
}

async function reportFindings(dir: string): Promise<Finding[]> {
  const check = 'reports';
  let figures: SpoolFigures;
  try {
    figures = await spoolFigures(dir);
  } catch (error) {
    return [{ check, status: 'fail', detail: `the spool in ${dir} cannot be read (${messageOf(error)})` }];
  }
  const { waiting, dead, bytes } = figures;
  const isLarge = bytes > SPOOL_WARN_BYTES;
  const findings: Finding[] = [
    {
      check,
      status: isLarge ? 'warn' : 'ok',
      detail: `${waiting} waiting for the gateway, ${size(bytes)}`,
      ...(isLarge && { advice: 'they go out as soon as the gateway can be reached' }),
    },
  ];
  if (dead > 0)
    findings.push({
      check,
      status: 'warn',
      detail: `${dead} put aside, since the gateway rejected them`,
      advice: `look into ${join(dir, 'dead')} and remove what nobody needs`,
    });
  return findings;
}

async function programFinding({ commands, runtimes }: AgentSettings, searchPath: string): Promise<Finding> {
  const check = 'programs';
  if (commands === undefined)
    return {
      check,
      status: 'ok',
      detail: `runtimes ${runtimes.join(', ')}; any program that is installed (AGENT_COMMANDS)`,
    };
  const found = await Promise.all(commands.map((command) => isProgram(command, searchPath)));
  const missing = commands.filter((_, index) => !found[index]);
  if (missing.length === 0)
    return { check, status: 'ok', detail: `runtimes ${runtimes.join(', ')}; ${commands.join(', ')}` };
  return {
    check,
    status: 'fail',
    detail: `${missing.join(', ')}: not found as a program`,
    advice: 'install it, mind the PATH of the service, or take it out of AGENT_COMMANDS',
  };
}

async function isProgram(command: string, searchPath: string): Promise<boolean> {
  const folders = isAbsolute(command) || command.includes('/') ? [''] : searchPath.split(delimiter).filter(Boolean);
  for (const folder of folders) {
    const path = join(folder, command);
    const isFile = await access(path, constants.X_OK)
      .then(() => stat(path))
      .then(
        (entry) => entry.isFile(),
        () => false,
      );
    if (isFile) return true;
  }
  return false;
}

async function instanceFinding(dir: string): Promise<Finding> {
  const check = 'process';
  try {
    const pid = await folderUser(dir, await currentBootId());
    const detail =
      pid === undefined
        ? 'no agent runs on this spool folder'
        : `the agent runs as process ${pid}; another cannot be started here`;
    return { check, status: 'ok', detail };
  } catch (error) {
    if (error instanceof AppError) return { check, status: 'fail', detail: error.message };
    throw error;
  }
}

function size(bytes: number): string {
  return bytes < 1024 * MIB ? `${Math.ceil(bytes / MIB)} MiB` : `${(bytes / (1024 * MIB)).toFixed(1)} GiB`;
}
