import { availableParallelism, freemem, loadavg, totalmem } from 'node:os';
import type { HeartbeatRequest } from '../protocol.ts';

/**
 * What the gateway is told of this machine. Memory is what programs could still take, within the limit of a container where there is
 * one. On Windows the load is always 0.
 */
export function machineLoad(): Pick<HeartbeatRequest, 'load' | 'cores' | 'memory'> {
  const cores = availableParallelism();
  const limit = process.constrainedMemory();
  const totalBytes = limit > 0 && limit < totalmem() ? limit : totalmem();
  const freeBytes = Math.min(totalBytes, Math.max(0, availableMemory()));
  return { load: loadavg()[0]! / cores, cores, memory: { freeBytes, totalBytes } };
}

/** Not in every Node 20. */
function availableMemory(): number {
  const { availableMemory: ask } = process as { availableMemory?: () => number };
  return ask ? ask() : freemem();
}
