import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Assignment } from '../../../src/agents/protocol.ts';
import { maskingOf } from '../../../src/agents/worker/masking.ts';
import type { Job, RunEnd, StopReason } from '../../../src/agents/worker/runtime/runtime.ts';
import { ShellRuntime } from '../../../src/agents/worker/runtime/shell.ts';
import { silentLog } from '../../../src/log.ts';
import { shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { processesWith, uniqueSleep } from './rig.ts';

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'errand-shell-'));
});
afterEach(async () => {
  // Whatever happened in it, a run leaves no folder.
  expect(existsSync(join(dir, 'work')) ? await readdir(join(dir, 'work')) : []).toEqual([]);
  await rm(dir, { recursive: true, force: true });
});

type Emitted = Parameters<Job['emit']>[0];

function start(assignment: Assignment, secrets: ReadonlyMap<string, string> = new Map(), killGraceMs = 5_000) {
  const controller = new AbortController();
  const hurry = new AbortController();
  const emitted: Emitted[] = [];
  const groups: number[] = [];
  const job: Job = {
    assignment,
    secrets,
    masking: maskingOf(secrets.values()),
    signal: controller.signal,
    hurry: hurry.signal,
    emit: (body) => emitted.push(body),
    spawned: (pgid) => groups.push(pgid),
  };
  const runtime = new ShellRuntime({ workDir: join(dir, 'work'), killGraceMs, log: silentLog });
  return {
    end: runtime.run(job),
    stop: (reason: StopReason) => controller.abort(reason),
    hurry: () => hurry.abort(),
    emitted,
    groups,
    log: (stream: 'stdout' | 'stderr') =>
      emitted.map((body) => (body.type === 'log' && body.stream === stream ? body.text : '')).join(''),
    of: <T extends Emitted['type']>(type: T) =>
      emitted.filter((body): body is Extract<Emitted, { type: T }> => body.type === type),
  };
}

const sh = (script: string, overrides: Parameters<typeof shellTask>[1] = {}) =>
  shellTask(['sh', '-c', script], overrides);
const run = (assignment: Assignment): Promise<RunEnd> => start(assignment).end;

describe('the end of a program', () => {
  it('with exit code 0 is a success whose summary is what it printed', async () => {
    expect(await run(sh('echo one; echo two'))).toEqual({
      type: 'succeeded',
      summary: 'one\ntwo',
      outputs: undefined,
      exitCode: 0,
    });
  });

  it.each([
    [75, 'transient'],
    [76, 'rate_limited'],
    [1, 'permanent'],
    [137, 'permanent'],
    [255, 'permanent'],
  ])(
    'with exit code %i is a failure of class %s that names the code and shows the last lines',
    async (code, errorClass) => {
      const end = await run(sh(`echo out; echo "it broke" >&2; exit ${code}`));
      expect(end).toMatchObject({
        type: 'failed',
        errorClass,
        exitCode: code,
        error: `exit code ${code}\nit broke`,
        summary: 'out',
      });
      expect(end).toHaveProperty('signal', undefined);
    },
  );

  it('follows the template’s own table of exit codes before the general rule', async () => {
    const table = { spec: { exitClasses: { 2: 'transient', 75: 'permanent' } } };
    expect(await run(sh('exit 2', table))).toMatchObject({ errorClass: 'transient' });
    expect(await run(sh('exit 75', table))).toMatchObject({ errorClass: 'permanent' });
  });

  it('by a signal is told apart from an exit code of the same meaning (A70)', async () => {
    expect(await run(sh('kill -KILL $$'))).toMatchObject({
      errorClass: 'permanent',
      error: 'killed by SIGKILL',
      signal: 'SIGKILL',
      exitCode: undefined,
    });
    expect(await run(sh('kill -SEGV $$'))).toMatchObject({ error: 'killed by SIGSEGV', signal: 'SIGSEGV' });
    expect(await run(sh('exit 137'))).toMatchObject({ error: 'exit code 137', signal: undefined, exitCode: 137 });
  });

  it('76 takes its pause from ERRAND_RETRY_AFTER, and none from nonsense there', async () => {
    expect(await run(sh('echo 1.5 > "$ERRAND_RETRY_AFTER"; exit 76'))).toMatchObject({
      errorClass: 'rate_limited',
      retryAfterMs: 1_500,
    });
    expect(await run(sh('echo soon > "$ERRAND_RETRY_AFTER"; exit 76'))).toMatchObject({ retryAfterMs: undefined });
  });

  it('A17: 76 with the date of a Retry-After header waits until then, a day at most', async () => {
    const until = async (at: number) =>
      (await run(sh(`echo "${new Date(at).toUTCString()}" > "$ERRAND_RETRY_AFTER"; exit 76`))) as {
        retryAfterMs: number;
      };
    const { retryAfterMs } = await until(Date.now() + 3_600_000);
    expect(retryAfterMs).toBeGreaterThan(3_000_000);
    expect(retryAfterMs).toBeLessThanOrEqual(3_600_000);
    expect(await until(Date.now() - 60_000)).toMatchObject({ errorClass: 'rate_limited', retryAfterMs: 0 });
    expect(await until(Date.now() + 10 * 86_400_000)).toMatchObject({ retryAfterMs: 86_400_000 });
  });

  it('77 is blocked with its summary, 78 asks its question, and 78 without a question is a failure', async () => {
    expect(await run(sh('echo "renew the licence" > "$ERRAND_SUMMARY"; exit 77'))).toEqual({
      type: 'blocked',
      summary: 'renew the licence',
    });
    expect(await run(sh('echo "which room?" > "$ERRAND_QUESTION"; exit 78'))).toEqual({
      type: 'needs_input',
      prompt: 'which room?',
    });
    expect(await run(sh('exit 78'))).toMatchObject({ type: 'failed', errorClass: 'permanent' });
  });

  it('that could not begin says why and is permanent', async () => {
    const plain = join(dir, 'plain-file');
    await writeFile(plain, 'text', { mode: 0o600 });
    expect(await run(shellTask(['no-such-program-here']))).toMatchObject({
      type: 'failed',
      errorClass: 'permanent',
      error: 'command not found: no-such-program-here',
    });
    expect(await run(shellTask([plain]))).toMatchObject({
      error: `permission denied: ${plain} may not be executed`,
    });
    expect(await run(shellTask(['echo', 'a\0b']))).toMatchObject({
      errorClass: 'permanent',
      error: expect.stringContaining('NUL'),
    });
    expect(await run(shellTask(['echo', 'x'.repeat(3_000_000)]))).toMatchObject({
      error: 'the arguments are too long for this system',
    });
    expect(await run(shellTask([]))).toMatchObject({ error: 'the template has no command' });
  });
});

describe('an argument from a chat', () => {
  const nasty = [
    "' && ls && echo '",
    ';',
    '/run name=$(id)',
    '`id`',
    `$${'{IFS}'}`,
    '; rm -rf x',
    '| nc',
    '> f',
    '"quote',
    '*',
    '~',
    '$HOME',
    '&',
    '%s%n',
    '-rf',
    '--',
    'a\nb',
    '',
    '\\',
    '张三 🏨',
    "$'\\x41'",
  ];

  it.each(nasty)('%j reaches the program as one literal argument and variable (A38)', async (text) => {
    const print =
      'process.stdout.write(JSON.stringify([process.argv.slice(1), process.env.ERRAND_ARG_NAME, process.env.ERRAND_ARGS_JSON]))';
    const task = shellTask([process.execPath, '-e', print, '--', text], { args: { name: text } });
    const end = await run(task);
    expect(JSON.parse((end as { summary: string }).summary)).toEqual([[text], text, JSON.stringify({ name: text })]);
  });

  it('is printed by printf %s as it is, and no file appears', async () => {
    for (const text of nasty.filter((item) => !/^\s*$|\n/.test(item))) {
      const end = await run(
        sh('printf %s "$1"; ls -A', { spec: { argv: ['sh', '-c', 'printf %s "$1"; ls -A', 'sh', text] } }),
      );
      expect(end).toMatchObject({ type: 'succeeded', summary: text });
    }
  });
});

describe('the environment of a program', () => {
  it('holds little of the agent’s own, the template’s, the run variables and the named secrets', async () => {
    process.env.AGENT_TOKEN_FOR_TEST = 'must-not-leak';
    const task = shellTask(
      [process.execPath, '-e', 'console.log(JSON.stringify({ env: process.env, cwd: process.cwd() }))'],
      {
        runId: 'runenv1',
        attempt: 2,
        idempotencyKey: 'key-1',
        args: { 'room-no': 302, vip: true },
        spec: { env: { MODE: 'test', ERRAND_TASK_ID: 'forged' } },
      },
    );
    const started = start(task, new Map([['API_KEY', 's3cret-value']]));
    const end = (await started.end) as { summary: string };
    delete process.env.AGENT_TOKEN_FOR_TEST;
    const { env, cwd } = JSON.parse(end.summary.replaceAll('[secret]', 's3cret-value')) as {
      env: Record<string, string>;
      cwd: string;
    };
    expect(env).toMatchObject({
      MODE: 'test',
      API_KEY: 's3cret-value',
      ERRAND_TASK_ID: task.taskId,
      ERRAND_RUN_ID: 'runenv1',
      ERRAND_ATTEMPT: '2',
      ERRAND_IDEMPOTENCY_KEY: 'key-1',
      ERRAND_ARG_ROOM_NO: '302',
      ERRAND_ARG_VIP: 'true',
      ERRAND_ARGS_JSON: '{"room-no":302,"vip":true}',
    });
    expect(env).not.toHaveProperty('AGENT_TOKEN_FOR_TEST');
    expect(cwd).toBe(join(dir, 'work', 'runenv1', 'work'));
    expect(env.TMPDIR).toBe(join(dir, 'work', 'runenv1', 'tmp'));
  });

  it('never leads out of the work folder, whatever the run id is', async () => {
    await expect(run(shellTask(['true'], { runId: '../../etc' }))).rejects.toThrow(RangeError);
  });

  it('has no input: a program that reads gets the end at once', async () => {
    expect(await run(sh('cat; echo end'))).toMatchObject({ summary: 'end' });
  });
});

describe('the files of a program', () => {
  it('become outputs, summary, progress and checkpoint', async () => {
    const started = start(
      sh(`printf 'url=https://x/?a=b\\nbad line\\nempty=\\n' > "$ERRAND_OUTPUT"; echo short > "$ERRAND_SUMMARY"; echo noise
          echo '42 almost' >> "$ERRAND_PROGRESS"; printf '{"at":7}' > "$ERRAND_CHECKPOINT_OUT"`),
    );
    expect(await started.end).toEqual({
      type: 'succeeded',
      summary: 'short',
      outputs: { url: 'https://x/?a=b', empty: '' },
      exitCode: 0,
    });
    expect(started.of('progress')).toEqual([{ type: 'progress', percent: 42, message: 'almost' }]);
    expect(started.of('checkpoint')).toEqual([{ type: 'checkpoint', data: { at: 7 } }]);
    expect(started.log('stderr')).toContain('ERRAND_OUTPUT line 2 is not key=value');
    expect(started.log('stdout')).toBe('noise\n');
  });

  it('are looked at while it runs', async () => {
    const started = start(
      sh('echo "10 begun" >> "$ERRAND_PROGRESS"; until [ -e "$GATE" ]; do sleep 0.02; done', {
        spec: { env: { GATE: join(dir, 'gate') } },
      }),
    );
    await until(() => started.of('progress').length === 1, 'the progress while it runs');
    await writeFile(join(dir, 'gate'), '');
    expect(await started.end).toMatchObject({ type: 'succeeded' });
  });

  it('bring the checkpoint of the run before', async () => {
    expect(await run(sh('cat "$ERRAND_CHECKPOINT_IN"', { checkpoint: { step: 3 } }))).toMatchObject({
      summary: '{"step":3}',
    });
    expect(await run(sh('[ -e "$ERRAND_CHECKPOINT_IN" ] || echo none'))).toMatchObject({ summary: 'none' });
  });

  it('that are pipes or links are not opened', async () => {
    const end = await run(sh('mkfifo "$ERRAND_SUMMARY"; ln -s /etc/passwd "$ERRAND_OUTPUT"; echo printed'));
    expect(end).toEqual({ type: 'succeeded', summary: 'printed', outputs: undefined, exitCode: 0 });
  });

  it('that cannot be used are told in the log', async () => {
    const started = start(sh('echo "{" > "$ERRAND_CHECKPOINT_OUT"; touch "$ERRAND_ARTIFACTS/a.txt"'));
    await started.end;
    expect(started.log('stderr')).toContain('ERRAND_CHECKPOINT_OUT is not JSON');
    expect(started.log('stderr')).toContain('1 files in ERRAND_ARTIFACTS were not collected');
  });
});

describe('output', () => {
  it('of raw bytes becomes valid text without NUL (A14)', async () => {
    const started = start(sh("printf 'fo\\377\\376\\0\\200b'; head -c 4096 /dev/urandom >&2"));
    expect(await started.end).toMatchObject({ type: 'succeeded', summary: 'fo\uFFFD\uFFFD\uFFFDb' });
    for (const stream of ['stdout', 'stderr'] as const) {
      expect(started.log(stream)).not.toContain('\0');
      expect(started.log(stream).isWellFormed()).toBe(true);
    }
  });

  it('is sent while the program runs', async () => {
    const gate = join(dir, 'gate');
    const started = start(sh(`echo early; until [ -e ${gate} ]; do sleep 0.02; done; echo late`));
    await until(() => started.log('stdout') === 'early\n', 'the first line while it runs');
    await writeFile(gate, '');
    await started.end;
    expect(started.log('stdout')).toBe('early\nlate\n');
  });

  it('held open by a grandchild does not hold up the result (A11, first)', async () => {
    const seconds = uniqueSleep();
    const started = start(sh(`sleep ${seconds} & echo done`));
    const end = await started.end;
    expect(end).toMatchObject({ type: 'succeeded', summary: 'done' });
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
  });

  it('held open by a grandchild that left the group does not hold up the result either', async () => {
    const seconds = uniqueSleep();
    const end = await run(sh(`setsid sleep ${seconds} & echo done`));
    expect(end).toMatchObject({ type: 'succeeded', summary: 'done' });
    for (const pid of await processesWith(`sleep ${seconds}`)) process.kill(pid, 'SIGKILL');
  });
});

describe('a program that is stopped', () => {
  it.each([
    ['cancel', 'cancelled'],
    ['timeout', 'timed_out'],
    ['stop', 'released'],
  ] as const)('by %s ends with its whole group (A10, A11 second)', async (reason, type) => {
    const seconds = uniqueSleep();
    const started = start(sh(`sleep ${seconds} & sleep ${seconds} & exec sleep ${seconds}`));
    await until(async () => (await processesWith(`sleep ${seconds}`)).length === 3);
    started.stop(reason);
    expect((await started.end).type).toBe(type);
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
  });

  it('is told to end first and may clean up within its grace', async () => {
    const started = start(sh('trap "echo cleaned; exit 0" TERM; echo up; while :; do sleep 0.02; done'));
    await until(() => started.log('stdout').includes('up'));
    started.stop('cancel');
    expect(await started.end).toMatchObject({ type: 'cancelled', summary: 'up\ncleaned' });
  });

  it('is killed when it does not end within its grace', async () => {
    const started = start(sh('trap "" TERM; echo up; while :; do sleep 0.02; done', { spec: { graceMs: 100 } }));
    await until(() => started.log('stdout').includes('up'));
    started.stop('cancel');
    expect(await started.end).toMatchObject({ type: 'cancelled' });
  });

  it('gets no longer grace than the agent’s owner allows', async () => {
    const started = start(
      sh('trap "" TERM; echo up; while :; do sleep 0.02; done', { spec: { graceMs: 3_600_000 } }),
      new Map(),
      50,
    );
    await until(() => started.log('stdout').includes('up'));
    started.stop('timeout');
    expect(await started.end).toMatchObject({ type: 'timed_out' });
  });

  it('is reported cancelled only when a grandchild that takes its time is gone, too', async () => {
    const seconds = uniqueSleep();
    const started = start(
      sh(`(trap "" TERM; echo up; exec sleep ${seconds}) & exec sleep ${seconds}`, { spec: { graceMs: 150 } }),
    );
    await until(
      async () => started.log('stdout').includes('up') && (await processesWith(`sleep ${seconds}`)).length === 2,
    );
    started.stop('cancel');
    await started.end;
    expect(await processesWith(`sleep ${seconds}`)).toEqual([]);
  });

  it('before it began is never started', async () => {
    const started = start(sh(`touch ${join(dir, 'proof')}`));
    started.stop('cancel');
    expect((await started.end).type).toBe('cancelled');
  });
});
