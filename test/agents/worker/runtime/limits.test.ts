import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Assignment } from '../../../../src/agents/protocol.ts';
import { OomKills } from '../../../../src/agents/worker/limits-oom.ts';
import { maskingOf } from '../../../../src/agents/worker/masking.ts';
import type { Job, RunEnd } from '../../../../src/agents/worker/runtime/runtime.ts';
import { ShellRuntime } from '../../../../src/agents/worker/runtime/shell.ts';
import { silentLog } from '../../../../src/log.ts';
import { shellTask } from '../../../support/fake-gateway.ts';
import { until } from '../../../support/until.ts';
import { processesWith, uniqueSleep } from '../rig.ts';

const MIB = 1024 * 1024;

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-limits-'));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** A run with the waits of limits scaled down: a look every 50 ms instead of 2 s, and `overMs` instead of 30 s. */
function start(assignment: Assignment, overMs: number, oomKills = new OomKills([])) {
  const controller = new AbortController();
  const emitted: Parameters<Job['emit']>[0][] = [];
  const job: Job = {
    assignment,
    secrets: new Map(),
    masking: maskingOf([]),
    signal: controller.signal,
    hurry: new AbortController().signal,
    emit: (body) => emitted.push(body),
    spawned: () => undefined,
  };
  const tuning = { sampleMs: 50, overMs };
  const runtime = new ShellRuntime({
    workDir: join(dir, 'work'),
    killGraceMs: 5_000,
    log: silentLog,
    tuning,
    oomKills,
  });
  const log = () => emitted.map((body) => (body.type === 'log' && body.stream === 'stderr' ? body.text : '')).join('');
  return { end: runtime.run(job), log, stop: () => controller.abort('cancel') };
}

const NEVER_MS = 600_000;
const sh = (script: string, limits: Partial<Assignment['limits']> = {}) =>
  shellTask(['sh', '-c', script], { limits: { outputBytes: MIB, ...limits } });
const memoryHog = (mib: number, then: string) => `node -e 'const b = Buffer.alloc(${mib} * 1048576, 1); ${then}' `;
type Failed = Extract<RunEnd, { type: 'failed' }>;

describe('a run over its memory', () => {
  it('A70: is ended after its time over the limit, with limit and peak as the reason, class permanent', async () => {
    const mark = uniqueSleep();
    // The child of the shell is the large one, as in the case: 500 MiB against a limit of 64 MiB.
    const script = `${memoryHog(500, `setTimeout(() => {}, 1e6, "${mark}"); console.log(b.length)`)}; echo after`;
    const run = start(sh(script, { memoryBytes: 64 * MIB }), 300);
    const end = (await run.end) as Failed;
    expect(end).toMatchObject({ type: 'failed', errorClass: 'permanent', errorType: 'resource_exceeded' });
    const [, limit, peak] =
      /^resource_exceeded: memory: over the limit of (\d+) MiB for .* s, (\d+) MiB at its peak/.exec(end.error)!;
    expect(Number(limit)).toBe(64);
    expect(Number(peak)).toBeGreaterThan(64);
    expect(Number(peak)).toBeLessThan(700);
    expect(run.log().match(/\[errand\] memory: \d+ MiB of 64 MiB in use/g)).toHaveLength(1);
    expect(await processesWith(mark)).toEqual([]);
  });

  it('goes on when it comes back under the limit in time, and is warned once', async () => {
    const go = join(dir, 'go');
    const script = `node -e '
      let b = Buffer.alloc(150 * 1048576, 1);
      const t = setInterval(() => { if (require("fs").existsSync("${go}")) { clearInterval(t); console.log("done", b.length); } }, 20);'`;
    const run = start(sh(script, { memoryBytes: 100 * MIB }), NEVER_MS);
    await until(() => /memory: \d+ MiB of 100 MiB/.test(run.log()));
    await writeFile(go, '');
    expect(await run.end).toMatchObject({ type: 'succeeded' });
    expect(run.log().match(/\[errand\] memory/g)).toHaveLength(1);
  });

  it('in several processes counts all of them', async () => {
    const one = memoryHog(60, 'setTimeout(() => {}, 1e6)');
    const run = start(sh(`${one} & ${one} & ${one} & wait`, { memoryBytes: 200 * MIB }), 200);
    expect(await run.end).toMatchObject({ errorType: 'resource_exceeded' });
  });
});

describe('a run over its processor time', () => {
  const busy = `node -e 'for (;;) {}'`;

  it('is ended at once when its time is used up, children included', async () => {
    const run = start(sh(`${busy} & wait`, { cpuTimeMs: 300 }), NEVER_MS);
    const end = (await run.end) as Failed;
    expect(end).toMatchObject({ errorType: 'resource_exceeded', errorClass: 'permanent' });
    expect(end.error).toMatch(/^resource_exceeded: cpu time: over the limit of 0\.3 s, [\d.]+ s used/);
  });

  it('is ended when it used too many cores for too long', async () => {
    const run = start(sh(busy, { cpuCores: 0.05 }), 200);
    expect(((await run.end) as Failed).error).toMatch(/^resource_exceeded: cpu: over the limit of 0\.1 cores for/);
    expect(run.log()).toContain('[errand] cpu: ');
  });
});

describe('a death by signal', () => {
  /** As a kernel would: the counter rises, and the process is killed. */
  const oomFile = async () => {
    const path = join(dir, 'memory.events');
    await writeFile(path, 'low 0\noom 0\noom_kill 4\n');
    return { kills: new OomKills([join(dir, 'absent'), path]), rise: `echo "oom_kill 5" > ${path}` };
  };

  it('A70: by the kernel for want of memory is told as that, also when a shell passes it on as exit code 137', async () => {
    const { kills, rise } = await oomFile();
    const direct = (await start(sh(`${rise}; kill -9 $$`), NEVER_MS, kills).end) as Failed;
    expect(direct).toMatchObject({ errorClass: 'permanent', errorType: 'out_of_memory', signal: 'SIGKILL' });
    expect(direct.error).toMatch(/^out_of_memory: the kernel killed it for want of memory/);
    await writeFile(join(dir, 'memory.events'), 'oom_kill 4\n');
    const passedOn = (await start(sh(`sh -c '${rise}; kill -9 $$'; exit $?`), NEVER_MS, kills).end) as Failed;
    expect(passedOn).toMatchObject({ errorType: 'out_of_memory', exitCode: 137 });
  });

  it('A70: of a part by the kernel is no success of the whole', async () => {
    const { kills, rise } = await oomFile();
    const end = await start(sh(`${rise}; echo fine`), NEVER_MS, kills).end;
    expect(end).toMatchObject({ type: 'failed', errorType: 'out_of_memory' });
    expect((end as Failed).error).toContain('killed a part of it');
  });

  it('that may have been of another run is a remark and leaves a success a success', async () => {
    const { kills, rise } = await oomFile();
    const tuning = { sampleMs: 50, overMs: NEVER_MS };
    const runtime = new ShellRuntime({
      workDir: join(dir, 'w'),
      killGraceMs: 100,
      log: silentLog,
      tuning,
      oomKills: kills,
    });
    const emitted: string[] = [];
    const jobOf = (assignment: Assignment, signal: AbortSignal): Job => ({
      ...{ assignment, signal, secrets: new Map(), masking: maskingOf([]), hurry: signal, spawned: () => undefined },
      emit: (body) => emitted.push(body.type === 'log' ? body.text : ''),
    });
    const other = new AbortController();
    const company = runtime.run(jobOf(sh('echo here; sleep 600'), other.signal));
    await until(() => emitted.join('').includes('here'));
    const end = await runtime.run(jobOf(sh(`${rise}; echo fine`), new AbortController().signal));
    expect(end).toMatchObject({ type: 'succeeded', summary: 'fine' });
    expect(emitted.join('')).toContain('the kernel killed a process on this machine');
    other.abort('cancel');
    await company;
  });

  it('A70: by SIGSEGV, by SIGKILL and exit code 137 are three things when nothing speaks for want of memory', async () => {
    const { kills } = await oomFile();
    const errorOf = async (script: string) => {
      const { error, signal, exitCode, errorType } = (await start(sh(script), NEVER_MS, kills).end) as Failed;
      return { error, signal, exitCode, errorType };
    };
    expect(await errorOf('kill -SEGV $$')).toEqual({ error: 'killed by SIGSEGV', signal: 'SIGSEGV' });
    expect(await errorOf('kill -9 $$')).toEqual({ error: 'killed by SIGKILL', signal: 'SIGKILL' });
    expect(await errorOf('exit 137')).toEqual({ error: 'exit code 137', exitCode: 137 });
  });
});

describe('what has left the process group', () => {
  const gone = (mark: string) => until(async () => (await processesWith(mark)).length === 0);

  it('A11: is killed when the program has ended, though it holds its output open, and the log says so', async () => {
    const mark = uniqueSleep();
    const run = start(sh(`setsid sleep ${mark} & sleep 0.2; echo done`), NEVER_MS);
    expect(await run.end).toMatchObject({ type: 'succeeded', summary: 'done' });
    expect(await processesWith(mark)).toEqual([]);
    expect(run.log()).toContain('1 processes had left the process group of the run and were killed');
  });

  it('is killed although it was forked twice and reads and writes nothing of ours', async () => {
    const mark = uniqueSleep();
    const run = start(sh(`(setsid sh -c 'sleep ${mark} & exit' >/dev/null 2>&1 </dev/null &) ; sleep 0.3`), NEVER_MS);
    expect(await run.end).toMatchObject({ type: 'succeeded' });
    expect(await processesWith(mark)).toEqual([]);
  });

  it('is killed with the rest when the run is cancelled', async () => {
    const mark = uniqueSleep();
    const run = start(sh(`setsid sleep ${mark} & sleep ${mark}`), NEVER_MS);
    await until(async () => (await processesWith(`sleep ${mark}`)).length >= 2);
    run.stop();
    expect(await run.end).toMatchObject({ type: 'cancelled' });
    await gone(mark);
    expect(await processesWith(mark)).toEqual([]);
  });

  it('of another run is left alone', async () => {
    const mark = uniqueSleep();
    const other = start(sh(`setsid sleep ${mark} & wait`), NEVER_MS);
    await until(async () => (await processesWith(`sleep ${mark}`)).length >= 1);
    expect(await start(sh('true & wait'), NEVER_MS).end).toMatchObject({ type: 'succeeded' });
    expect((await processesWith(`sleep ${mark}`)).length).toBeGreaterThanOrEqual(1);
    other.stop();
    await other.end;
    expect(await processesWith(mark)).toEqual([]);
  });
});

describe('output', () => {
  it('A13: of 50 MB is a success with both ends and a note of what is missing, in bounded memory', async () => {
    const before = process.memoryUsage().rss;
    const run = start(sh('head -c 50000000 /dev/zero | tr "\\0" x; echo END'), NEVER_MS);
    const end = (await run.end) as Extract<RunEnd, { type: 'succeeded' }>;
    expect(end.type).toBe('succeeded');
    expect(end.summary).toMatch(/^x+\n\[… \d+ bytes omitted …\]\nx+END$/);
    expect(end.summary.length).toBeLessThan(20_001);
    const peakMib = (process.memoryUsage().rss - before) / MIB;
    expect(peakMib).toBeLessThan(120);
  });
});
