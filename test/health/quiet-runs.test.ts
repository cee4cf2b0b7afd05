import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AgentGateway } from '../../src/agents/gateway.ts';
import { QuietRuns } from '../../src/health/quiet-runs.ts';
import { silentLog } from '../../src/log.ts';
import { lastLogChunks } from '../../src/tasks/log-reading.ts';
import { Core } from '../support/core.ts';

let core: Core;
let quiet: QuietRuns;
let limitMs: number | null;
beforeEach(async () => {
  core = await Core.open();
  limitMs = 600_000;
  const { store, clock } = core;
  quiet = new QuietRuns({ store, clock, log: silentLog, quietAfterMs: () => limitMs });
});
afterEach(() => core.close());

describe('runs that say nothing', () => {
  test('a run is asked once after its time, and again after another', async () => {
    await core.create();
    const { runId } = await core.run();
    core.pass(599_000);
    await quiet.lookOnce();
    expect(quiet.take(runId)).toBe(false);
    core.pass(1_000);
    await quiet.lookOnce();
    expect([quiet.take(runId), quiet.take(runId)]).toEqual([true, false]);
    core.pass(30_000);
    await quiet.lookOnce();
    expect(quiet.take(runId)).toBe(false);
    core.pass(30_000);
    await quiet.lookOnce();
    expect(quiet.take(runId)).toBe(true);
  });

  test('a word of the run, or its sign of life, begins its time anew', async () => {
    const id = await core.create();
    const grant = await core.run();
    core.pass(599_000);
    await core.tell(grant, { type: 'log', stream: 'stdout', text: 'x\n', offset: 0 });
    core.pass(599_000);
    await quiet.lookOnce();
    expect(quiet.take(grant.runId)).toBe(false);
    core.pass(1_000);
    await quiet.lookOnce();
    expect(quiet.take(grant.runId)).toBe(true);
    const process = { pid: 42, name: 'node', state: 'S', cpuMs: 1_500, rssBytes: 64 * 1024 ** 2 };
    await core.tell(grant, { type: 'snapshot', processes: [process] });
    core.pass(599_000);
    await quiet.lookOnce();
    expect(quiet.take(grant.runId)).toBe(false);
    expect((await lastLogChunks(core.store, core.store.ids, id, 5)).at(-1)).toMatchObject({
      stream: 'agent',
      text: '[errand] sign of life: 1 process\n[errand] 42 node sleeping, cpu 1.5 s, memory 64 MiB\n',
    });
    expect(await core.task(id)).toMatchObject({ status: 'running' });
  });

  test('off means never, and a run that has ended is forgotten', async () => {
    await core.create();
    const grant = await core.run();
    core.pass(7 * 86_400_000);
    limitMs = null;
    await quiet.lookOnce();
    expect(quiet.take(grant.runId)).toBe(false);
    limitMs = 1_000;
    await quiet.lookOnce();
    await core.tell(grant, { type: 'succeeded', summary: '' });
    await quiet.lookOnce();
    expect(quiet.take(grant.runId)).toBe(false);
  });

  test('the heartbeat carries the question to the agent that holds the run', async () => {
    const asked: number[] = [];
    const { store, clock, registry, dispatch, emit } = core;
    const gateway = new AgentGateway({
      ...{ store, clock, registry, dispatch, emit, log: silentLog, ids: store.ids },
      ...{ leaseMs: 30_000, heartbeatMs: 10_000, version: '1', assignmentOf: () => undefined },
      isQuiet: (runId) => {
        asked.push(runId);
        return asked.length === 1;
      },
    });
    const agent = core.agent('a1');
    await agent.register();
    await core.create();
    const { runId, leaseToken } = await core.run('a1', { instanceId: 'a1-1' });
    const beat = (more: object) =>
      gateway.heartbeat(
        agent.identity,
        { ...agent.caller, uptimeMs: 1, load: 0, activeRuns: active, ...more },
        new AbortController().signal,
      );
    const active = [{ runId: store.ids.encode(runId), leaseToken }];
    const started = performance.now();
    expect((await beat({ waitMs: 60_000 })).runs).toEqual([
      { runId: active[0]!.runId, action: 'continue', probe: true },
    ]);
    // At once: a question is a reason to answer a heartbeat that waits.
    expect(performance.now() - started).toBeLessThan(50_000);
    expect((await beat({})).runs).toEqual([{ runId: active[0]!.runId, action: 'continue' }]);
  });
});
