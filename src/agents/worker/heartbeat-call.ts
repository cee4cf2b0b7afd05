import type { HeartbeatAnswer, HeartbeatRequest } from '../protocol.ts';
import type { GatewayClient } from './client.ts';
import { machineLoad } from './machine-load.ts';

export interface HeartbeatCall extends Omit<HeartbeatRequest, 'agentId' | 'instanceId' | 'load' | 'cores' | 'memory'> {
  /** `"agentId":…,"instanceId":…`, the head of every body. */
  caller: string;
  signal?: AbortSignal;
}

/** One heartbeat, with what there is to say of the machine. @throws CallFailed */
export function sendHeartbeat(
  client: GatewayClient,
  { caller, signal, ...body }: HeartbeatCall,
): Promise<HeartbeatAnswer> {
  const rest = JSON.stringify({ ...body, ...machineLoad() });
  return client.post<HeartbeatAnswer>('/api/agent/heartbeat', `{${caller},${rest.slice(1)}`, {
    waitMs: body.waitMs,
    signal,
  });
}
