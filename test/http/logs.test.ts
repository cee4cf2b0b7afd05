import { request } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Assignment, PullAnswer } from '../../src/agents/protocol.ts';
import type { LogItem } from '../../src/tasks/log-follow.ts';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
});
afterAll(() => gateway?.stop());

let token: string;
let agentId: string;
let count = 0;
let seq = 0;
beforeEach(async () => {
  count += 1;
  agentId = `hand-${count}`;
  token = await gateway.gateway.rooms.tokens.issue({ agentId, pools: ['default'], labels: {} });
  const about = {
    bootId: 'b',
    version: '1.0.0',
    protocol: 1,
    host: 'h',
    labels: {},
    runtimes: ['shell'],
    concurrency: 9,
  };
  await call('register', { ...about, pools: ['default'] });
});

async function call<T>(path: string, body: object): Promise<{ status: number; body: T }> {
  const response = await fetch(`${gateway.url}/api/agent/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ agentId, instanceId: 'i1', ...body }),
  });
  return { status: response.status, body: (await response.json()) as T };
}

async function take(): Promise<Assignment> {
  const { body } = await call<PullAnswer>('pull', { maxTasks: 1, waitMs: 0, holding: [] });
  if (!body.tasks[0]) throw new Error('nothing to take');
  await report(body.tasks[0], { type: 'started' });
  return body.tasks[0];
}

async function report({ runId, leaseToken }: Assignment, news: object): Promise<void> {
  seq += 1;
  await call('report', { reports: [{ runId, leaseToken, seq, ...news }] });
}

const prints = (assignment: Assignment, text: string) =>
  report(assignment, { type: 'log', stream: 'stdout', text, offset: 0 });
const succeeds = (assignment: Assignment) => report(assignment, { type: 'succeeded', summary: 'ok', exitCode: 0 });

async function running(): Promise<{ id: string; run: Assignment }> {
  const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', { template: 'hello', agent: agentId });
  return { id: body.taskId, run: await take() };
}

type Event = LogItem & { eventId?: string };

/** Opens the live log; `events` grows until the stream ends. */
async function follow(id: string, headers: Record<string, string> = {}, query = 'follow=1') {
  const abort = new AbortController();
  const response = await fetch(`${gateway.url}/api/tasks/${id}/logs?${query}`, {
    headers: { authorization: `Bearer ${gateway.gateway.adminToken}`, accept: 'text/event-stream', ...headers },
    signal: abort.signal,
  });
  const stream = { response, abort, text: '', done: Promise.resolve(), events: (): Event[] => eventsOf(stream.text) };
  stream.done = (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>)
      stream.text += decoder.decode(bytes, { stream: true });
  })().catch(() => undefined);
  return stream;
}

function eventsOf(text: string): Event[] {
  return text.split('\n\n').flatMap((block) => {
    const [type, data, id] = ['event', 'data', 'id'].map((name) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)?.[1]);
    return type ? [{ type, ...JSON.parse(data!), ...(id ? { eventId: id } : {}) } as Event] : [];
  });
}

const textsOf = (events: readonly Event[]) => events.flatMap((event) => (event.type === 'log' ? [event.text] : []));

describe('the live log of a task', () => {
  test('lines come while it runs, and the stream ends with the task', async () => {
    const { id, run } = await running();
    await prints(run, 'one\n');
    const stream = await follow(id);
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    await until(() => textsOf(stream.events()).length === 1);
    await prints(run, 'two\n');
    await until(() => textsOf(stream.events()).length === 2);
    await succeeds(run);
    await stream.done;
    expect(stream.events().map(({ type }) => type)).toEqual(['attempt', 'log', 'log', 'end']);
    expect(stream.events().at(-1)).toEqual({ type: 'end', status: 'succeeded' });
  });

  test('it is resumed by Last-Event-ID, and by `after`, behind the last piece', async () => {
    const { id, run } = await running();
    for (const text of ['one\n', 'two\n', 'three\n']) await prints(run, text);
    await succeeds(run);
    const whole = await follow(id);
    await whole.done;
    const ids = whole.events().flatMap(({ eventId }) => eventId ?? []);
    expect(ids).toHaveLength(3);
    const resumed = await follow(id, { 'last-event-id': ids[0]! });
    await resumed.done;
    expect(textsOf(resumed.events())).toEqual(['two\n', 'three\n']);
    const after = await follow(id, {}, `follow=1&after=${ids[1]}`);
    await after.done;
    expect(textsOf(after.events())).toEqual(['three\n']);
  });

  test('a try that fails and one that follows are one stream with a mark between them', async () => {
    const { id, run } = await running();
    const stream = await follow(id);
    await prints(run, 'first\n');
    await report(run, { type: 'failed', errorClass: 'transient', error: 'try again', retryAfterMs: 1 });
    const again = await until(() => take().catch(() => undefined), 'the next try');
    await prints(again, 'second\n');
    await succeeds(again);
    await stream.done;
    expect(textsOf(stream.events())).toEqual(['first\n', 'second\n']);
    expect(stream.events().filter(({ type }) => type === 'attempt')).toMatchObject([{ attempt: 1 }, { attempt: 2 }]);
  });

  test('as text it is for people, live and as it is', async () => {
    const { id, run } = await running();
    await prints(run, 'no line end');
    await report(run, { type: 'failed', errorClass: 'transient', error: 'try again', retryAfterMs: 1 });
    const again = await until(() => take().catch(() => undefined), 'the next try');
    const stream = await follow(id, { accept: 'text/plain' });
    await prints(again, 'done\n');
    await succeeds(again);
    await stream.done;
    const expected = `no line end\n[errand] try 2 on ${agentId}\ndone\n`;
    expect(stream.text).toBe(expected);
    const plain = await follow(id, { accept: 'text/plain' }, '');
    await plain.done;
    expect(plain.text).toBe(expected);
  });

  test('pages are cut where asked and lead to the next', async () => {
    const { id, run } = await running();
    for (const text of ['a', 'b', 'c']) await prints(run, text);
    type Page = { status: string; logs: { id: string; text: string }[]; next?: string };
    const first = (await gateway.api<Page>('GET', `/api/tasks/${id}/logs?limit=2`)).body;
    expect(first.logs.map(({ text }) => text)).toEqual(['a', 'b']);
    const second = (await gateway.api<Page>('GET', `/api/tasks/${id}/logs?limit=2&after=${first.next}`)).body;
    expect([second.logs.map(({ text }) => text), second.next]).toEqual([['c'], undefined]);
    await succeeds(run);
  });

  test('a wrong cursor, an unknown task and a stranger are refused before anything is streamed', async () => {
    const { id, run } = await running();
    for (const [path, status] of [
      [`/api/tasks/${id}/logs?after=nonsense`, 400],
      [`/api/tasks/${id}/logs?follow=1&after=zzzz`, 400],
      [`/api/tasks/${id}/logs?skip=1`, 400],
      ['/api/tasks/zzzz/logs?follow=1', 404],
    ] as const)
      expect({ path, status: (await gateway.api('GET', path)).status }).toEqual({ path, status });
    const stranger = await fetch(`${gateway.url}/api/tasks/${id}/logs?follow=1`);
    expect(stranger.status).toBe(401);
    await succeeds(run);
  });

  test('a reader that stops reading for a while does not hold the others up, and every line reaches it or is counted', async () => {
    const { id, run } = await running();
    const lazy = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
      const sent = request(
        `${gateway.url}/api/tasks/${id}/logs?follow=1`,
        { headers: { authorization: `Bearer ${gateway.gateway.adminToken}` } },
        resolve,
      );
      sent.on('error', reject).end();
    });
    lazy.pause();
    const eager = await follow(id);
    const lines = 200;
    for (let n = 0; n < lines; n += 1) await prints(run, `${'x'.repeat(60_000)}${n}\n`);
    await succeeds(run);
    await eager.done;
    expect(textsOf(eager.events())).toHaveLength(lines);
    let text = '';
    lazy.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    lazy.resume();
    await new Promise((resolve) => lazy.once('end', resolve));
    const told = eventsOf(text);
    const omitted = told.reduce((sum, event) => sum + (event.type === 'omitted' ? event.lines : 0), 0);
    expect(textsOf(told).length + omitted).toBe(lines);
    expect(told.at(-1)).toEqual({ type: 'end', status: 'succeeded' });
  });
});

describe('diagnostics of an agent', () => {
  type Kept = { diagnostics: { at: number; failed: string[]; bundle: unknown }[] };
  const kept = async () => (await gateway.api<Kept>('GET', `/api/agents/${agentId}/diagnostics`)).body.diagnostics;

  test('a bundle is kept, shown, and written down', async () => {
    const answer = await call('diagnostics', { failed: ['disk', 'spool'], bundle: { freeBytes: 1, odd: 'a\u0000b' } });
    expect(answer).toEqual({ status: 200, body: { ok: true } });
    expect(await kept()).toMatchObject([{ failed: ['disk', 'spool'], bundle: { freeBytes: 1, odd: 'ab' } }]);
    const { entries } = (await gateway.api<{ entries: { action: string; target: string }[] }>('GET', '/api/audit'))
      .body;
    expect(entries).toContainEqual(expect.objectContaining({ action: 'agent.diagnostics', target: agentId }));
  });

  test('one that comes again at once, one that is too large, and one of a stranger are refused', async () => {
    expect((await call('diagnostics', { failed: ['disk'], bundle: {} })).status).toBe(200);
    expect((await call('diagnostics', { failed: ['disk'], bundle: {} })).status).toBe(429);
    expect((await call('diagnostics', { failed: ['disk'], bundle: { big: 'x'.repeat(40_000) } })).status).toBe(400);
    expect((await call('diagnostics', { failed: ['soul'], bundle: {} })).status).toBe(400);
    expect((await call('diagnostics', { agentId: 'hand-0', failed: ['disk'], bundle: {} })).status).toBe(403);
    expect(await kept()).toHaveLength(1);
    expect((await gateway.api('GET', '/api/agents/nobody/diagnostics')).status).toBe(404);
  });
});
