import { parentPort, workerData } from 'node:worker_threads';
import { CallFailed, type ClientOptions, GatewayClient } from './client.ts';
import { sendHeartbeat } from './heartbeat-call.ts';
import { LeaseKeeper, type ToKeeper } from './lease-keeper.ts';

/** What the thread is started with. */
export interface LeaseThreadData {
  client: ClientOptions;
  caller: string;
  leaseMs: number;
  silenceMs: number;
  /** When the agent started, epoch milliseconds. */
  startedAt: number;
}

const LOOKS_PER_LEASE = 8;
const SHORTEST_LOOK_MS = 100;

/** The thread that keeps leases while the agent's loop is busy: a connection of its own, and nothing of the runs but their tokens. */
function keepLeases(port: NonNullable<typeof parentPort>, data: LeaseThreadData): void {
  const client = new GatewayClient({ ...data.client, timeoutMs: data.leaseMs / 2 });
  const keeper = new LeaseKeeper({
    beat: async (activeRuns) => {
      const uptimeMs = Math.max(0, Date.now() - data.startedAt);
      return (await sendHeartbeat(client, { caller: data.caller, uptimeMs, activeRuns: activeRuns.slice(0, 1024) }))
        .runs;
    },
    isReplaced: (error) => error instanceof CallFailed && error.verdict === 'replaced',
    tell: (message) => port.postMessage(message),
    now: () => performance.now(),
    silenceMs: data.silenceMs,
  });
  port.on('message', (message: ToKeeper) => keeper.hear(message));
  setInterval(() => void keeper.look(), Math.max(SHORTEST_LOOK_MS, data.leaseMs / LOOKS_PER_LEASE));
}

if (parentPort) keepLeases(parentPort, workerData as LeaseThreadData);
