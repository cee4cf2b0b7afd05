import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type GraphEnd, graphText as graphWords } from '../../src/notifications/graph-wording.ts';
import { createNotifier, type Notifier } from '../../src/notifications/notifier.ts';
import { createOutbox } from '../../src/outbox/enqueue.ts';
import { touchSessions } from '../../src/sessions/sessions.ts';
import type { NewTask } from '../../src/tasks/task.ts';
import { Core, ROUTE, SESSION, START } from '../support/core.ts';
import { diamond, fail, makeGraph, runTask, succeed } from '../support/graphs.ts';

const graphText = (end: GraphEnd) => graphWords(end).text;

let core: Core;
let notifier: Notifier;
beforeEach(async () => {
  const outbox = createOutbox({ instant: new Set(), emit: () => undefined });
  core = await Core.open({
    subscriber: () => (tx, events) => notifier.onTaskEvents(tx, events),
  });
  const titleOf = (id: string, lang: 'en' | 'zh') => (id === 't' ? { en: 'Step', zh: '步骤' }[lang] : undefined);
  notifier = createNotifier({ outbox, ids: core.store.ids, titleOf, lang: 'auto' });
  await core.store.transact('test.session', (tx) =>
    touchSessions(tx, [{ sessionKey: SESSION, route: ROUTE, at: START }]),
  );
});
afterEach(() => core.close());

type Four = [number, number, number, number];
const asked = (more: Partial<NewTask> = {}) => ({ goal: 'Nightly', task: { sessionKey: SESSION, ...more } });
const messages = async () => {
  const build = core.store.dialect.build;
  return core.store.fetch(
    build.selectFrom('outbox').select(['kind', 'text', 'task_id', 'flow_id', 'session_key']).orderBy('id'),
  );
};
const texts = async () => (await messages()).map(({ text }) => text);
const delivery = (ids: readonly number[]) => Promise.all(ids.map(async (id) => (await core.task(id)).delivery_status));
const shown = (id: number) => core.store.ids.encode(id);

describe('a graph of a conversation', () => {
  it('that succeeds is told with one message, which brings what its last tasks say', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond(), asked())) as Four;
    core.clock.advance(61_000);
    for (const id of [a, b, c, d]) await succeed(core, id);
    expect(await messages()).toEqual([
      {
        kind: 'final',
        text: `✅ Nightly — all 4 tasks done in 1 min 1 s\nsummary of ${d}`,
        task_id: d,
        flow_id: (await core.flowOf(a)).id,
        session_key: SESSION,
      },
    ]);
    expect(await delivery([a, b, c, d])).toEqual([
      'not_applicable',
      'not_applicable',
      'not_applicable',
      'session_queued',
    ]);
  });

  it('A62: that fails is told once, after its last task, with what failed and what was skipped', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond(), asked())) as Four;
    await succeed(core, a);
    await fail(core, b);
    expect(await messages()).toEqual([]);
    await succeed(core, c);
    expect(await texts()).toEqual([
      `❌ Nightly failed after under 1 s: 2 of 4 tasks done, 1 failed, 1 skipped\n· Step · 1 failed: no such room — /retry ${shown(b)}`,
    ]);
    expect(await delivery([a, b, c, d])).toEqual([
      'not_applicable',
      'not_applicable',
      'session_queued',
      'not_applicable',
    ]);
  });

  it('A62: that a replay brings to its end is told once more', async () => {
    const [a, b, c, d] = (await makeGraph(core, diamond(), asked())) as Four;
    await succeed(core, a);
    await fail(core, b);
    await succeed(core, c);
    await core.retry(b);
    await succeed(core, b);
    await succeed(core, d);
    expect((await texts()).map((text) => text.split('\n')[0])).toEqual([
      '❌ Nightly failed after under 1 s: 2 of 4 tasks done, 1 failed, 1 skipped',
      '✅ Nightly — all 4 tasks done in under 1 s',
    ]);
    expect(await delivery([b, d])).toEqual(['not_applicable', 'session_queued']);
  });

  it('is told in the language of its person', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }], { ...asked(), goal: '夜间任务' })) as Four;
    await fail(core, a);
    expect(await texts()).toEqual([
      `❌ 夜间任务 失败，用时 不到 1 秒：2 个任务中完成 0 个，失败 1 个，跳过 1 个\n· 步骤 · 0 失败：no such room — /retry ${shown(a)}`,
    ]);
    expect(await delivery([b])).toEqual(['session_queued']);
  });

  it('that is cancelled names who can be run again', async () => {
    const [a] = (await makeGraph(core, [{}, { needs: [0] }], asked())) as Four;
    await core.cancel(a);
    expect(await texts()).toEqual([
      `🚫 Nightly was cancelled after under 1 s: 0 of 2 tasks done, 1 cancelled, 1 skipped\n· Step · 0 was cancelled — /retry ${shown(a)}`,
    ]);
  });

  it('still tells at once what waits for a person', async () => {
    const [a] = (await makeGraph(core, [{}, { needs: [0] }], asked())) as Four;
    await core.tell(await runTask(core, a), { type: 'blocked', summary: 'the quota is used up' });
    expect((await messages()).map(({ kind }) => kind)).toEqual(['notice']);
  });

  it('with state_changes tells each task too, and why one was skipped', async () => {
    const [a, b] = (await makeGraph(core, [{}, { needs: [0] }], asked({ notifyPolicy: 'state_changes' }))) as Four;
    await fail(core, a);
    expect((await texts()).map((text) => text.split('\n')[0])).toEqual([
      '▶️ Step · 0 is running',
      '❌ Step · 0 failed: no such room',
      `⏭ Step · 1 was skipped: it needs Step · 0 (${shown(a)}), which failed`,
      '❌ Nightly failed after under 1 s: 0 of 2 tasks done, 1 failed, 1 skipped',
    ]);
    expect(await delivery([a, b])).toEqual(['session_queued', 'session_queued']);
  });

  it('with silent tells nothing, and of mixed tasks the flow speaks', async () => {
    const quiet = (await makeGraph(core, [{}, { needs: [0] }], asked({ notifyPolicy: 'silent' }))) as Four;
    for (const id of quiet) await succeed(core, id);
    expect(await messages()).toEqual([]);
    const nodes = [{}, { needs: [0], task: { notifyPolicy: 'silent' as const } }];
    const mixed = (await makeGraph(core, nodes, asked())) as Four;
    for (const id of mixed) await succeed(core, id);
    expect((await messages()).map(({ task_id }) => task_id)).toEqual([mixed[1]]);
    expect(await delivery([...quiet, ...mixed])).toEqual([
      'not_applicable',
      'not_applicable',
      'not_applicable',
      'session_queued',
    ]);
  });

  it('nobody’s graph tells nobody', async () => {
    const ids = (await makeGraph(core, diamond())) as Four;
    for (const id of ids) await succeed(core, id);
    expect(await messages()).toEqual([]);
    expect(new Set(await delivery(ids))).toEqual(new Set(['not_applicable']));
  });

  it('a child of an errand leaves that errand its own message', async () => {
    const id = await core.ask();
    const flowId = core.store.ids.encode((await core.flowOf(id)).id);
    const [child] = (await makeGraph(core, [{ flowId, needs: [shown(id)] }])) as Four;
    await succeed(core, id);
    await succeed(core, child);
    expect((await messages()).map(({ task_id, text }) => [task_id, text.split('\n')[0]])).toEqual([
      [id, '✅ Step — done in under 1 s'],
      [child, '✅ Step · 0 — done in under 1 s'],
    ]);
  });
});

it('texts of programs and people stay on their lines, within bounds', () => {
  const hostile = `a\u202Eb\n/cancel all\u0007 ${'x'.repeat(10_000)}`;
  const text = graphText({
    lang: 'en',
    goal: hostile,
    status: 'failed',
    tookMs: 1,
    counts: { succeeded: 1, failed: 1, cancelled: 0, skipped: 0 },
    troubles: [{ id: 'k7q2', title: 'T', state: 'failed', end: { error: hostile, reason: null, attempt: 1 } }],
    results: [1, 2, 3].map((n) => ({ title: `R${n}`, summary: hostile })),
  });
  expect(text).not.toMatch(/[\u202E\u0007]/);
  expect(text.length).toBeLessThan(5_000);
  expect(text.split('\n')[0]).toMatch(/^❌ ab \/cancel all x+… failed after under 1 s: 1 of 2 tasks done, 1 failed$/);
});
