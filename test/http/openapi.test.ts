import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hotRoutes } from '../../src/http/hot-routes.ts';
import { HOT_DOCS } from '../../src/http/openapi.ts';
import { TestGateway } from '../support/gateway.ts';

interface Operation {
  summary?: string;
  security?: Record<string, unknown>[];
  requestBody?: { content: Record<string, { schema: Record<string, unknown> }> };
  responses: Record<string, unknown>;
}

interface Document {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
}

/** Routes of the contract (section 4) that this version has. */
const EXPECTED = [
  'POST /api/tasks',
  'GET /api/tasks',
  'POST /api/tasks/batch',
  'GET /api/tasks/{id}',
  'GET /api/tasks/{id}/events',
  'GET /api/tasks/{id}/logs',
  'POST /api/tasks/{id}/cancel',
  'POST /api/tasks/{id}/retry',
  'GET /api/tasks/audit',
  'POST /api/tasks/audit/fix',
  'GET /api/flows',
  'GET /api/flows/{id}',
  'GET /api/agents',
  'POST /api/agents/tokens',
  'POST /api/agents/{id}/revoke',
  'POST /api/agent/join',
  'POST /api/agent/whoami',
  'GET /api/outbox',
  'POST /api/outbox/{id}/resend',
  'GET /api/access',
  'POST /api/access/pairings/approve',
  'POST /api/access/people/{id}/revoke',
  'POST /api/access/people/{id}/role',
  'POST /api/access/groups',
  'GET /api/breakers',
  'GET /api/breakers/{name}',
  'POST /api/breakers/{name}/reset',
  'POST /api/breakers/{name}/open',
  'GET /api/templates',
  'GET /api/audit',
  'GET /api/stats',
  'GET /api/inbox/{id}',
  'GET /api/inbox',
  'POST /api/inbox/{id}/retry',
  'GET /api/dead-letters',
  'GET /api/dead-letters/{taskId}',
  'POST /api/dead-letters/replay',
  'POST /api/dead-letters/discard',
  'GET /api/effects',
  'GET /api/effects/{type}/{key}',
  'POST /api/effects/{type}/{key}/resolve',
  'GET /api/trace',
  'GET /healthz',
  'GET /readyz',
  'GET /metrics',
  'POST /api/chat/messages',
  'GET /api/chat/messages',
  'POST /api/agent/register',
  'POST /api/agent/heartbeat',
  'POST /api/agent/pull',
  'POST /api/agent/report',
  'GET /api/agents/{id}/diagnostics',
  'POST /api/agent/diagnostics',
  'POST /api/agent/effects/begin',
  'POST /api/agent/effects/done',
  'POST /api/agent/effects/fail',
];
/** Read by anybody, or by callers on this machine; joining has its token in the body. */
const OPEN = new Set(['POST /api/agent/join', 'GET /healthz', 'GET /readyz', 'GET /metrics']);

let gateway: TestGateway;
let document: Document;

beforeAll(async () => {
  gateway = await TestGateway.start();
  const response = await fetch(`${gateway.url}/docs/json`);
  document = (await response.json()) as Document;
});
afterAll(() => gateway?.stop());

function operations(): [string, Operation][] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]): [string, Operation] => [
      `${method.toUpperCase()} ${path}`,
      operation,
    ]),
  );
}

test('every route of the contract that exists is in the document', () => {
  const names = operations().map(([name]) => name);
  expect(EXPECTED.filter((name) => !names.includes(name))).toEqual([]);
});

test('the document names the hot routes that there are', () => {
  const hot = [...hotRoutes(gateway.gateway.rooms).keys()];
  expect(HOT_DOCS.map(({ path }) => `POST ${path}`).sort()).toEqual([...hot].sort());
});

test('every operation says what it does and what it answers; bodies have fields', () => {
  expect(document.openapi).toBe('3.1.0');
  for (const [name, operation] of operations().filter(([name]) => EXPECTED.includes(name))) {
    expect({ name, summary: operation.summary }).toEqual({ name, summary: expect.stringMatching(/\w/) });
    expect(Object.keys(operation.responses).length).toBeGreaterThan(0);
    const schema = operation.requestBody?.content['application/json']?.schema;
    if (schema)
      expect({ name, fields: Object.keys(schema.properties ?? schema.items ?? schema.anyOf ?? {}).length > 0 }).toEqual(
        {
          name,
          fields: true,
        },
      );
  }
});

test('every reference in the document leads somewhere', () => {
  const text = JSON.stringify(document);
  const references = [...text.matchAll(/"\$ref":"#([^"]+)"/g)].map(([, path]) => path!);
  for (const reference of references) {
    const found = reference
      .split('/')
      .slice(1)
      .reduce<unknown>(
        (value, key) => (value as Record<string, unknown> | undefined)?.[key.replaceAll('~1', '/')],
        document,
      );
    expect({ reference, found: found !== undefined }).toEqual({ reference, found: true });
  }
});

describe('without a token', () => {
  test('every documented route but the open ones is refused before anything is read', async () => {
    for (const name of EXPECTED.filter((candidate) => !OPEN.has(candidate))) {
      const [method, path] = name.split(' ') as [string, string];
      const body = method === 'POST' ? { body: '{', headers: { 'content-type': 'application/json' } } : {};
      const response = await fetch(gateway.url + path.replace('{id}', 'k3f9'), { method, ...body });
      expect({ name, status: response.status }).toEqual({ name, status: 401 });
      expect(((await response.json()) as { code: string }).code).toBe('unauthorized');
    }
  });

  test('the page and the document are open and hold no data', async () => {
    const page = await fetch(`${gateway.url}/docs/`);
    expect(page.status).toBe(200);
    expect(page.headers.get('content-security-policy')).toContain("default-src 'self'");
    expect(JSON.stringify(document)).not.toContain(gateway.gateway.adminToken);
  });
});
