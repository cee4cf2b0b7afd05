import { z } from 'zod';
import type { AgentGateway } from '../agents/gateway.ts';
import {
  heartbeatRequestSchema,
  pullRequestSchema,
  registerRequestSchema,
  reportRequestSchema,
} from '../agents/protocol.ts';
import type { AgentTokens } from '../agents/tokens.ts';
import {
  BATCH_LIMIT,
  type GraphSubmission,
  graphSchema,
  type Submission,
  type Submitter,
  submissionSchema,
} from '../flows/submit.ts';
import { type AdminAuth, bearerOf } from './auth.ts';
import { type HotRoute, hotRoute, parseWith, refusePrototypeKeys } from './hot.ts';
import { plainSubmission, plainSubmissions, plainSuccesses } from './quick-shapes.ts';

export interface HotRouteOptions {
  admin: AdminAuth;
  tokens: AgentTokens;
  gateway: AgentGateway;
  submitter: Submitter;
}

const MIB = 1024 * 1024;
const batchSchema: z.ZodType<Submission[] | GraphSubmission> = z.array(submissionSchema).min(1).max(BATCH_LIMIT);

/** An object is read by a schema of its own, so that its faults are named and not called a wrong kind of batch. */
function wholeGraph(body: unknown): GraphSubmission | undefined {
  return typeof body === 'object' && body !== null && !Array.isArray(body) ? parseWith(graphSchema, body) : undefined;
}

/** Submitting tasks and the agent protocol; everything else is an ordinary route. */
export function hotRoutes(options: HotRouteOptions): ReadonlyMap<string, HotRoute> {
  return new Map([...taskRoutes(options), ...agentRoutes(options)]);
}

function taskRoutes({ admin, submitter }: HotRouteOptions): [string, HotRoute][] {
  const asAdmin = {
    authorize: async (request: { headers: Parameters<AdminAuth['check']>[0] }) => admin.check(request.headers),
  };
  return [
    [
      'POST /api/tasks',
      hotRoute({
        ...asAdmin,
        // Under load tasks come in batches, and then a further turn of the loop costs more than it brings.
        givesWay: true,
        bodyLimit: MIB,
        schema: submissionSchema,
        quick: (body) => plainSubmission(body) ?? refusePrototypeKeys(body),
        answer: async (_identity, body) => {
          const task = await submitter.submit(body);
          return { status: task.idempotent ? 200 : 201, body: task };
        },
      }),
    ],
    [
      'POST /api/tasks/batch',
      hotRoute({
        ...asAdmin,
        bodyLimit: 8 * MIB,
        schema: batchSchema,
        quick: (body) => plainSubmissions(body, BATCH_LIMIT) ?? refusePrototypeKeys(body) ?? wholeGraph(body),
        answer: async (_identity, body) => {
          const tasks = await (Array.isArray(body) ? submitter.submitAll(body) : submitter.submitGraph(body));
          return { status: 201, body: { tasks } };
        },
      }),
    ],
  ];
}

function agentRoutes({ tokens, gateway }: HotRouteOptions): [string, HotRoute][] {
  const asAgent = {
    authorize: (request: { headers: Parameters<typeof bearerOf>[0]; socket: object }) =>
      tokens.identify(bearerOf(request.headers), request.socket),
  };
  return [
    [
      'POST /api/agent/register',
      hotRoute({
        ...asAgent,
        bodyLimit: 32 * MIB,
        schema: registerRequestSchema,
        answer: async (identity, body) => ({ status: 200, body: await gateway.register(identity, body) }),
      }),
    ],
    [
      'POST /api/agent/heartbeat',
      hotRoute({
        ...asAgent,
        bodyLimit: MIB,
        schema: heartbeatRequestSchema,
        answer: async (identity, body, caller) => ({
          status: 200,
          body: await gateway.heartbeat(identity, body, caller.gone),
        }),
      }),
    ],
    [
      'POST /api/agent/pull',
      hotRoute({
        ...asAgent,
        bodyLimit: MIB,
        schema: pullRequestSchema,
        answer: async (identity, body, caller) => ({
          status: 200,
          body: await gateway.pull(identity, body, caller.gone),
        }),
      }),
    ],
    [
      'POST /api/agent/report',
      hotRoute({
        ...asAgent,
        bodyLimit: 32 * MIB,
        schema: reportRequestSchema,
        quick: plainSuccesses,
        answer: async (identity, body) => ({ status: 200, body: await gateway.report(identity, body) }),
      }),
    ],
  ];
}
