import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type HealthLimits, HealthProbe } from '../../../src/agents/worker/health-measures.ts';
import { snapshotOf } from '../../../src/agents/worker/health-processes.ts';
import { SelfCheck } from '../../../src/agents/worker/self-check.ts';
import { silentLog } from '../../../src/log.ts';
import { shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { rig } from './rig.ts';

let dir: string;
const children: { kill(signal: NodeJS.Signals): boolean }[] = [];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-health-'));
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await rm(dir, { recursive: true, force: true });
});

function start(script: string, detached = true) {
  const child = spawn(process.execPath, ['-e', script], { detached, stdio: 'ignore' });
  children.push(child);
  return child;
}

/** No machine is ever short of these. */
const GENEROUS: HealthLimits = {
  descriptorShare: 1.1,
  lagMs: 3_600_000,
  spoolBytes: Number.MAX_SAFE_INTEGER,
  freeBytes: 0,
  stuckChildren: 1_000_000,
};
const probe = (limits: Partial<HealthLimits>) =>
  new HealthProbe({ spoolDir: dir, workDir: dir, limits: { ...GENEROUS, ...limits } });

describe('measures', () => {
  test('a healthy process fails no check', async () => {
    const healthy = probe({});
    const measures = await healthy.measure([]);
    expect(measures).toMatchObject({ descriptors: expect.any(Number), freeBytes: expect.any(Number) });
    expect(healthy.failed(measures)).toEqual([]);
  });

  test.each([
    ['descriptors', { descriptorShare: 0 }],
    ['event_loop', { lagMs: 0 }],
    ['spool', { spoolBytes: 1_000 }],
    ['disk', { freeBytes: Number.MAX_SAFE_INTEGER }],
  ] as const)('%s beyond its limit fails that check alone', async (name, limits) => {
    await writeFile(join(dir, 'reports.log'), 'x'.repeat(2_000));
    const strict = probe(limits);
    expect(strict.failed(await strict.measure([]))).toEqual([name]);
  });

  test('a loop that was blocked is seen', async () => {
    const watching = probe({ lagMs: 200 });
    watching.start();
    try {
      await new Promise((resolve) => setTimeout(resolve, 1_100));
      const until = performance.now() + 1_200;
      while (performance.now() < until);
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(watching.failed(await watching.measure([]))).toEqual(['event_loop']);
    } finally {
      watching.stop();
    }
  });

  test('a group that no run knows is a stuck child at the second look, one of a run never is', async () => {
    const known = start('setInterval(() => undefined, 1000)').pid!;
    const looking = probe({ stuckChildren: 1 });
    await looking.measure([known]);
    const before = (await looking.measure([known])).stuckChildren;
    start('setInterval(() => undefined, 1000)');
    await looking.measure([known]);
    expect((await looking.measure([known])).stuckChildren).toBe(before + 1);
  });
});

describe('a sign of life', () => {
  test('shows the processes of the group and their children, without arguments', async () => {
    const script = `require('child_process').spawn(process.execPath, ['-e', 'setInterval(() => 0, 1000)', 'secret-word'], { detached: true }); setInterval(() => 0, 1000)`;
    const { pid } = start(script);
    const { processes } = await until(async () => {
      const snapshot = await snapshotOf(pid!);
      return snapshot.processes.length === 2 && snapshot;
    }, 'both processes');
    expect(processes.map((line) => line.pid)).toContain(pid);
    for (const line of processes) {
      expect(line).toEqual({
        pid: expect.any(Number),
        name: expect.stringMatching(/^[\x20-\x7e]{1,64}$/),
        state: expect.stringMatching(/^[A-Za-z]$/),
        cpuMs: expect.any(Number),
        rssBytes: expect.any(Number),
      });
    }
    expect(JSON.stringify(processes)).not.toContain('secret-word');
  });

  test('of a run whose program is gone there is nothing, of one without a program the agent itself', async () => {
    expect(await snapshotOf(2 ** 22 - 1)).toEqual({ processes: [] });
    expect((await snapshotOf(undefined)).processes).toMatchObject([{ pid: process.pid }]);
  });
});

describe('self-checks', () => {
  const posts: { path: string; body: { failed: string[]; bundle: Record<string, unknown> } }[] = [];
  let refusal: Error | undefined;
  beforeEach(() => {
    posts.length = 0;
    refusal = undefined;
    process.env.ERRAND_TEST_SECRET = 'not-to-be-told';
  });
  afterEach(() => {
    delete process.env.ERRAND_TEST_SECRET;
  });

  function check(limits: Partial<HealthLimits>, isRegistered = () => true): SelfCheck {
    return new SelfCheck({
      client: {
        post: async <T>(path: string, body: string) => {
          if (refusal) throw refusal;
          posts.push({ path, body: JSON.parse(body) });
          return {} as T;
        },
      },
      caller: '"agentId":"a1","instanceId":"i1"',
      spoolDir: dir,
      workDir: dir,
      spool: { size: 3 },
      runs: { started: () => [{ runId: 'k3f9', pgid: undefined }] },
      log: silentLog,
      version: '1.2.3',
      limits: { ...GENEROUS, ...limits },
      isRegistered,
    });
  }

  test('nothing is posted while all is well', async () => {
    await check({}).checkOnce();
    expect(posts).toEqual([]);
  });

  test('a trouble is posted once, with figures and no values of the environment', async () => {
    const checking = check({ freeBytes: Number.MAX_SAFE_INTEGER });
    expect(await checking.checkOnce()).toEqual(['disk']);
    await checking.checkOnce();
    expect(posts).toHaveLength(1);
    const [{ path, body }] = posts as [(typeof posts)[number]];
    expect([path, body.failed]).toEqual(['/api/agent/diagnostics', ['disk']]);
    expect(body).toMatchObject({ agentId: 'a1', instanceId: 'i1', bundle: { version: '1.2.3', unsentReports: 3 } });
    expect(JSON.stringify(body).length).toBeLessThan(32_768);
    expect(JSON.stringify(body)).not.toContain('not-to-be-told');
  });

  test('a post that failed is made again at the next check, and none before the agent is known', async () => {
    let isRegistered = false;
    const checking = check({ freeBytes: Number.MAX_SAFE_INTEGER }, () => isRegistered);
    await checking.checkOnce();
    expect(posts).toEqual([]);
    isRegistered = true;
    refusal = new Error('away');
    await expect(checking.checkOnce()).rejects.toThrow('away');
    refusal = undefined;
    await checking.checkOnce();
    expect(posts).toHaveLength(1);
  });
});

test('an agent that is asked for a sign of life of a run tells what its processes do', async () => {
  const place = await rig({ heartbeatMs: 200 });
  try {
    await place.start();
    const run = shellTask([process.execPath, '-e', 'setInterval(() => 0, 1000)']);
    place.gateway.grant(run);
    await until(() => place.gateway.reportsOf(run.runId).some(({ type }) => type === 'started'), 'the start');
    place.gateway.probe(run.runId);
    const snapshot = await until(
      () => place.gateway.reportsOf(run.runId).find((report) => report.type === 'snapshot'),
      'the sign of life',
    );
    expect(snapshot).toMatchObject({ processes: [{ pid: expect.any(Number), state: expect.any(String) }] });
    expect(place.gateway.malformed).toEqual([]);
    // Once: the question was answered.
    expect(place.gateway.reportsOf(run.runId).filter(({ type }) => type === 'snapshot')).toHaveLength(1);
  } finally {
    await place.close();
  }
});
