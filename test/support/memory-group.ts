import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A control group of our own, in which processes may have so much memory together; or why there is none. */
export interface MemoryGroup {
  readonly folder?: string;
  readonly unavailable?: string;
  /** False while something lives in it. */
  readonly remove?: () => boolean;
}

const HIERARCHIES = [
  { root: '/sys/fs/cgroup/memory', limit: 'memory.limit_in_bytes' },
  { root: '/sys/fs/cgroup', limit: 'memory.max' },
] as const;

/**
 * In version 1 or 2 of control groups, where this user may make one.
 * @param bytes beyond them the kernel kills one of the processes
 */
export function memoryGroup(bytes: number): MemoryGroup {
  const reasons: string[] = [];
  for (const { root, limit } of HIERARCHIES) {
    const folder = join(root, `errand-test-${process.pid}`);
    const remove = () => attempt(() => rmdirSync(folder)) === undefined;
    const problem =
      attempt(() => mkdirSync(folder)) ??
      attempt(() => writeFileSync(join(folder, limit), String(bytes), { flag: 'r+' }));
    if (problem === undefined) return { folder, remove };
    reasons.push(problem);
    remove();
  }
  return { unavailable: reasons.join('; ') };
}

function attempt(action: () => void): string | undefined {
  try {
    action();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
