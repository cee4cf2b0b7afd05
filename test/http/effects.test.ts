import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Assignment, PullAnswer } from '../../src/agents/protocol.ts';
import { TestGateway } from '../support/gateway.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
});
afterAll(() => gateway?.stop());

/** An agent that speaks the protocol by hand. */
class HandAgent {
  readonly agentId: string;
  readonly token: string;
  #seq = 0;

  constructor(agentId: string, token: string) {
    this.agentId = agentId;
    this.token = token;
  }

  static async register(agentId: string): Promise<HandAgent> {
    const token = await gateway.gateway.rooms.tokens.issue({ agentId, pools: ['default'], labels: {} });
    const agent = new HandAgent(agentId, token);
    const about = {
      bootId: 'b',
      version: '1',
      protocol: 1,
      host: 'h',
      labels: {},
      runtimes: ['shell'],
      concurrency: 9,
    };
    await agent.call('register', { ...about, pools: ['default'] });
    return agent;
  }

  async call<T>(path: string, body: object, token = this.token): Promise<{ status: number; body: T }> {
    const response = await fetch(`${gateway.url}/api/agent/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ agentId: this.agentId, instanceId: 'i1', ...body }),
    });
    return { status: response.status, body: (await response.json()) as T };
  }

  async take(): Promise<Assignment> {
    const { body } = await this.call<PullAnswer>('pull', { maxTasks: 1, waitMs: 0, holding: [] });
    const [assignment] = body.tasks;
    if (!assignment) throw new Error('nothing to take');
    await this.report(assignment, { type: 'started' });
    return assignment;
  }

  async report({ runId, leaseToken }: Assignment, news: object): Promise<void> {
    this.#seq += 1;
    await this.call('report', { reports: [{ runId, leaseToken, seq: this.#seq, ...news }] });
  }

  effect(verb: 'begin' | 'done' | 'fail', { runId, leaseToken }: Assignment, body: object) {
    return this.call<Record<string, unknown>>(`effects/${verb}`, { runId, leaseToken, ...body });
  }
}

let agent: HandAgent;
let count = 0;
let key: string;
beforeEach(async () => {
  count += 1;
  key = `order/${count} 张三?`;
  agent = await HandAgent.register(`agent-${count}`);
});

/** A task for this agent alone, under way. */
async function running(template = 'hello', more: object = {}): Promise<{ taskId: string; assignment: Assignment }> {
  const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', {
    template,
    agent: agent.agentId,
    ...more,
  });
  return { taskId: body.taskId, assignment: await agent.take() };
}

const url = (name: string) => `/api/effects/payment/${encodeURIComponent(name)}`;

/** An effect that a run began which then failed, and a later run of the same task that was told to ask and is blocked. */
async function uncertain(): Promise<{ taskId: string }> {
  const { taskId, assignment } = await running();
  await agent.effect('begin', assignment, { type: 'payment', key });
  await agent.report(assignment, { type: 'failed', errorClass: 'permanent', error: 'died' });
  await gateway.api('POST', `/api/tasks/${taskId}/retry`);
  const second = await agent.take();
  expect((await agent.effect('begin', second, { type: 'payment', key })).body).toMatchObject({
    answer: 'uncertain',
    policy: 'ask',
  });
  await agent.report(second, { type: 'blocked', summary: 'who knows' });
  return { taskId };
}

describe('the agent’s routes', () => {
  test('begin, done and a repeat', async () => {
    const { taskId, assignment } = await running();
    const begun = await agent.effect('begin', assignment, { type: 'payment', key, digest: 'd' });
    expect(begun).toEqual({ status: 200, body: { answer: 'first', repeat: false } });
    expect((await agent.effect('done', assignment, { type: 'payment', key, result: 'R-1' })).body).toEqual({
      answer: 'done',
      result: 'R-1',
    });
    expect((await agent.effect('begin', assignment, { type: 'payment', key })).body).toEqual({
      answer: 'done',
      result: 'R-1',
    });
    expect((await agent.effect('begin', assignment, { type: 'payment', key, digest: 'e' })).body).toMatchObject({
      answer: 'conflict',
    });
    expect((await gateway.api('GET', url(key))).body).toMatchObject({ state: 'SUCCESS', result: 'R-1', taskId, key });
  });

  test('trap 10: another agent’s token, run and instance reach nothing', async () => {
    const { assignment } = await running();
    const other = await HandAgent.register(`other-${count}`);
    const body = { type: 'payment', key };
    expect((await other.effect('begin', assignment, body)).body).toMatchObject({ answer: 'rejected' });
    const { runId, leaseToken } = assignment;
    const asOther = { agentId: other.agentId, runId, leaseToken, ...body };
    expect(await agent.call('effects/begin', asOther)).toMatchObject({ status: 403 });
    expect(await agent.call('effects/begin', { runId, leaseToken, ...body, instanceId: 'i0' })).toMatchObject({
      status: 409,
      body: { code: 'session_replaced' },
    });
    expect(await agent.call('effects/begin', {}, 'agt_wrong')).toMatchObject({ status: 401 });
    expect(await agent.call('effects/begin', {}, gateway.gateway.adminToken)).toMatchObject({ status: 401 });
    expect((await gateway.api('GET', url(key))).status).toBe(404);
  });

  test('what is malformed is named and changes nothing', async () => {
    const { assignment } = await running();
    for (const [body, field] of [
      [{ type: 'a b', key }, 'type'],
      [{ type: 'payment', key: '' }, 'key'],
      [{ type: 'payment', key, policy: 'x' }, 'policy'],
      [{ type: 'payment', key, runId: '!' }, 'runId'],
    ] as const)
      expect(await agent.effect('begin', assignment, body)).toMatchObject({ status: 400, body: { field } });
    expect(await agent.effect('begin', assignment, { type: 'payment', key, more: 1 })).toMatchObject({ status: 400 });
  });
});

describe('the operator’s routes', () => {
  test('a block is lifted by a person’s word, which is audited', async () => {
    const { taskId } = await uncertain();
    const listed = await gateway.api<{ effects: object[] }>('GET', `/api/effects?state=INIT&task=${taskId}`);
    expect(listed.body.effects).toMatchObject([{ key, uncertain: true, waiting: [taskId] }]);
    const said = { state: 'SUCCESS', result: 'R-9', reason: 'seen' };
    const resolved = await gateway.api('POST', `${url(key)}/resolve`, said);
    expect(resolved).toMatchObject({ status: 200, body: { state: 'SUCCESS', changed: true, released: [taskId] } });
    expect((await gateway.api('GET', `/api/tasks/${taskId}`)).body).toMatchObject({ status: 'queued' });
    expect((await agent.effect('begin', await agent.take(), { type: 'payment', key })).body).toEqual({
      answer: 'done',
      result: 'R-9',
    });
    expect((await gateway.api('POST', `${url(key)}/resolve`, said)).body).toMatchObject({
      changed: false,
      released: [],
    });
    const { entries } = (await gateway.api<{ entries: { target: string }[] }>('GET', '/api/audit')).body;
    expect(entries.filter(({ target }) => target === `payment/${key}`)).toMatchObject([
      { actor: 'api:admin', action: 'effect.resolved', data: { from: 'INIT', to: 'SUCCESS', reason: 'seen' } },
    ]);
  });

  test('bad words are refused and change nothing', async () => {
    const { assignment } = await running();
    await agent.effect('begin', assignment, { type: 'payment', key });
    const refused = async (body: object, status: number, field?: string) =>
      expect(await gateway.api('POST', `${url(key)}/resolve`, body)).toMatchObject({
        status,
        body: field ? { field } : {},
      });
    await refused({ state: 'INIT', reason: 'r' }, 400, 'state');
    await refused({ state: 'SUCCESS' }, 400, 'reason');
    await refused({ state: 'SUCCESS', reason: ' ' }, 400, 'reason');
    await refused({ state: 'FAIL', reason: 'r', result: 'x' }, 400, 'result');
    await refused({ state: 'SUCCESS', reason: 'r' }, 409);
    expect((await gateway.api('POST', `${url('never')}/resolve`, { state: 'FAIL', reason: 'r' })).status).toBe(404);
    expect((await gateway.api('GET', url(key))).body).toMatchObject({ state: 'INIT' });
    expect((await gateway.api('GET', '/api/effects?state=init')).status).toBe(400);
  });

  test('lists are filtered and come in pages', async () => {
    const { taskId, assignment } = await running();
    for (let n = 0; n < 5; n += 1) await agent.effect('begin', assignment, { type: `t${count}`, key: `${n}` });
    await agent.effect('done', assignment, { type: `t${count}`, key: '4' });
    type Page = { effects: { key: string }[]; next?: string };
    const page = async (query: string) => (await gateway.api<Page>('GET', `/api/effects?type=t${count}${query}`)).body;
    expect((await page('&state=INIT')).effects.map((effect) => effect.key)).toEqual(['3', '2', '1', '0']);
    const first = await page(`&limit=2&task=${taskId}`);
    const second = await page(`&limit=2&task=${taskId}&cursor=${first.next}`);
    expect([...first.effects, ...second.effects].map((effect) => effect.key)).toEqual(['4', '3', '2', '1']);
  });

  test('a key as long as keys may be has a path of its own', async () => {
    const { assignment } = await running();
    const long = '房'.repeat(512);
    await agent.effect('begin', assignment, { type: 'payment', key: long });
    expect((await gateway.api('GET', url(long))).body).toMatchObject({ key: long });
  });
});

describe('a trace', () => {
  interface Trace {
    entries: { at: number; kind: string; text: string; textZh: string; taskId?: string }[];
    truncated: boolean;
  }
  const trace = (name: string) => gateway.api<Trace>('GET', `/api/trace?key=${encodeURIComponent(name)}`);
  const kinds = ({ entries }: Trace) => new Set(entries.map(({ kind }) => kind));

  test('tells the whole way of a business key from a message to the receipt, in order of time', async () => {
    const { rooms } = gateway.gateway;
    await gateway.api('POST', '/api/chat/messages', { text: '/run hello name=Trace' });
    const anyone = await HandAgent.register(`any-${count}`);
    let assignment: Assignment | undefined;
    for (let tries = 0; tries < 200 && !assignment; tries += 1) {
      assignment = await anyone.take().catch(() => undefined);
      if (!assignment) await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const { taskId } = assignment!;
    // A task without a key hands its id to its program.
    expect(assignment!.idempotencyKey).toBe(`task:${taskId}`);
    await anyone.effect('begin', assignment!, { type: 'payment', key });
    await anyone.effect('done', assignment!, { type: 'payment', key, result: 'R-5' });
    await anyone.report(assignment!, { type: 'succeeded', summary: 'hello, trace' });
    const story = (await trace(key)).body;
    expect(kinds(story)).toEqual(new Set(['message', 'errand', 'flow', 'task', 'run', 'effect', 'delivery']));
    expect(story.entries.map(({ at }) => at)).toEqual(story.entries.map(({ at }) => at).sort((a, b) => a - b));
    const text = story.entries.map((entry) => entry.text).join('\n');
    for (const words of [
      /wrote in webchat chat .*: "\/run hello name=Trace"/,
      /it asks for hello/,
      /it became flow/,
      new RegExp(`task ${taskId} \\(hello\\) was created by chat`),
      new RegExp(`agent ${anyone.agentId} took it as run`),
      /effect payment ".*" was begun by run/,
      /effect payment ".*" took place: R-5/,
      new RegExp(`task ${taskId} is succeeded: hello, trace`),
      /a message \(final\) to webchat chat .* was written: ".*hello, trace/,
      /webchat has accepted it/,
    ])
      expect(text).toMatch(words);
    const zh = story.entries.map((entry) => entry.textZh).join('\n');
    for (const words of [
      /它要求执行 hello/,
      /它成为流程/,
      /领取了它，运行 \w+，第 1 次执行/,
      /结束：成功/,
      /已经发生：R-5/,
      /已接收/,
    ])
      expect(zh).toMatch(words);
    expect(zh).not.toMatch(/ (is|was|has|by|of|to) /);
    const flowId = (await gateway.api<{ flowId: string }>('GET', `/api/tasks/${taskId}`)).body.flowId;
    for (const other of [taskId, taskId.toUpperCase(), `task:${taskId}`, flowId, assignment!.runId])
      expect((await trace(other)).body.entries).toEqual(story.entries);
    expect(rooms.store.stats().rollbacks).toBe(0);
  });

  test('finds every task of a key, of any template and conversation, and no other', async () => {
    const submit = (more: object) =>
      gateway.api<{ taskId: string }>('POST', '/api/tasks', { agent: agent.agentId, idempotencyKey: key, ...more });
    const [one, two] = [await submit({ template: 'hello' }), await submit({ template: 'system-info' })];
    await submit({ template: 'hello', idempotencyKey: `${key}x` });
    const { entries } = (await trace(key)).body;
    expect(new Set(entries.map(({ taskId }) => taskId))).toEqual(new Set([one.body.taskId, two.body.taskId]));
    expect(entries[0]!.text).toContain(`with the key ${JSON.stringify(key)}`);
  });

  test('tells what people did about it', async () => {
    const { taskId } = await uncertain();
    await gateway.api('POST', `${url(key)}/resolve`, { state: 'FAIL', reason: 'bounced' });
    await gateway.api('POST', `/api/tasks/${taskId}/cancel`);
    const text = (await trace(key)).body.entries.map((entry) => entry.text).join('\n');
    expect(text).toContain(`task ${taskId}: retried by api:admin`);
    expect(text).toMatch(/effect payment ".*" was resolved by api:admin: bounced/);
    expect(text).toMatch(/ended: blocked/);
    expect(text).toContain(`task ${taskId} is cancelled`);
  });

  test('of a key that nothing has is 404, and of none 400', async () => {
    expect((await trace('no such key')).status).toBe(404);
    expect((await trace('zzzz')).status).toBe(404);
    expect((await trace('')).status).toBe(400);
  });
});
