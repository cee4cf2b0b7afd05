import { existsSync } from 'node:fs';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { RunEnd, Runtime } from '../../../src/agents/worker/runtime/runtime.ts';
import { stoppedEnd } from '../../../src/agents/worker/runtime/runtime.ts';
import { shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { processesWith, type Rig, rig, uniqueSleep } from './rig.ts';

let r: Rig;
beforeEach(async () => {
  r = await rig();
});
afterEach(async () => {
  expect(r.gateway.malformed).toEqual([]);
  await r.close();
});

const ended = (runId: string) => until(() => r.gateway.endOf(runId), `the end of ${runId}`);

/** A runtime whose runs end when the test says so. */
function puppetRuntime() {
  const open = new Map<string, (end: RunEnd) => void>();
  const started: string[] = [];
  let most = 0;
  const runtime: Runtime = {
    run: (job) => {
      started.push(job.assignment.runId);
      return new Promise((resolve) => {
        const finish = (end: RunEnd) => {
          open.delete(job.assignment.runId);
          resolve(end);
        };
        open.set(job.assignment.runId, finish);
        most = Math.max(most, open.size);
        job.signal.addEventListener('abort', () => finish(stoppedEnd(job.signal.reason)), { once: true });
      });
    },
  };
  return {
    runtimes: new Map([['puppet', runtime]]),
    started,
    open,
    most: () => most,
    finish: (runId: string) => open.get(runId)?.({ type: 'succeeded', summary: 'done' }),
    finishAll: () => {
      for (const finish of [...open.values()]) finish({ type: 'succeeded', summary: 'done' });
    },
  };
}

const puppetTask = () => shellTask(['-'], { runtime: 'puppet' });

describe('a task', () => {
  it('is pulled, run and reported with its start and its end', async () => {
    const go = join(r.dir, 'go');
    const task = shellTask(['sh', '-c', `echo hello; until [ -e ${go} ]; do sleep 0.02; done`]);
    r.gateway.grant(task);
    await r.start();
    await until(() => r.gateway.reportsOf(task.runId).length > 0, 'the start to be told');
    expect(r.gateway.reportsOf(task.runId)[0]).toMatchObject({ type: 'started', seq: 0 });
    await writeFile(go, '');
    expect(await ended(task.runId)).toMatchObject({ type: 'succeeded', summary: 'hello', exitCode: 0 });
    expect(r.gateway.logOf(task.runId)).toBe('hello\n');
  });

  it('is run when the gateway comes up after the agent', async () => {
    await r.gateway.stop();
    const agent = await r.start();
    expect(agent.isRegistered()).toBe(false);
    const task = shellTask(['true']);
    r.gateway.grant(task);
    await r.gateway.start();
    await ended(task.runId);
  });

  it('of a template that the owner does not allow fails for good with a clear sentence and starts nothing', async () => {
    const task = shellTask(['touch', join(r.dir, 'proof')], { template: 'wipe-disk' });
    r.gateway.grant(task);
    await r.start({ allow: ['report-*'] });
    const end = await ended(task.runId);
    expect(end).toMatchObject({ type: 'failed', errorClass: 'permanent' });
    expect(end).toHaveProperty('error', expect.stringContaining("does not accept the template 'wipe-disk'"));
    expect(existsSync(join(r.dir, 'proof'))).toBe(false);
  });

  it('is cancelled at once although the heartbeat is parked, and other tasks go on', async () => {
    const puppet = puppetRuntime();
    const [one, other] = [puppetTask(), puppetTask()];
    r.gateway.grant(one, other);
    await r.start({ concurrency: 2, runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => puppet.open.size === 2);
    r.gateway.cancel(one.runId);
    expect(await ended(one.runId)).toMatchObject({ type: 'cancelled' });
    expect(puppet.open.has(other.runId)).toBe(true);
    puppet.finishAll();
    expect(await ended(other.runId)).toMatchObject({ type: 'succeeded' });
  });

  it('that began after the parked heartbeat was sent is cancelled without waiting for the next one', async () => {
    const slow = await rig({ heartbeatMs: 600_000 });
    const puppet = puppetRuntime();
    const agent = await slow.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => slow.gateway.count('heartbeat') === 1 && agent.isRegistered());
    const task = puppetTask();
    slow.gateway.grant(task);
    await until(() => puppet.open.size === 1);
    slow.gateway.cancel(task.runId);
    expect(await until(() => slow.gateway.endOf(task.runId))).toMatchObject({ type: 'cancelled' });
    await slow.close();
  });

  it('whose lease is lost is killed and never reported', async () => {
    const seconds = uniqueSleep();
    const task = shellTask(['sleep', seconds]);
    r.gateway.grant(task);
    const agent = await r.start();
    await until(async () => (await processesWith(`sleep ${seconds}`)).length === 1);
    r.gateway.lose(task.runId);
    await until(() => agent.busy() === 0);
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
    const next = shellTask(['true']);
    r.gateway.grant(next);
    await ended(next.runId);
    expect(r.gateway.endOf(task.runId)).toBeUndefined();
    expect(r.gateway.calls.filter((call) => JSON.stringify(call.body).includes('released'))).toEqual([]);
  });

  it('that fails by a fault of the machine is reported, and the agent goes on', async () => {
    const broken: Runtime = { run: () => Promise.reject(Object.assign(new Error('disk full'), { code: 'ENOSPC' })) };
    const task = shellTask(['-'], { runtime: 'broken' });
    r.gateway.grant(task);
    await r.start({ runtimes: ['broken'] }, new Map([['broken', broken]]));
    expect(await ended(task.runId)).toMatchObject({ type: 'failed', errorClass: 'transient' });
  });

  it('never shows a secret of its template, in no form, in nothing that is sent', async () => {
    const secret = 'p4ss/w0rd+ünïcode "x"';
    const script = `
      echo "plain $KEY"; printf %s "user:$KEY" | base64 -w0; echo
      printf '42 using %s\\n' "$KEY" > "$ERRAND_PROGRESS"
      echo "result=$KEY" > "$ERRAND_OUTPUT"; echo "summary $KEY" > "$ERRAND_SUMMARY"; printf '["%s"]' abc > "$ERRAND_CHECKPOINT_OUT"
      printf '%s' "$KEY" | cut -c1-8 | tr -d '\\n' >&2; sleep 0.4; printf '%s' "$KEY" | cut -c9- >&2; exit 1`;
    const task = shellTask(['sh', '-c', script], { secrets: ['KEY'] });
    r.gateway.grant(task);
    await r.start({ secrets: new Map([['KEY', secret]]) });
    expect(await ended(task.runId)).toMatchObject({ type: 'failed', exitCode: 1 });
    const sent = r.gateway.calls.map((call) => JSON.stringify(call.body)).join('\n');
    for (const form of [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)])
      expect(sent).not.toContain(form);
    expect(sent).not.toContain(Buffer.from(`user:${secret}`).toString('base64').slice(8, 30));
    expect(r.gateway.logOf(task.runId)).toContain('plain [secret]');
    expect(r.gateway.logOf(task.runId, 'stderr')).toBe('[secret]\n');
    expect(r.gateway.endOf(task.runId)).toHaveProperty('error', expect.stringContaining('[secret]'));
  });

  it('that asks for a secret this agent has not fails for good and names it', async () => {
    const task = shellTask(['true'], { secrets: ['MISSING_KEY'] });
    r.gateway.grant(task);
    await r.start();
    expect(await ended(task.runId)).toMatchObject({
      type: 'failed',
      errorClass: 'permanent',
      error: expect.stringContaining('MISSING_KEY'),
    });
  });
});

describe('a bad connection', () => {
  it('loses no task when the answer of a pull is lost (A04, trap 3): it is offered again and run once', async () => {
    const task = shellTask(['sh', '-c', `echo x >> ${join(r.dir, 'runs')}`]);
    r.gateway.dropNextAnswer('pull');
    r.gateway.grant(task);
    await r.start();
    await ended(task.runId);
    expect((await stat(join(r.dir, 'runs'))).size).toBe(2);
    expect(r.gateway.count('pull')).toBeGreaterThan(1);
  });

  it('reports a result once when the answer of a report is lost', async () => {
    const puppet = puppetRuntime();
    const task = puppetTask();
    r.gateway.grant(task);
    await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => r.gateway.reportsOf(task.runId).length === 1);
    r.gateway.dropNextAnswer('report');
    puppet.finishAll();
    await until(() => r.gateway.duplicates > 0);
    expect(r.gateway.reportsOf(task.runId).filter((report) => report.type === 'succeeded')).toHaveLength(1);
  });

  it('runs a task once when the answer of a report that brought it is lost', async () => {
    const puppet = puppetRuntime();
    const [first, second] = [puppetTask(), puppetTask()];
    r.gateway.grant(first);
    await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => r.gateway.reportsOf(first.runId).length === 1);
    r.gateway.grant(second);
    r.gateway.dropNextAnswer('report');
    puppet.finishAll();
    await until(() => puppet.open.has(second.runId));
    puppet.finishAll();
    await ended(second.runId);
    expect(puppet.started).toEqual([first.runId, second.runId]);
  });

  it('keeps results while the gateway is away and brings all of them afterwards, once', async () => {
    const puppet = puppetRuntime();
    const tasks = Array.from({ length: 20 }, puppetTask);
    r.gateway.grant(...tasks);
    await r.start({ concurrency: 20, runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => puppet.open.size === 20);
    r.gateway.fail(503);
    puppet.finishAll();
    const before = r.gateway.count('report');
    await until(() => r.gateway.count('report') >= before + 3);
    r.gateway.recover();
    for (const task of tasks) expect(await ended(task.runId)).toMatchObject({ type: 'succeeded' });
    expect(r.gateway.reports.filter((report) => report.type === 'succeeded')).toHaveLength(20);
  });

  it('does not end a run although the gateway is away', async () => {
    const puppet = puppetRuntime();
    const task = { ...puppetTask(), leaseMs: 1 };
    r.gateway.grant(task);
    const agent = await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => puppet.open.size === 1);
    r.gateway.fail(503);
    const before = r.gateway.count('heartbeat');
    await until(() => r.gateway.count('heartbeat') > before + 2);
    expect(agent.busy()).toBe(1);
    r.gateway.recover();
    puppet.finishAll();
    expect(await ended(task.runId)).toMatchObject({ type: 'succeeded' });
  });

  it('with a wrong token keeps trying and works as soon as the token is accepted', async () => {
    r.gateway.fail(401, 'unauthorized');
    const agent = await r.start();
    await until(() => r.gateway.count('register') >= 2);
    expect(agent.isRegistered()).toBe(false);
    r.gateway.recover();
    await until(() => agent.isRegistered());
  });

  it('to a gateway that has forgotten this instance is mended by registering again', async () => {
    const agent = await r.start();
    await until(() => agent.isRegistered());
    r.gateway.fail(404, 'not_found', 'pull');
    await until(() => r.gateway.registrations.length >= 2);
    r.gateway.recover();
    const task = shellTask(['true']);
    r.gateway.grant(task);
    await ended(task.runId);
    expect(new Set(r.gateway.registrations.map((item) => item.instanceId)).size).toBe(1);
  });
});

describe('reports', () => {
  it('of many runs that end together travel together, and bring the next tasks with their answer', async () => {
    const instant: Runtime = { run: async () => ({ type: 'succeeded', summary: 'ok' }) };
    const tasks = Array.from({ length: 256 }, () => shellTask(['-'], { runtime: 'instant' }));
    r.gateway.grant(...tasks);
    await r.start({ concurrency: 64, runtimes: ['instant'] }, new Map([['instant', instant]]));
    for (const task of tasks) await ended(task.runId);
    const reports = r.gateway.calls.filter((call) => call.call === 'report');
    expect(reports.length).toBeLessThan(20);
    // An end implies its start, so the start of a run that is over at once is not told.
    expect(r.gateway.reports.map((report) => report.type)).toEqual(Array.from({ length: 256 }, () => 'succeeded'));
    expect(reports.some((call) => call.body.next !== undefined)).toBe(true);
    expect((reports[0]!.body.reports as unknown[]).length).toBe(64);
  });

  it('ask for no more than they free while little happens: the other slots wait at the gateway for the next task', async () => {
    const instant: Runtime = { run: async () => ({ type: 'succeeded', summary: 'ok' }) };
    await r.start({ concurrency: 64, runtimes: ['instant'] }, new Map([['instant', instant]]));
    for (const _ of Array.from({ length: 5 })) {
      const task = shellTask(['-'], { runtime: 'instant' });
      r.gateway.grant(task);
      await ended(task.runId);
    }
    const reports = r.gateway.calls.filter(({ call, body }) => call === 'report' && body.next !== undefined);
    expect(reports.filter(({ body }) => Number(body.next) > 1)).toEqual([]);
  });

  it('never bring more tasks than can run at once', async () => {
    const puppet = puppetRuntime();
    const tasks = Array.from({ length: 40 }, puppetTask);
    r.gateway.grant(...tasks);
    const agent = await r.start({ concurrency: 3, runtimes: ['puppet'] }, puppet.runtimes);
    let most = 0;
    while (r.gateway.reports.filter((report) => report.type === 'succeeded').length < 40) {
      most = Math.max(most, agent.busy());
      puppet.open.values().next().value?.({ type: 'succeeded', summary: '' });
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(most).toBe(3);
    expect(puppet.most()).toBe(3);
    expect(new Set(puppet.started).size).toBe(40);
  });

  it('re-pull as soon as one slot is free while the others are still busy', async () => {
    const puppet = puppetRuntime();
    const [long, short, next] = [puppetTask(), puppetTask(), puppetTask()];
    r.gateway.grant(long, short);
    await r.start({ concurrency: 2, runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => puppet.open.size === 2);
    r.gateway.grant(next);
    puppet.finish(short.runId);
    await until(() => puppet.open.has(next.runId));
    expect(puppet.open.has(long.runId)).toBe(true);
    puppet.finishAll();
    await ended(long.runId);
  });

  it('that are rejected 20 times are put aside, and others are not held up', async () => {
    const task = shellTask(['sh', '-c', 'echo kept']);
    const other = shellTask(['true']);
    r.gateway.reject(task.runId);
    r.gateway.grant(task, other);
    await r.start();
    const dead = join(r.dir, 'spool', 'dead');
    await ended(other.runId);
    await until(async () => (await readdir(dead)).length === 1, 'the report to be put aside');
    const sends = r.gateway.calls
      .filter((call) => call.call === 'report')
      .flatMap((call) => call.body.reports as { runId: string; type: string }[])
      .filter((report) => report.runId === task.runId && report.type === 'succeeded');
    expect(sends).toHaveLength(20);
    await until(async () => (await stat(join(r.dir, 'spool', 'reports.log'))).size === 0);
  });

  it('that the gateway cannot read do not hold up the others', async () => {
    const odd: Runtime = {
      run: async (job) => ({
        type: 'succeeded',
        summary: job.assignment.template === 'odd' ? 'x'.repeat(30_000) : 'fine',
      }),
    };
    const tasks = Array.from({ length: 9 }, (_, i) =>
      shellTask(['-'], { runtime: 'odd', template: i === 4 ? 'odd' : 'test' }),
    );
    r.gateway.grant(...tasks);
    await r.start({ concurrency: 16, runtimes: ['odd'] }, new Map([['odd', odd]]));
    for (const task of tasks.filter((item) => item.template === 'test')) {
      expect(await ended(task.runId)).toMatchObject({ summary: 'fine' });
    }
    expect(r.gateway.endOf(tasks[4]!.runId)).toBeUndefined();
    expect(r.gateway.malformed.length).toBeGreaterThan(0);
    r.gateway.malformed.length = 0;
    await r.close();
    r.gateway.malformed.length = 0;
  });
});

describe('a second instance of one id', () => {
  it('ends the first for good with exit code 4, and no task runs in both (A06)', async () => {
    const puppets = [puppetRuntime(), puppetRuntime()];
    const tasks = Array.from({ length: 20 }, puppetTask);
    const first = await r.start({ runtimes: ['puppet'] }, puppets[0]!.runtimes);
    await until(() => first.isRegistered());
    r.gateway.grant(tasks[0]!);
    await until(() => puppets[0]!.open.size === 1);
    const second = await r.start({ runtimes: ['puppet'], spoolDir: join(r.dir, 'copy') }, puppets[1]!.runtimes);
    expect(await first.ended).toEqual({ reason: 'replaced', exitCode: 4 });
    expect(puppets[0]!.open.size).toBe(0);
    r.gateway.grant(...tasks.slice(1));
    while (puppets[1]!.started.length < 19) {
      puppets[1]!.finishAll();
      await new Promise((resolve) => setImmediate(resolve));
    }
    puppets[1]!.finishAll();
    for (const task of tasks.slice(1)) await ended(task.runId);
    expect(puppets[0]!.started).toEqual([tasks[0]!.runId]);
    expect(second.isRegistered()).toBe(true);
    expect(r.gateway.endOf(tasks[0]!.runId)).toBeUndefined();
  });

  it('is refused where it would write into the same spool folder', async () => {
    await r.start();
    await expect(r.start()).rejects.toThrow(/is using the spool folder/);
  });
});

describe('stop', () => {
  it('ends a long program with everything it started, gives the run back and takes nothing new (A46)', async () => {
    const seconds = uniqueSleep();
    const task = shellTask(['sh', '-c', `sleep ${seconds} & sleep ${seconds} & wait`]);
    r.gateway.grant(task);
    const agent = await r.start();
    await until(async () => (await processesWith(`sleep ${seconds}`)).length >= 3);
    const stopped = agent.stop();
    const waiting = shellTask(['true']);
    r.gateway.grant(waiting);
    await stopped;
    expect(await agent.ended).toEqual({ reason: 'stopped', exitCode: 0 });
    expect(r.gateway.endOf(task.runId)).toMatchObject({ type: 'released' });
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
    expect(r.gateway.reportsOf(waiting.runId)).toEqual([]);
    const calls = r.gateway.calls.length;
    await agent.stop();
    expect(r.gateway.calls.length).toBe(calls);
  });

  it('lets a program save its checkpoint within the grace', async () => {
    const script =
      'trap \'echo "{\\"step\\":3}" > "$ERRAND_CHECKPOINT_OUT"; exit 0\' TERM; echo ready > "$ERRAND_PROGRESS"; while :; do sleep 0.05; done';
    const task = shellTask(['sh', '-c', script]);
    r.gateway.grant(task);
    const agent = await r.start();
    await until(() => r.gateway.reportsOf(task.runId).some((report) => report.type === 'progress'));
    await agent.stop();
    const types = r.gateway.reportsOf(task.runId).map((report) => report.type);
    expect(types.filter((type) => type !== 'log').slice(-2)).toEqual(['checkpoint', 'released']);
    expect(r.gateway.reportsOf(task.runId)).toContainEqual(
      expect.objectContaining({ type: 'checkpoint', data: { step: 3 } }),
    );
  });

  it('in a hurry kills a program that ignores SIGTERM without waiting for its grace', async () => {
    const task = shellTask(['sh', '-c', 'trap "" TERM; echo on > "$ERRAND_PROGRESS"; while :; do sleep 0.05; done'], {
      spec: { graceMs: 600_000 },
    });
    r.gateway.grant(task);
    const agent = await r.start({ killGraceMs: 600_000 });
    await until(() => r.gateway.reportsOf(task.runId).some((report) => report.type === 'progress'));
    const stopped = agent.stop();
    agent.hurry();
    await stopped;
    expect(r.gateway.endOf(task.runId)).toMatchObject({ type: 'released' });
  });

  it('ends although the gateway is away, and the next instance hands in what is left before anything else (trap 1)', async () => {
    const puppet = puppetRuntime();
    const task = puppetTask();
    r.gateway.grant(task);
    const agent = await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => r.gateway.reportsOf(task.runId).length === 1);
    r.gateway.fail(503);
    puppet.finishAll();
    await agent.stop();
    r.gateway.recover();
    await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    expect(await ended(task.runId)).toMatchObject({ type: 'succeeded', summary: 'done' });
    expect(r.gateway.registrations.at(-1)?.reports).toHaveLength(1);
    await until(async () => (await stat(join(r.dir, 'spool', 'reports.log'))).size === 0);
  });
});

describe('a run that an earlier instance had started', () => {
  it('is not started again when it is offered again, and is named as held', async () => {
    const puppet = puppetRuntime();
    const task = puppetTask();
    r.gateway.grant(task);
    const first = await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() => puppet.open.size === 1);
    await first.stop();
    r.gateway.grant(task);
    await r.start({ runtimes: ['puppet'] }, puppet.runtimes);
    await until(() =>
      r.gateway.calls.some((call) => call.call === 'pull' && (call.body.holding as string[]).includes(task.runId)),
    );
    expect(puppet.started).toEqual([task.runId]);
  });
});
