import type { AgentSettings } from '../../../config/agent.ts';
import type { Log } from '../../../log.ts';
import type { GatewayClient } from '../client.ts';
import type { EffectsDoor } from '../effects-door.ts';
import { ArtifactSender } from './artifacts.ts';
import { HttpRuntime } from './http.ts';
import { PinnedContent } from './pinned.ts';
import type { Runtime } from './runtime.ts';
import { ShellRuntime } from './shell.ts';

export interface BuiltRuntimesOptions {
  settings: AgentSettings;
  log: Log;
  door: EffectsDoor;
  client: GatewayClient;
  /** `"agentId":…,"instanceId":…`, the head of every body. */
  caller: string;
  /** How often limits are looked at, and how long a run may be over them; milliseconds. */
  limits?: { sampleMs?: number; overMs?: number };
}

/** The runtimes of this build, by name; pinned templates run in them only as pinned. */
export function builtRuntimes({
  settings,
  log,
  door,
  client,
  caller,
  limits,
}: BuiltRuntimesOptions): Map<string, Runtime> {
  const artifacts = new ArtifactSender({ client, caller });
  const pinned = new PinnedContent({ allow: settings.allow, client, caller, log });
  return new Map([
    ['shell', pinned.around(new ShellRuntime({ ...settings, log, door, artifacts, tuning: limits }))],
    ['http', pinned.around(new HttpRuntime({ ...settings, log }))],
  ]);
}
