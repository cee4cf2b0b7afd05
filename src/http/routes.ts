import type { FastifyInstance } from 'fastify';
import type { FinishedTasks } from '../telemetry/finished.ts';
import { addOpenApi } from './openapi.ts';
import type { Rooms } from './rooms.ts';
import { accessRoutes } from './routes/access.ts';
import { agentDrainRoutes } from './routes/agent-drains.ts';
import { agentEffectRoutes } from './routes/agent-effects.ts';
import { agentDiagnosticsRoutes, agentHealthRoutes } from './routes/agent-health.ts';
import { agentJoinRoutes, agentTokenRoutes } from './routes/agent-tokens.ts';
import { agentRoutes } from './routes/agents.ts';
import { agentArtifactRoutes, artifactRoutes } from './routes/artifacts.ts';
import { auditRoutes } from './routes/audit.ts';
import { breakerRoutes } from './routes/breakers.ts';
import { chatRoutes } from './routes/chat.ts';
import { controlRoutes } from './routes/controls.ts';
import { deadLetterRoutes } from './routes/dead-letters.ts';
import { effectRoutes } from './routes/effects.ts';
import { flowRoutes } from './routes/flows.ts';
import { adminOnly } from './routes/guard.ts';
import { messageRoutes } from './routes/messages.ts';
import { outboxRoutes } from './routes/outbox.ts';
import { agentReleaseRoutes, releaseRoutes } from './routes/releases.ts';
import { statusRoutes } from './routes/status.ts';
import { taskAuditRoutes } from './routes/task-audit.ts';
import { taskLogRoutes } from './routes/task-logs.ts';
import { taskPlaceRoutes } from './routes/task-places.ts';
import { taskRoutes } from './routes/tasks.ts';
import { templateRoutes } from './routes/templates.ts';
import { traceRoutes } from './routes/trace.ts';
import { whyRoutes } from './routes/why.ts';

/**
 * Adds every route but the hot ones, and the document that describes them all. The web chat and the status routes check their
 * callers themselves; all others are the administrator's.
 * @param finished counts ended tasks for the metrics
 */
export async function addRoutes(app: FastifyInstance, rooms: Rooms, finished?: FinishedTasks): Promise<void> {
  await addOpenApi(app, rooms.version);
  await app.register(statusRoutes(rooms, finished));
  await app.register(async (scope) => {
    await chatRoutes(scope, rooms);
  });
  await app.register(agentEffectRoutes(rooms));
  await app.register(agentArtifactRoutes(rooms));
  await app.register(artifactRoutes(rooms));
  await app.register(agentDiagnosticsRoutes(rooms));
  await app.register(agentReleaseRoutes(rooms));
  await app.register(agentJoinRoutes(rooms));
  await app.register(async (scope) => {
    scope.addHook('onRequest', adminOnly(rooms));
    for (const routes of ADMIN_ROUTES) await scope.register(routes(rooms));
  });
}

const ADMIN_ROUTES = [
  taskRoutes,
  taskLogRoutes,
  taskAuditRoutes,
  deadLetterRoutes,
  flowRoutes,
  messageRoutes,
  agentRoutes,
  agentDrainRoutes,
  agentHealthRoutes,
  releaseRoutes,
  agentTokenRoutes,
  outboxRoutes,
  accessRoutes,
  templateRoutes,
  auditRoutes,
  breakerRoutes,
  controlRoutes,
  taskPlaceRoutes,
  effectRoutes,
  traceRoutes,
  whyRoutes,
];
