import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Report } from '../../../src/agents/protocol.ts';
import { Backlog } from '../../../src/agents/worker/backlog.ts';
import { CallFailed, GatewayClient } from '../../../src/agents/worker/client.ts';
import { HeartbeatLoop } from '../../../src/agents/worker/heartbeat-loop.ts';
import { endOrphans } from '../../../src/agents/worker/orphans.ts';
import { outgoing } from '../../../src/agents/worker/outgoing.ts';
import { matchesGlob, refusalOf } from '../../../src/agents/worker/policy.ts';
import { currentBootId, groupAlive, groupIsOurs, processStartedAt } from '../../../src/agents/worker/process-group.ts';
import { pauseAfter } from '../../../src/agents/worker/retry.ts';
import { RunJournal } from '../../../src/agents/worker/run-journal.ts';
import type { RunTable } from '../../../src/agents/worker/run-table.ts';
import { silentLog } from '../../../src/log.ts';
import { FakeGateway, shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { QUICK } from './rig.ts';

let dir: string;
const children: ChildProcess[] = [];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-parts-'));
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await rm(dir, { recursive: true, force: true });
});

/** A program in a group of its own that we did not start through an agent. */
function program(env: Record<string, string> = {}): number {
  const child = spawn('sleep', ['600'], { detached: true, stdio: 'ignore', env: { PATH: process.env.PATH, ...env } });
  children.push(child);
  return child.pid!;
}

describe('a recorded process group', () => {
  it('is ended when its leader began when we noted it', async () => {
    const pgid = program();
    const bootId = await currentBootId();
    await endOrphans([{ runId: 'a', pgid, bootId, startedAt: processStartedAt(pgid) }], bootId, silentLog);
    expect(await groupAlive(pgid)).toBe(false);
  });

  it('is left alone when the number belongs to somebody else by now', async () => {
    const pgid = program();
    const bootId = await currentBootId();
    await endOrphans([{ runId: 'a', pgid, bootId, startedAt: '12345' }], bootId, silentLog);
    expect(await groupAlive(pgid)).toBe(true);
  });

  it('is left alone on another boot', async () => {
    const pgid = program();
    await endOrphans(
      [{ runId: 'a', pgid, bootId: 'old-boot', startedAt: processStartedAt(pgid) }],
      'new-boot',
      silentLog,
    );
    expect(await groupAlive(pgid)).toBe(true);
  });

  it('that has ended is neither alive nor ours', async () => {
    const pgid = program();
    const startedAt = processStartedAt(pgid);
    children.at(-1)!.kill('SIGKILL');
    await until(async () => !(await groupAlive(pgid)));
    expect(await groupIsOurs(pgid, startedAt, 'a')).toBe(false);
  });
});

describe('run journal', () => {
  const journal = (bootId = 'boot-1') => new RunJournal({ dir, bootId, log: silentLog });

  it('tells the next instance which runs were taken and which groups were started, with their boot', async () => {
    const first = journal();
    await first.read();
    first.begin();
    first.taken(['a', 'b']);
    const pgid = program();
    first.spawned({ runId: 'a', leaseToken: 'l' }, pgid);
    const second = journal('boot-2');
    const earlier = await second.read();
    expect(earlier.runIds).toEqual(expect.arrayContaining(['a', 'b']));
    expect(earlier.groups).toEqual([
      { runId: 'a', leaseToken: 'l', pgid, bootId: 'boot-1', startedAt: processStartedAt(pgid) },
    ]);
    second.begin();
    expect(second.knows('b')).toBe(true);
    expect((await journal().read()).groups).toEqual([]);
    first.close();
    second.close();
  });

  it('stays bounded over many runs and still knows the recent ones and those that run', async () => {
    const first = journal();
    await first.read();
    first.begin();
    first.taken(['long']);
    first.spawned({ runId: 'long', leaseToken: 'l' }, process.pid);
    for (let i = 0; i < 30_000; i += 100) {
      const ids = Array.from({ length: 100 }, (_, j) => `run${i + j}`);
      first.taken(ids);
      for (const id of ids) first.ended(id);
    }
    first.close();
    expect((await stat(join(dir, 'runs.log'))).size).toBeLessThan(1024 * 1024);
    const earlier = await journal().read();
    expect(earlier.runIds).toContain('run29999');
    expect(earlier.groups.map((group) => group.runId)).toEqual(['long']);
    expect(await readFile(join(dir, 'runs.log'), 'utf8')).not.toContain('"run5"');
  });
});

describe('policy', () => {
  const policy = { allow: ['*'], runtimes: ['shell'], secrets: new Map<string, string>() };

  it.each([
    ['report-*', 'report-daily', true],
    ['report-*', 'my-report-daily', false],
    ['a?c', 'abc', true],
    ['a?c', 'ac', false],
    ['a.c', 'abc', false],
    ['*', 'anything', true],
  ])('%s against %s is %s', (pattern, text, expected) => {
    expect(matchesGlob(pattern, text)).toBe(expected);
  });

  it('permits an executable by its exact name only, not a namesake elsewhere', () => {
    const strict = { ...policy, commands: ['node', '/usr/bin/printf'] };
    expect(refusalOf(strict, shellTask(['node', 'x']))).toBeUndefined();
    expect(refusalOf(strict, shellTask(['/usr/bin/printf']))).toBeUndefined();
    expect(refusalOf(strict, shellTask(['/tmp/node']))).toContain('may not start');
    expect(refusalOf(strict, shellTask(['printf']))).toContain('may not start');
    expect(refusalOf(strict, shellTask([]))).toContain('may not start');
  });

  it.each(['PATH', 'LD_PRELOAD', 'NODE_OPTIONS', 'BASH_ENV', 'PYTHONPATH'])(
    'does not let a template turn a permitted executable into another program by %s',
    (name) => {
      const task = shellTask(['node'], { spec: { env: { [name]: '/tmp/evil' } } });
      expect(refusalOf({ ...policy, commands: ['node'] }, task)).toContain(name);
      expect(refusalOf(policy, task)).toBeUndefined();
    },
  );

  it('refuses a runtime that is not offered', () => {
    expect(refusalOf(policy, shellTask(['x'], { runtime: 'http' }))).toContain("the runtime 'http'");
  });
});

describe('backlog', () => {
  const log = (runId: string, seq: number, text: string) =>
    outgoing({ runId, leaseToken: 'l', seq, type: 'log', stream: 'stdout', text, offset: seq * 100 });
  const takeAll = (backlog: Backlog) => backlog.take({ reports: 1_000, bytes: 1e9, except: new Set() });
  const texts = (backlog: Backlog) => takeAll(backlog).map((item) => (JSON.parse(item.json) as { text?: string }).text);

  it('replaces log that grows too large by a note of how much is missing, and never an end', () => {
    const backlog = new Backlog(600);
    for (let i = 0; i < 50; i += 1) backlog.push(log('a', i, 'x'.repeat(100)));
    for (let i = 0; i < 50; i += 1)
      backlog.push(outgoing({ runId: `r${i}`, leaseToken: 'l', seq: 9, type: 'cancelled' }));
    const items = takeAll(backlog);
    const logs = items
      .filter((item) => item.type === 'log')
      .map((item) => JSON.parse(item.json) as Extract<Report, { type: 'log' }>);
    expect(logs.length).toBeLessThan(5);
    const kept = logs.slice(0, -1).reduce((sum, report) => sum + report.text.length, 0);
    expect(logs.at(-1)!.text).toBe(`\n[… ${5_000 - kept} bytes omitted …]\n`);
    expect(items.filter((item) => item.type === 'cancelled')).toHaveLength(50);
    backlog.push(log('a', 60, 'after'));
    expect(texts(backlog)).toEqual(['after']);
  });

  it('keeps only the newest waiting progress of a run', () => {
    const backlog = new Backlog();
    for (const [seq, percent] of [10, 20, 30].entries())
      backlog.push(outgoing({ runId: 'a', leaseToken: 'l', seq, type: 'progress', percent }));
    expect(takeAll(backlog).map((item) => item.seq)).toEqual([2]);
  });

  it('keeps only the newest checkpoint of a run, also of those that came back unsent, and says which ones are needless', () => {
    const backlog = new Backlog();
    const checkpoint = (runId: string, seq: number) =>
      outgoing({ runId, leaseToken: 'l', seq, type: 'checkpoint', data: seq });
    const keys = (items: readonly { key: string }[]) => items.map((item) => item.key);
    expect(backlog.push(checkpoint('a', 1))).toEqual([]);
    expect(backlog.push(checkpoint('b', 1))).toEqual([]);
    expect(keys(backlog.push(checkpoint('a', 3)))).toEqual(['a:1']);
    const onItsWay = takeAll(backlog);
    expect(keys(onItsWay)).toEqual(['b:1', 'a:3']);
    backlog.push(checkpoint('a', 5));
    expect(keys(backlog.putBack(onItsWay))).toEqual(['a:3']);
    expect(keys(backlog.push(checkpoint('a', 7)))).toEqual(['a:5']);
    expect(keys(backlog.push(checkpoint('a', 6)))).toEqual(['a:6']);
    expect(keys(takeAll(backlog))).toEqual(['b:1', 'a:7']);
  });

  it('holds back a run that has a report on its way, and puts back what could not be sent in its old place', () => {
    const backlog = new Backlog();
    for (const [seq, runId] of ['a', 'b', 'a', 'c'].entries()) backlog.push(log(runId, seq, String(seq)));
    const first = backlog.take({ reports: 1, bytes: 1e9, except: new Set() });
    const second = backlog.take({ reports: 10, bytes: 1e9, except: new Set(['a']) });
    expect(second.map((item) => item.seq)).toEqual([1, 3]);
    backlog.putBack(first);
    expect(texts(backlog)).toEqual(['0', '2']);
  });

  it('hands out one report at least, however large, and no more than the limit otherwise', () => {
    const backlog = new Backlog();
    for (let i = 0; i < 3; i += 1) backlog.push(log('a', i, 'x'.repeat(1_000)));
    expect(backlog.take({ reports: 10, bytes: 10, except: new Set() })).toHaveLength(1);
    expect(backlog.take({ reports: 10, bytes: 1e9, except: new Set() })).toHaveLength(2);
  });
});

describe('client', () => {
  it.each([
    [503, 'unavailable', 'again'],
    [500, 'internal', 'again'],
    [429, 'rate_limited', 'again'],
    [401, 'unauthorized', 'slow'],
    [403, 'forbidden', 'slow'],
    [404, 'nothing-we-know', 'slow'],
    [404, 'not_found', 'unknown'],
    [409, 'session_replaced', 'replaced'],
    [400, 'invalid_request', 'refused'],
    [413, 'too_large', 'refused'],
  ])('takes %i %s as "%s"', async (status, code, verdict) => {
    const gateway = new FakeGateway();
    await gateway.start();
    gateway.fail(status, code);
    const client = new GatewayClient({ gatewayUrl: gateway.url, token: 'agent-token-1' });
    const error = await client.post('/api/agent/pull', '{}').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CallFailed);
    expect((error as CallFailed).verdict).toBe(verdict);
    await client.close();
    await gateway.stop();
  });

  it('takes an unreachable gateway as "again" and names no token', async () => {
    const client = new GatewayClient({ gatewayUrl: 'http://127.0.0.1:9', token: 'agent-token-1' });
    const error = (await client.post('/api/agent/pull', '{}').catch((thrown: unknown) => thrown)) as CallFailed;
    expect(error.verdict).toBe('again');
    expect(error.message).not.toContain('agent-token-1');
    await client.close();
  });
});

describe('heartbeat loop', () => {
  const noRuns = { active: () => [], stop: () => false } as unknown as RunTable;
  const retry = {
    log: silentLog,
    backoff: QUICK.backoff!,
    slowRetryMs: 10,
    onReplaced: () => undefined,
    onUnknown: () => undefined,
  };

  it('sends nothing while the agent does not take work, and goes on when it does', async () => {
    const gateway = new FakeGateway();
    await gateway.start();
    const client = new GatewayClient({ gatewayUrl: gateway.url, token: 'agent-token-1' });
    let healthy = false;
    let asked = 0;
    const loop = new HeartbeatLoop({
      client,
      caller: '"agentId":"a","instanceId":"i"',
      runs: noRuns,
      retry,
      heartbeatMs: () => 5,
      isHealthy: () => {
        asked += 1;
        return healthy;
      },
    });
    await loop.start();
    await until(() => asked > 5);
    expect(gateway.count('heartbeat')).toBe(0);
    healthy = true;
    await until(() => gateway.count('heartbeat') > 1);
    await loop.stop();
    await client.close();
    await gateway.stop();
  });

  it('pauses longer after each failure, and as long as the gateway asks', () => {
    const backoff = { baseMs: 100, factor: 2, capMs: 1_000, jitter: 0 };
    const pause = (failures: number, retryAfterMs?: number) =>
      pauseAfter(
        { ...retry, backoff },
        'pull',
        new CallFailed('unavailable', 'x', 'again', { retryAfterMs }),
        failures,
      );
    expect([1, 2, 3, 9].map((failures) => pause(failures))).toEqual([100, 200, 400, 1_000]);
    expect(pause(1, 5_000)).toBe(5_000);
    expect(pause(1, 3_600_000)).toBe(60_000);
  });
});
