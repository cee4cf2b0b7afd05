import type { Dispatch } from '../agents/dispatch.ts';
import type { TaskExplainer } from '../agents/explainer.ts';
import type { AgentGateway } from '../agents/gateway.ts';
import type { JoinTokens } from '../agents/join-tokens.ts';
import type { AgentRegistry } from '../agents/registry.ts';
import type { AgentTokens } from '../agents/tokens.ts';
import type { Artifacts } from '../artifacts/artifacts.ts';
import type { Channel, ChannelPort } from '../channels/channel.ts';
import type { Clock } from '../clock.ts';
import type { GatewaySettings } from '../config/gateway.ts';
import type { Submitter } from '../flows/submit.ts';
import type { TemplateRegistry } from '../flows/templates.ts';
import type { Log } from '../log.ts';
import type { Outbox } from '../outbox/enqueue.ts';
import type { Releases } from '../releases/releases.ts';
import type { TaskAudit } from '../retention/audit.ts';
import type { Store } from '../store/store.ts';
import type { Breakers } from '../tasks/breakers.ts';
import type { TaskLine } from '../tasks/claim.ts';
import type { Controls } from '../tasks/controls.ts';
import type { Emit, TaskEvent } from '../tasks/task.ts';
import type { Refusals } from '../telemetry/refusals.ts';
import type { AdminAuth } from './auth.ts';

/** What the routes may use; made by app.ts. */
export interface Rooms {
  readonly settings: GatewaySettings;
  readonly version: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly store: Store;
  readonly emit: Emit<TaskEvent>;
  readonly admin: AdminAuth;
  readonly templates: TemplateRegistry;
  readonly submitter: Submitter;
  readonly tokens: AgentTokens;
  readonly joins: JoinTokens;
  readonly registry: AgentRegistry;
  readonly dispatch: Dispatch;
  readonly line: TaskLine;
  readonly gateway: AgentGateway;
  readonly why: TaskExplainer;
  readonly releases: Releases;
  readonly artifacts: Artifacts;
  readonly breakers: Breakers;
  readonly controls: Controls;
  readonly outbox: Outbox;
  readonly taskAudit: TaskAudit;
  readonly refusals: Refusals;
  /** By `channel/account`. */
  readonly channels: ReadonlyMap<string, Channel>;
  /** The web chat's side of the inbox. */
  readonly webchatPort: ChannelPort;
  /** Calls `listener` after every commit that changed what a web chat shows; answers how to stop. */
  onChatChange(listener: (sessionKey: string) => void): () => void;
  /** Where the gateway is reached on this machine. */
  readonly startedAt: number;
}
