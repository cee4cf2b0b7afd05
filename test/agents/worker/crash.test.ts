import { cp, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { type AgentProcess, startAgentProcess } from './agent-process.ts';
import { processesWith, type Rig, rig, uniqueSleep } from './rig.ts';

let r: Rig;
const processes: AgentProcess[] = [];
beforeEach(async () => {
  r = await rig();
});
afterEach(async () => {
  await Promise.all(processes.splice(0).map((process) => process.kill()));
  expect(r.gateway.malformed).toEqual([]);
  await r.close();
});

async function agentProcess(env: Record<string, string> = {}): Promise<AgentProcess> {
  const process = await startAgentProcess(r.gateway.url, r.dir, env);
  processes.push(process);
  return process;
}

const spooled = async () => (await readFile(join(r.dir, 'spool', 'reports.log'), 'utf8').catch(() => '')).split('\n');

describe('an agent that is killed with kill -9', () => {
  it('brings results from its spool after a restart, each exactly once (A08)', async () => {
    const gate = join(r.dir, 'gate');
    const wait = `until [ -e ${gate} ]; do sleep 0.02; done`;
    const success = shellTask(['sh', '-c', `${wait}; echo fine`]);
    const failure = shellTask(['sh', '-c', `${wait}; echo broken >&2; exit 3`]);
    const cancelled = shellTask(['sh', '-c', 'trap "sleep 0.2; exit 0" TERM; while :; do sleep 0.02; done']);
    r.gateway.grant(success, failure, cancelled);
    const first = await agentProcess({ AGENT_CONCURRENCY: '3' });
    await until(() => r.gateway.reports.filter((report) => report.type === 'started').length === 3);
    const started = new Set(r.gateway.reports.map((report) => `${report.runId}:${report.seq}`));

    r.gateway.fail(503, 'unavailable', 'report');
    r.gateway.cancel(cancelled.runId);
    await writeFile(gate, '');
    await until(async () => (await spooled()).join('').match(/"type":"(succeeded|failed|cancelled)"/g)?.length === 3);
    await r.gateway.stop();
    await first.kill();
    r.gateway.recover();

    await agentProcess({ AGENT_CONCURRENCY: '3' });
    await r.gateway.start();
    await until(() => [success, failure, cancelled].every((task) => r.gateway.endOf(task.runId)));
    expect(r.gateway.endOf(success.runId)).toMatchObject({ type: 'succeeded', summary: 'fine', exitCode: 0 });
    expect(r.gateway.endOf(failure.runId)).toMatchObject({
      type: 'failed',
      exitCode: 3,
      error: expect.stringContaining('broken'),
    });
    expect(r.gateway.endOf(cancelled.runId)).toMatchObject({ type: 'cancelled' });
    for (const task of [success, failure, cancelled]) {
      expect(r.gateway.endOf(task.runId)!.at).toBeLessThanOrEqual(Date.now());
      const own = r.gateway.reportsOf(task.runId).map((report) => `${report.runId}:${report.seq}`);
      expect(new Set(own).size).toBe(own.length);
    }
    expect(started.size).toBe(3);
    expect(r.gateway.registrations.at(-1)?.reports).toHaveLength(3);
    await until(async () => (await stat(join(r.dir, 'spool', 'reports.log'))).size === 0, 'the spool to be empty');
  });

  it('leaves a program behind that its next instance ends before it registers (trap 2)', async () => {
    const seconds = uniqueSleep();
    const task = shellTask(['sh', '-c', `sleep ${seconds} & sleep ${seconds} & wait`]);
    r.gateway.grant(task);
    const first = await agentProcess();
    await until(async () => (await processesWith(`sleep ${seconds}`)).length >= 3);
    await first.kill();
    expect((await processesWith(`sleep ${seconds}`)).length).toBeGreaterThanOrEqual(3);
    const before = r.gateway.registrations.length;
    await agentProcess();
    await until(() => r.gateway.registrations.length > before);
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
    await expect(stat(join(r.dir, 'spool', 'work', task.runId))).rejects.toThrow(/ENOENT/);
  });

  it('leaves children behind whose leader has ended; they are recognised by the run they belong to', async () => {
    const seconds = uniqueSleep();
    // The leader ends and the agent is killed within the second in which it waits for the output to be closed.
    const task = shellTask(['sh', '-c', `sleep ${seconds} & echo $$ > ${join(r.dir, 'leader')}; kill -STOP $$`]);
    r.gateway.grant(task);
    const first = await agentProcess();
    const leader = Number(await until(() => readFile(join(r.dir, 'leader'), 'utf8').catch(() => '')));
    await until(async () => (await processesWith(`sleep ${seconds}`)).length >= 2);
    await first.kill();
    process.kill(leader, 'SIGKILL');
    const sleepers = async () => (await processesWith(`sleep ${seconds}`)).filter((pid) => pid !== leader);
    expect(await sleepers()).toHaveLength(1);
    const before = r.gateway.registrations.length;
    await agentProcess();
    await until(() => r.gateway.registrations.length > before);
    expect(await sleepers()).toEqual([]);
  });
});

describe('an agent process', () => {
  it('that gets SIGTERM ends its program, gives the run back and exits with 0 (A46)', async () => {
    const seconds = uniqueSleep();
    const task = shellTask(['sleep', seconds]);
    r.gateway.grant(task);
    const agent = await agentProcess();
    await until(async () => (await processesWith(`sleep ${seconds}`)).length === 1);
    expect(await agent.end('SIGTERM')).toBe(0);
    expect(r.gateway.endOf(task.runId)).toMatchObject({ type: 'released' });
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
  });

  it('that is replaced by a copy of its folder exits with 4 and leaves no program (A06)', async () => {
    const seconds = uniqueSleep();
    r.gateway.grant(shellTask(['sleep', seconds]));
    const first = await agentProcess();
    await until(async () => (await processesWith(`sleep ${seconds}`)).length === 1);
    const filter = (source: string) => !source.endsWith('.sock');
    await cp(join(r.dir, 'spool'), join(r.dir, 'copy'), { recursive: true, filter });
    const exited = new Promise((resolve) => first.child.once('exit', resolve));
    await agentProcess({ AGENT_SPOOL_DIR: join(r.dir, 'copy') });
    expect(await exited).toBe(4);
    await until(async () => (await processesWith(`sleep ${seconds}`)).length === 0);
  });

  it('keeps its memory bounded while a program prints 50 MB, and shows head and tail (A13)', async () => {
    const task = shellTask(['sh', '-c', 'head -c 50000000 /dev/zero | tr "\\0" x; echo END; exit 0']);
    const agent = await agentProcess();
    const residentKb = async () =>
      Number(/VmHWM:\s+(\d+)/.exec(await readFile(`/proc/${agent.child.pid}/status`, 'utf8'))?.[1]);
    const warm = shellTask(['true']);
    r.gateway.grant(warm);
    await until(() => r.gateway.endOf(warm.runId));
    const before = await residentKb();
    r.gateway.grant(task);
    const end = await until(() => r.gateway.endOf(task.runId), 'the end of the run');
    expect(end).toMatchObject({ type: 'succeeded', exitCode: 0 });
    const summary = end.type === 'succeeded' ? end.summary : '';
    expect(summary.replace(/x{1000,}/g, 'x…')).toMatch(/^x…\n\[… \d+ bytes omitted …\]\nx…END$/);
    const log = r.gateway.logOf(task.runId);
    expect(log.length).toBeLessThan(1024 * 1024 + 200);
    expect(log.length).toBeGreaterThan(900 * 1024);
    expect(log.replace(/x{1000,}/g, 'x…')).toMatch(/^x…\n\[… \d+ bytes omitted …\]\nx…END\n$/);
    const omitted = Number(/(\d+) bytes omitted/.exec(log)![1]);
    const note = `\n[… ${omitted} bytes omitted …]\n`;
    expect(Buffer.byteLength(log) - Buffer.byteLength(note) + omitted).toBe(50_000_004);
    const after = await residentKb();
    expect(after - before).toBeLessThan(85 * 1024);
    // Three times as much needs no more: what is kept does not depend on what is printed.
    const more = shellTask(['sh', '-c', 'head -c 150000000 /dev/zero | tr "\\0" x >&2']);
    r.gateway.grant(more);
    await until(() => r.gateway.endOf(more.runId), 'the end of the second run');
    expect((await residentKb()) - after).toBeLessThan(50 * 1024);
  });
});
