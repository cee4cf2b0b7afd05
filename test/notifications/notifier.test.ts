import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createNotifier } from '../../src/notifications/notifier.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import { setSession } from '../../src/sessions/sessions.ts';
import { createTasks } from '../../src/tasks/create.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { retryTasks } from '../../src/tasks/retry.ts';
import type { NewTask, TaskEvent } from '../../src/tasks/task.ts';
import { ERRANDS } from '../support/errands.ts';
import { direct, Rooms } from '../support/rooms.ts';

let rooms: Rooms;

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

const started: RunNews = { type: 'started' };
const done: RunNews = { type: 'succeeded', summary: 'Hello, Ada!' };

describe('done_only', () => {
  it.each<[RunNews, string, string]>([
    [done, 'succeeded', '✅'],
    [{ type: 'failed', errorClass: 'permanent', error: 'no such room' }, 'failed', '❌'],
    [{ type: 'cancelled' }, 'cancelled', '🚫'],
  ])('tells the end and nothing else: %o', async (news, status, icon) => {
    await rooms.say('7', 'greet Ada', { route: { ...direct('7'), messageId: '5' } });
    const grant = await rooms.claim();
    await rooms.report(grant, started);
    await rooms.report(grant, { type: 'progress', percent: 50 });
    await rooms.report(grant, news);
    const [final, ...more] = await rooms.sent();
    expect(more).toEqual([]);
    expect(final).toMatchObject({ kind: 'final', task_id: grant.taskId, session_key: sessionKeyOf(direct('7'), '7') });
    expect(final!.text.startsWith(icon)).toBe(true);
    expect(JSON.parse(final!.route)).toEqual({ ...direct('7'), messageId: '5' });
    expect((await rooms.tasks())[0]).toMatchObject({ status, delivery_status: 'session_queued' });
  });

  it('also tells what waits for a person, and the end after it', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' }, { type: 'blocked', summary: 'the quota is used up' });
    const [blocked] = await rooms.sent();
    expect(blocked).toMatchObject({ kind: 'notice' });
    expect(blocked!.text).toContain('needs you: the quota is used up');
    await rooms.say('7', `/retry ${await rooms.lastTaskId()}`);
    await rooms.report(await rooms.claim(), done);
    expect((await rooms.sent()).map((row) => row.kind)).toEqual(['notice', 'reply', 'final']);
  });
});

describe('state_changes', () => {
  it('tells every real change and new progress once, in order', async () => {
    await rooms.say('7', '/report 302 Ada');
    const first = await rooms.claim();
    await rooms.report(first, started);
    await rooms.report(first, { type: 'progress', percent: 50, message: 'half' });
    rooms.clock.advance(10);
    await rooms.report(first, { type: 'progress', percent: 50, message: 'half' });
    await rooms.report(first, { type: 'failed', errorClass: 'transient', error: 'busy' });
    rooms.clock.advance(60_000);
    const second = await rooms.claim();
    await rooms.report(second, started);
    await rooms.report(second, done);
    const rows = await rooms.sent();
    expect(rows.map((row) => row.text.split('\n')[0])).toEqual([
      '▶️ Report a check-in is running',
      '⏳ Report a check-in — 50 %, half',
      '🔁 Report a check-in is queued again (a passing fault)',
      '▶️ Report a check-in is running',
      '✅ Report a check-in — done in 1 min',
    ]);
    expect(rows.map((row) => row.kind)).toEqual(['update', 'update', 'update', 'update', 'final']);
  });
});

describe('silent', () => {
  it('tells nothing, also no failure', async () => {
    await rooms.say('7', '/run quiet');
    await rooms.report(await rooms.claim(), { type: 'failed', errorClass: 'permanent', error: 'no' });
    expect(await rooms.sent()).toEqual([]);
    expect((await rooms.tasks())[0]!.delivery_status).toBe('not_applicable');
  });

  it('costs no statement for silent tasks and tasks without a conversation', async () => {
    const notifier = createNotifier({
      outbox: rooms.outbox,
      ids: rooms.store.ids,
      titleOf: () => undefined,
      lang: 'auto',
    });
    const untouchable = new Proxy(
      {},
      { get: (_target, name) => expect.fail(`the transaction was used: ${String(name)}`) },
    );
    const end = {
      summary: null,
      error: null,
      errorClass: null,
      reason: null,
      attempt: 1,
      tookMs: 1,
      finishedBeforeCancel: false,
    };
    const ref = { id: 1, template: 'x', label: null, flowId: 1, generation: 1 };
    const events: TaskEvent[] = [
      { type: 'task.ended', state: 'succeeded', end, ...ref, sessionKey: 'k', notifyPolicy: 'silent' },
      { type: 'task.ended', state: 'succeeded', end, ...ref, sessionKey: null, notifyPolicy: 'done_only' },
      {
        type: 'task.state',
        from: 'leased',
        to: 'running',
        reason: null,
        ...ref,
        sessionKey: 'k',
        notifyPolicy: 'done_only',
      },
    ];
    await notifier.onTaskEvents(untouchable as never, events);
  });
});

describe('a final message', () => {
  it('is one row for ever: a repeated event and a restart add none', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), done);
    const ended = rooms.taskEvents.filter((event) => event.type === 'task.ended');
    await rooms.reopen();
    await rooms.store.transact('test.again', async (tx) => rooms.rooms.emitTasks(tx, [...ended, ...ended]));
    expect(await rooms.sent()).toHaveLength(1);
  });

  it('comes again after a retry by a person: one per generation', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), { type: 'failed', errorClass: 'permanent', error: 'no' });
    const [task] = await rooms.tasks();
    await rooms.store.transact('test.retry', (tx) =>
      retryTasks(tx, [{ id: task!.id, by: 'test' }], rooms.rooms.emitTasks),
    );
    await rooms.report(await rooms.claim(), done);
    expect((await rooms.sent()).map((row) => row.dedupe_key)).toEqual([
      `task:${task!.id}:1:final`,
      `task:${task!.id}:2:final`,
    ]);
  });

  it('speaks the language the conversation has chosen, else the one of the message', async () => {
    await rooms.say('7', '问候 张三');
    await rooms.report(await rooms.claim(), done);
    await rooms.store.transact('test.lang', (tx) => setSession(tx, sessionKeyOf(direct('7'), '7'), { lang: 'en' }));
    await rooms.say('7', '问候 李四');
    await rooms.report(await rooms.claim(), done);
    expect((await rooms.sent()).map((row) => row.text.split(' ')[1])).toEqual(['问候', 'Hello']);
  });

  it('becomes the delivery status of its task when it was sent or given up', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), done);
    const [task] = await rooms.tasks();
    const settled = {
      channel: 'telegram',
      account: 'default',
      chat: '7',
      id: 1,
      kind: 'final',
      sessionKey: null,
      taskId: task!.id,
      flowId: null,
      dedupeKey: `task:${task!.id}:1:final`,
    } as const;
    await rooms.letters({ type: 'outbox.dead', status: 'dead', ...settled });
    expect((await rooms.tasks())[0]!.delivery_status).toBe('failed');
    await rooms.letters({ type: 'outbox.sent', ...settled });
    expect((await rooms.tasks())[0]!.delivery_status).toBe('delivered');
    await rooms.letters({ type: 'outbox.dead', status: 'dead', ...settled, kind: 'update' });
    expect((await rooms.tasks())[0]!.delivery_status).toBe('delivered');
  });

  it('of an earlier generation tells nothing of the next one’s delivery, however late its receipt comes', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), { type: 'failed', errorClass: 'permanent', error: 'no' });
    const { id } = (await rooms.tasks())[0]!;
    await rooms.store.transact('test.retry', (tx) => retryTasks(tx, [{ id, by: 'test' }], rooms.rooms.emitTasks));
    await rooms.report(await rooms.claim(), done);
    const [first, second] = await rooms.sent();
    const leases = rooms.outbox.leases;
    const settle = async (message: { id: number }, status: 'sent' | 'dead') => {
      const [leased] = await rooms.store.write(leases.lease, [message.id]);
      if (leased === 'paced') throw new Error('the rates do not allow it');
      const end = { message: leased!, status, nextAt: 0, error: null, maybeRepeat: false, safeRepeats: 0 } as const;
      expect(await rooms.store.write(leases.settle, [{ ...end, partsSent: 1, platformIds: ['1'] }])).toEqual([true]);
      return (await rooms.tasks())[0]!.delivery_status;
    };
    expect(await settle(first!, 'sent')).toBe('session_queued');
    expect(await settle(second!, 'dead')).toBe('failed');
  });

  it('that nobody can be told of leaves parent_missing and no row', async () => {
    const task: NewTask = {
      template: 'hello',
      runtime: 'shell',
      pool: 'default',
      agent: null,
      labels: null,
      lane: 'main',
      serialKey: null,
      args: {},
      idempotencyKey: null,
      sessionKey: 'gone',
      flowId: null,
      source: 'api',
      label: null,
      parentTaskId: null,
      notifyPolicy: null,
      priority: 'normal',
      runAt: null,
      ttlMs: null,
      timeoutMs: 1_000,
      retry: null,
    };
    await rooms.store.transact('test.create', (tx) => createTasks(tx, [task], rooms.rooms.emitTasks));
    await rooms.report(await rooms.claim(), done);
    expect(await rooms.sent()).toEqual([]);
    expect((await rooms.tasks())[0]!.delivery_status).toBe('parent_missing');
  });
});

it('tells many ends that come together in one transaction, each once', async () => {
  await rooms.intake.stop();
  for (let index = 0; index < 30; index += 1) await rooms.hear('7', `greet n${index}`);
  await rooms.intake.start();
  await rooms.settled();
  const grants = [];
  for (let index = 0; index < 30; index += 1) grants.push(await rooms.claim());
  const { transactions } = rooms.store.stats();
  await Promise.all(grants.map((grant) => rooms.report(grant, done)));
  expect(rooms.store.stats().transactions - transactions).toBe(1);
  expect(new Set((await rooms.sent()).map((row) => row.task_id)).size).toBe(30);
});
