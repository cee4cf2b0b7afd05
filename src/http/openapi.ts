import swagger, { type SwaggerTransformObject } from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import { z } from 'zod';
import {
  heartbeatRequestSchema,
  pullRequestSchema,
  registerRequestSchema,
  reportRequestSchema,
} from '../agents/protocol.ts';
import { BATCH_LIMIT, graphSchema, submissionSchema } from '../flows/submit.ts';

/**
 * The OpenAPI document: the page at `/docs`, the document itself at `/docs/json`. Both are open to everybody: they describe, and
 * show no data. Must be added before the routes.
 */
export async function addOpenApi(app: FastifyInstance, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Errand',
        version,
        description: 'Errors are problem JSON (RFC 9457) with a stable `code`; times are epoch milliseconds.',
      },
      components: {
        securitySchemes: {
          admin: { type: 'http', scheme: 'bearer', description: 'the admin token' },
          agent: { type: 'http', scheme: 'bearer', description: 'the token of one agent' },
        },
      },
      security: [{ admin: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: withHotRoutes,
  });
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: true });
}

interface HotDoc {
  path: string;
  summary: string;
  tag: string;
  security: 'admin' | 'agent';
  body: z.ZodType;
  answers: Record<string, string>;
}

/** The routes that skip the framework (hot-routes.ts); a test compares the two lists. */
export const HOT_DOCS: readonly HotDoc[] = [
  {
    path: '/api/tasks',
    tag: 'tasks',
    security: 'admin',
    summary: 'Submit a task',
    body: submissionSchema,
    answers: {
      201: 'created: {taskId, status, flowId?}',
      200: 'the same task was submitted before: …, idempotent: true',
      409: 'the key was used with another payload',
    },
  },
  {
    path: '/api/tasks/batch',
    tag: 'tasks',
    security: 'admin',
    summary: 'Submit up to 1,000 tasks, all or none; tasks that need one another, or a whole graph, become one flow',
    body: z.union([z.array(submissionSchema).min(1).max(BATCH_LIMIT), graphSchema]),
    answers: {
      201: '{tasks}: one answer per item, in order',
      409: 'a key was used with another payload, a flow is over, or a need has ended without success; `field` names the item',
    },
  },
  {
    path: '/api/agent/register',
    tag: 'agent protocol',
    security: 'agent',
    summary: 'Become the valid instance of an agent',
    body: registerRequestSchema,
    answers: { 200: '{ok, serverTime, leaseMs, heartbeatMs, latestVersion, hasUpdate, results}' },
  },
  {
    path: '/api/agent/heartbeat',
    tag: 'agent protocol',
    security: 'agent',
    summary: 'Extend leases; learn of cancels',
    body: heartbeatRequestSchema,
    answers: { 200: '{ok, serverTime, latestVersion, hasUpdate, runs}', 409: 'a newer instance has registered' },
  },
  {
    path: '/api/agent/pull',
    tag: 'agent protocol',
    security: 'agent',
    summary: 'Long poll for work',
    body: pullRequestSchema,
    answers: { 200: '{tasks}', 409: 'a newer instance has registered' },
  },
  {
    path: '/api/agent/report',
    tag: 'agent protocol',
    security: 'agent',
    summary: 'Report on runs, and pull in the same call',
    body: reportRequestSchema,
    answers: { 200: '{results, tasks?}', 409: 'a newer instance has registered' },
  },
];

const withHotRoutes: SwaggerTransformObject = (document) => {
  if (!('openapiObject' in document)) throw new TypeError('an OpenAPI document is expected');
  const { paths: described, components } = document.openapiObject;
  const paths = { ...described } as Record<string, object>;
  const schemas: Record<string, object> = {};
  for (const doc of HOT_DOCS) {
    const body = bodyOf(doc);
    paths[doc.path] = { ...paths[doc.path], post: operationOf(doc, body.schema) };
    Object.assign(schemas, body.parts);
  }
  return {
    ...document.openapiObject,
    paths,
    components: { ...components, schemas: { ...components?.schemas, ...schemas } },
  };
};

function operationOf({ summary, tag, security, answers }: HotDoc, schema: object): object {
  const refusals = {
    400: 'The request is malformed; `field` names what is wrong.',
    401: 'No valid credential was presented.',
  };
  const responses = Object.entries({ ...answers, ...refusals }).map(([status, description]) => {
    const type = Number(status) < 400 ? 'application/json' : 'application/problem+json';
    return [status, { description, content: { [type]: { schema: { type: 'object' } } } }] as const;
  });
  return {
    summary,
    tags: [tag],
    security: [{ [security]: [] }],
    requestBody: { required: true, content: { 'application/json': { schema } } },
    responses: Object.fromEntries(responses),
  };
}

/** A schema by itself keeps its shared parts in `$defs`; in the document they are components. */
function bodyOf({ path, body }: HotDoc): { schema: object; parts: Record<string, object> } {
  const prefix = path.replace(/^\/api\//, '').replaceAll('/', '-');
  const text = JSON.stringify(z.toJSONSchema(body, { io: 'input', unrepresentable: 'any' }));
  const {
    $schema: _version,
    $defs: shared = {},
    ...schema
  } = JSON.parse(text.replaceAll('"#/$defs/', `"#/components/schemas/${prefix}-`)) as {
    $schema?: string;
    $defs?: Record<string, object>;
  };
  return {
    schema,
    parts: Object.fromEntries(Object.entries(shared).map(([name, part]) => [`${prefix}-${name}`, part])),
  };
}
