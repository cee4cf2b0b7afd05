import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FINDING_CODES } from '../../src/retention/findings.ts';
import { errand } from '../cli/errand.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

interface Finding {
  code: string;
  id: string;
  taskId?: string;
  fixable: boolean;
  did?: string;
}

let gateway: TestGateway;
let taskId: string;
beforeAll(async () => {
  gateway = await TestGateway.start();
  await gateway.agent();
});
afterAll(() => gateway?.stop());

const change = (statement: ReturnType<typeof sql>) =>
  gateway.gateway.rooms.store.transact('test.fault', (tx) => tx.exec(statement));

beforeEach(async () => {
  taskId = (await gateway.api<{ taskId: string }>('POST', '/api/tasks', { template: 'hello', args: {} })).body.taskId;
  await until(
    async () => (await gateway.api<{ status: string }>('GET', `/api/tasks/${taskId}`)).body.status === 'succeeded',
    'the task to end',
  );
  await change(sql`update task set cleanup_after = null where id = (select max(id) from task)`);
});

const call = (...args: string[]) =>
  errand(['tasks', 'audit', ...args], {
    cwd: gateway.folder,
    env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') },
  });

test('GET finds and changes nothing, POST fixes and says what it did, and the audit log has it', async () => {
  for (let n = 0; n < 2; n += 1) {
    const { status, body } = await gateway.api<{ findings: Finding[]; more: boolean }>('GET', '/api/tasks/audit');
    expect([status, body.more]).toEqual([200, false]);
    expect(body.findings).toMatchObject([{ code: 'missing_cleanup', kind: 'task', id: taskId, taskId, fixable: true }]);
  }
  const fixed = await gateway.api<{ fixed: Finding[]; left: Finding[] }>('POST', '/api/tasks/audit/fix');
  expect(fixed).toMatchObject({
    status: 200,
    body: { fixed: [{ code: 'missing_cleanup', id: taskId, did: expect.stringMatching(/cleaned up/) }], left: [] },
  });
  expect((await gateway.api('GET', '/api/tasks/audit')).body).toEqual({ findings: [], more: false });
  const { entries } = (await gateway.api<{ entries: unknown[] }>('GET', '/api/audit')).body;
  expect(entries[0]).toMatchObject({
    actor: 'api:admin',
    action: 'tasks.audit_fixed',
    target: `task/${taskId}`,
    data: { code: 'missing_cleanup' },
  });
});

test('errand tasks audit ends with 1 while something is found, and with 0 when it is fixed', async () => {
  const found = await call();
  expect([found.code, found.err]).toEqual([1, '']);
  expect(found.out).toMatch(new RegExp(`missing_cleanup +task ${taskId}`));
  const fixed = await call('--fix');
  expect([fixed.code, fixed.err]).toEqual([0, '']);
  expect(fixed.out).toMatch(new RegExp(`Fixed missing_cleanup, task ${taskId}: .*\\nNothing is left`));
  const empty = await call();
  expect([empty.code, empty.out]).toEqual([0, 'Nothing found.\n']);
  expect(JSON.parse((await call('--json')).out)).toEqual({ findings: [], more: false });
});

describe('bad input is refused, names the place, and changes nothing', () => {
  test.each(['10', '0s', '31d', '-1s', ''])('stale=%s', async (stale) => {
    const path = `/api/tasks/audit?stale=${encodeURIComponent(stale)}`;
    expect(await gateway.api('GET', path)).toMatchObject({
      status: 400,
      body: { field: expect.stringMatching(/stale/) },
    });
    expect((await call('--fix', '--stale', stale)).code).toBe(2);
    const { findings } = (await gateway.api<{ findings: Finding[] }>('GET', '/api/tasks/audit')).body;
    expect(findings.map(({ id }) => id)).toContain(taskId);
  });

  test('an unknown field, and a caller without the token', async () => {
    expect((await gateway.api('GET', '/api/tasks/audit?minutes=3')).status).toBe(400);
    expect((await fetch(`${gateway.url}/api/tasks/audit`)).status).toBe(401);
    expect((await fetch(`${gateway.url}/api/tasks/audit/fix`, { method: 'POST' })).status).toBe(401);
  });
});

test('docs/retention.md has every code once', async () => {
  const text = await readFile(join(import.meta.dirname, '..', '..', 'docs', 'retention.md'), 'utf8');
  const told = [...text.matchAll(/^\| `(\w+)` \|/gm)].map(([, code]) => code);
  expect(told).toEqual([...FINDING_CODES]);
});
