import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';

/**
 * How often the kernel has killed a process for want of memory where this agent lives: its control group (versions 2 and 1), else the
 * whole machine. The kernel tells nobody whom it killed; that the number rose while a run was on is what there is to know.
 */
export class OomKills {
  readonly #paths: readonly string[];

  /** @param paths files with a line `oom_kill N`; the first that can be read counts. Default: this process's own. */
  constructor(paths: readonly string[] = defaultPaths()) {
    this.#paths = paths;
  }

  /** Undefined where the system does not say. `isOwn`: only processes of this agent's own control group count, its programs among them. */
  async count(): Promise<OomCount | undefined> {
    for (const path of this.#paths) {
      const text = await readFile(path, 'utf8').catch(() => '');
      const count = /^oom_kill (\d+)$/m.exec(text)?.[1];
      if (count !== undefined) return { kills: Number(count), isOwn: path !== WHOLE_MACHINE };
    }
    return undefined;
  }
}

export interface OomCount {
  kills: number;
  isOwn: boolean;
}

const WHOLE_MACHINE = '/proc/vmstat';

function defaultPaths(): string[] {
  if (process.platform !== 'linux') return [];
  return [...ownGroups().flatMap(groupFiles), WHOLE_MACHINE];
}

interface Group {
  controllers: string;
  path: string;
}

/** cgroups(7): lines `id:controllers:path`; version 2 has no controllers. */
function ownGroups(): Group[] {
  let text = '';
  try {
    text = readFileSync('/proc/self/cgroup', 'utf8');
  } catch {
    // A kernel without control groups.
  }
  return text.split('\n').flatMap((line) => {
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    return controllers === undefined || path === undefined ? [] : [{ controllers, path }];
  });
}

function groupFiles({ controllers, path }: Group): string[] {
  // The second one: within a container the path may begin where the container does.
  if (controllers === '') return [`/sys/fs/cgroup${path}/memory.events`, '/sys/fs/cgroup/memory.events'];
  if (!controllers.split(',').includes('memory')) return [];
  return [`/sys/fs/cgroup/memory${path}/memory.oom_control`, '/sys/fs/cgroup/memory/memory.oom_control'];
}
