import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
});
afterAll(() => gateway?.stop());

interface Answer {
  taskId?: string;
  idempotent?: true;
  code?: string;
  field?: string;
}

/** The body as it is written, so that its spelling is the test's. */
async function post(path: string, text: string): Promise<{ status: number; body: Answer & { tasks?: Answer[] } }> {
  const response = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.gateway.adminToken}`, 'content-type': 'application/json' },
    body: text,
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

const count = async () => (await gateway.api<{ tasks: object[] }>('GET', '/api/tasks')).body.tasks.length;

test('A20: the same key with another body is refused over HTTP, whatever the spelling of the same one', async () => {
  const first = await post('/api/tasks', '{"template":"hello","args":{"name":"a"},"idempotencyKey":"K"}');
  expect(first).toMatchObject({ status: 201 });
  const { taskId } = first.body;
  for (const text of [
    '{"template":"hello","args":{"name":"a"},"idempotencyKey":"K"}',
    '{ "idempotencyKey" : "K",\n  "args" : { "name" : "\\u0061" }, "template" : "hello" }',
  ])
    expect(await post('/api/tasks', text)).toMatchObject({ status: 200, body: { taskId, idempotent: true } });
  expect(await post('/api/tasks', '{"template":"hello","args":{"name":"b"},"idempotencyKey":"K"}')).toMatchObject({
    status: 409,
    body: { code: 'idempotency_conflict', field: 'idempotencyKey' },
  });
  expect(await count()).toBe(1);
});

test('A20: the key means the same at the other door, and another template has keys of its own', async () => {
  const one = '{"template":"hello","args":{"name":"c"},"idempotencyKey":"L"}';
  const { taskId } = (await post('/api/tasks', one)).body;
  const before = await count();
  expect(await post('/api/tasks/batch', `[${one}]`)).toMatchObject({ body: { tasks: [{ taskId, idempotent: true }] } });
  const other = one.replace('"c"', '"d"');
  expect(await post('/api/tasks/batch', `[{"template":"hello","args":{}},${other}]`)).toMatchObject({
    status: 409,
    body: { field: '[1].idempotencyKey' },
  });
  expect(await count()).toBe(before);
  expect(await post('/api/tasks', '{"template":"system-info","idempotencyKey":"L"}')).toMatchObject({ status: 201 });
});
