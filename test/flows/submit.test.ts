import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Submission, Submitter, submissionSchema } from '../../src/flows/submit.ts';
import { loadTemplates } from '../../src/flows/templates.ts';
import { parseWith } from '../../src/http/hot.ts';
import { touchSessions } from '../../src/sessions/sessions.ts';
import { streamsById } from '../../src/tasks/line-queries.ts';
import { Core, ROUTE, SESSION, START } from '../support/core.ts';
import { ERRANDS } from '../support/errands.ts';

async function queueOf(taskId: string): Promise<string> {
  const rows = [[(await stored(taskId)).stream_id]];
  return (await core.store.all(streamsById, { rows }))[0]!.queue;
}

let core: Core;
let submitter: Submitter;
beforeEach(async () => {
  core = await Core.open();
  const folder = join(core.folder, 'templates');
  await mkdir(folder);
  for (const [name, text] of Object.entries(ERRANDS)) await writeFile(join(folder, name), text);
  const { store, clock, emit } = core;
  submitter = new Submitter({
    store,
    ids: store.ids,
    clock,
    emit,
    templates: await loadTemplates(folder),
    timeZone: 'Asia/Shanghai',
    patienceMs: () => 0,
  });
  await store.transact('test.session', (tx) => touchSessions(tx, [{ sessionKey: SESSION, route: ROUTE, at: START }]));
});
afterEach(() => core.close());

const parse = (body: object): Submission => parseWith(submissionSchema, body);
const submit = (body: object) => submitter.submit(parse(body));
const report = { template: 'report', args: { room: '302', guest: '张三' } };
const count = async () => (await core.store.fetch(core.store.dialect.build.selectFrom('task').select('id'))).length;
const stored = (taskId: string) => core.task(core.store.ids.decode(taskId)!);

describe('a submission', () => {
  it('becomes a queued task with what its template says', async () => {
    const answer = await submit({ template: 'hello' });
    expect(answer).toEqual({ taskId: expect.stringMatching(/^[a-z0-9]{4}$/), status: 'queued' });
    expect(await stored(answer.taskId)).toMatchObject({
      template: 'hello',
      source: 'api',
      scope_kind: 'system',
      args: '{"name":"world"}',
      priority: 1,
      session_key: null,
    });
  });

  it('may say otherwise in every point', async () => {
    const answer = await submit({
      template: 'hello',
      args: { name: 'Eva' },
      priority: 'high',
      runAt: START + 5,
      ttl: '1h',
      timeout: 90_000,
      pool: 'p2',
      notify: 'silent',
      label: 'L',
      idempotencyKey: 'K',
      sessionKey: SESSION,
    });
    expect(answer).toMatchObject({ flowId: expect.any(String) });
    expect(await stored(answer.taskId)).toMatchObject({
      args: '{"name":"Eva"}',
      priority: 0,
      run_at: START + 5,
      expires_at: START + 3_600_000,
      timeout_ms: 90_000,
      notify_policy: 'silent',
      label: 'L',
      session_key: SESSION,
    });
    expect(await queueOf(answer.taskId)).toBe('p2/shell');
    expect(await queueOf((await submit({ template: 'hello', agent: 'pc-1' })).taskId)).toBe('@pc-1/shell');
  });

  it('with a key that was used before answers the first task; with other arguments it is a conflict by name', async () => {
    const first = await submit({ template: 'hello', idempotencyKey: 'K', args: { name: 'a' } });
    expect(await submit({ template: 'hello', idempotencyKey: 'K', args: { name: 'a' } })).toEqual({
      ...first,
      idempotent: true,
    });
    await expect(submit({ template: 'hello', idempotencyKey: 'K', args: { name: 'b' } })).rejects.toMatchObject({
      code: 'idempotency_conflict',
      field: 'idempotencyKey',
      status: 409,
      message: expect.stringContaining(first.taskId),
    });
    expect(await count()).toBe(1);
  });

  it('has the key of its template, with the day of the template’s zone', async () => {
    const first = await submit(report);
    expect(await submit(report)).toMatchObject({ taskId: first.taskId, idempotent: true });
    core.clock.advance(24 * 3_600_000);
    const next = await submit(report);
    expect(next.taskId).not.toBe(first.taskId);
    expect(JSON.parse((await stored(next.taskId)).args).day).not.toBe(
      JSON.parse((await stored(first.taskId)).args).day,
    );
  });

  it.each<[string, object, string]>([
    ['an unknown template', { template: 'nope' }, 'template'],
    ['a bad argument', { template: 'report', args: { room: 'x', guest: 'a' } }, 'args.room'],
    ['a missing argument', { template: 'report', args: { room: '302' } }, 'args.guest'],
    ['an argument too many', { template: 'hello', args: { nam: 'x' } }, 'args.nam'],
    [
      'a conversation that nobody knows',
      { template: 'hello', sessionKey: 'agent:main:telegram:direct:404' },
      'sessionKey',
    ],
    ['an unknown field', { template: 'hello', priorty: 'high' }, 'body'],
    ['no template', {}, 'template'],
    ['a priority out of range', { template: 'hello', priority: -1 }, 'priority'],
    ['a time that is none', { template: 'hello', runAt: 'soon' }, 'runAt'],
    ['a time of half a millisecond', { template: 'hello', runAt: 1.5 }, 'runAt'],
    ['a time to live of nothing', { template: 'hello', ttl: '0s' }, 'ttl'],
    ['a time limit beyond all years', { template: 'hello', timeout: '999999999999d' }, 'timeout'],
    ['a negative time limit', { template: 'hello', timeout: -5 }, 'timeout'],
    ['a pool with a slash', { template: 'hello', pool: 'a/b' }, 'pool'],
    ['a pool that looks like an agent', { template: 'hello', pool: '@a' }, 'pool'],
    ['a nested argument', { template: 'hello', args: { name: { a: 1 } } }, 'args.name'],
  ])('with %s is refused, the field is named, and nothing is stored', async (_name, body, field) => {
    const attempt = async () => submit(body);
    await expect(attempt()).rejects.toMatchObject({ code: 'invalid_request', field });
    expect(await count()).toBe(0);
  });

  it('with __proto__ among its arguments gives nobody anything', async () => {
    const body = JSON.parse('{"template":"hello","args":{"__proto__":{"admin":true},"constructor":"x"}}') as object;
    await expect((async () => submit(body))()).rejects.toMatchObject({ code: 'invalid_request' });
    expect(({} as { admin?: boolean }).admin).toBeUndefined();
    expect(await count()).toBe(0);
  });
});

describe('a batch', () => {
  const all = (...bodies: object[]) => submitter.submitAll(bodies.map(parse));

  it('is answered in order, in one transaction', async () => {
    const before = core.store.stats().transactions;
    const answers = await all({ template: 'hello', args: { name: '1' } }, report, {
      template: 'hello',
      args: { name: '2' },
      sessionKey: SESSION,
    });
    expect(core.store.stats().transactions - before).toBe(1);
    expect(await Promise.all(answers.map(async ({ taskId }) => JSON.parse((await stored(taskId)).args).name))).toEqual([
      '1',
      undefined,
      '2',
    ]);
  });

  it.each<[string, object, string]>([
    ['an unknown template', { template: 'nope' }, '[1].template'],
    ['a bad argument', { template: 'report', args: { room: 'x', guest: 'a' } }, '[1].args.room'],
    [
      'a conversation that nobody knows',
      { template: 'hello', sessionKey: 'agent:main:telegram:direct:404' },
      '[1].sessionKey',
    ],
    [
      'a key used with other arguments',
      { template: 'hello', args: { name: 'y' }, idempotencyKey: 'K' },
      '[1].idempotencyKey',
    ],
  ])('with %s is refused as a whole, and the place is named', async (_name, bad, field) => {
    await submit({ template: 'hello', args: { name: 'x' }, idempotencyKey: 'K' });
    const attempt = async () => all({ template: 'hello' }, bad, { template: 'hello' });
    await expect(attempt()).rejects.toMatchObject({ field });
    expect(await count()).toBe(1);
  });

  it('that repeats itself makes one task of each key', async () => {
    const body = { template: 'hello', idempotencyKey: 'B' };
    const answers = await all(body, body, { template: 'hello' });
    expect(answers[1]).toEqual({ ...answers[0], idempotent: true });
    expect(await count()).toBe(2);
  });
});
