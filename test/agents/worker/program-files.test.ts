import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CHECKPOINT_LIMITS, type Report } from '../../../src/agents/protocol.ts';
import { maskingOf } from '../../../src/agents/worker/masking.ts';
import { readProgramTail } from '../../../src/agents/worker/runtime/run-folder.ts';
import { readCheckpoint } from '../../../src/agents/worker/runtime/saved-checkpoint.ts';
import { shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { type AgentProcess, startAgentProcess } from './agent-process.ts';
import { type Rig, rig } from './rig.ts';

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

async function agentProcess(): Promise<AgentProcess> {
  const process = await startAgentProcess(r.gateway.url, r.dir);
  processes.push(process);
  return process;
}

/** The example of the documentation. */
const EXAMPLE = /^```sh\n(.*?)^```$/ms.exec(
  readFileSync(new URL('../../../docs/checkpoints.md', import.meta.url), 'utf8'),
)![1]!;

const sh = (script: string, overrides: Parameters<typeof shellTask>[1] = {}) =>
  shellTask(['sh', '-c', script], overrides);
/** In a script: goes on once the test has opened the gate. */
const waitFor = (gate: string) => `until [ -e '${join(r.dir, gate)}' ]; do sleep 0.02; done`;
const open = (gate: string) => writeFile(join(r.dir, gate), '');
const opened = (gate: string) =>
  until(
    () =>
      readFile(join(r.dir, gate)).then(
        () => true,
        () => false,
      ),
    gate,
  );
const of = <T extends Report['type']>(runId: string, type: T) =>
  r.gateway.reportsOf(runId).filter((report): report is Extract<Report, { type: T }> => report.type === type);
const saved = (runId: string) => of(runId, 'checkpoint').map(({ data }) => data);
const messages = (runId: string) => of(runId, 'progress').map(({ message }) => message);
const emptySpool = () =>
  until(async () => (await readFile(join(r.dir, 'spool', 'reports.log'), 'utf8')) === '', 'an empty spool');
const ended = (runId: string) => until(() => r.gateway.endOf(runId), 'the end of the run');

describe('progress', () => {
  it('of a program that writes it in a loop costs a report a second, the last line among them', async () => {
    const task = sh(`n=0
      until [ -e '${join(r.dir, 'gate')}' ]; do
        for i in 1 2 3 4 5 6 7 8 9 0; do
          n=$((n + 1)); echo "$n of many lines that say how far it has come"
        done
      done >> "$ERRAND_PROGRESS"; echo $n > '${join(r.dir, 'count')}'`);
    const begunAt = performance.now();
    r.gateway.grant(task);
    await r.start();
    await until(() => of(task.runId, 'progress').length >= 3, 'three reports');
    await open('gate');
    await ended(task.runId);
    const seconds = (performance.now() - begunAt) / 1_000;
    const count = Number(await readFile(join(r.dir, 'count'), 'utf8'));
    expect(count).toBeGreaterThan(10_000);
    const reports = of(task.runId, 'progress');
    expect(reports.length).toBeLessThanOrEqual(seconds + 2);
    expect(reports.at(-1)).toMatchObject({ percent: 100, message: 'of many lines that say how far it has come' });
    const calls = r.gateway.calls.filter(({ call }) => call === 'report');
    expect(calls.length).toBeLessThanOrEqual(reports.length + 3);
    expect(calls.reduce((sum, { body }) => sum + JSON.stringify(body).length, 0)).toBeLessThan(1_000 * calls.length);
  });

  it('is also seen where a program writes its file anew each time', async () => {
    const task = sh(
      `echo 'step one' > "$ERRAND_PROGRESS"; ${waitFor('two')}; echo 'step two' > "$ERRAND_PROGRESS"; ${waitFor('end')}`,
    );
    r.gateway.grant(task);
    await r.start();
    await until(() => messages(task.runId).includes('step one'), 'the first line');
    await open('two');
    await until(() => messages(task.runId).includes('step two'), 'the second line');
    await open('end');
    await ended(task.runId);
    expect(messages(task.runId)).toEqual(['step one', 'step two']);
  });

  describe('file', () => {
    let dir: string;
    beforeEach(async () => {
      dir = await mkdtemp(join(tmpdir(), 'errand-tail-'));
    });
    afterEach(() => rm(dir, { recursive: true, force: true }));

    it.each([
      ['nothing', '', ''],
      ['a few lines', 'a\nb\n', 'a\nb\n'],
      ['lines up to the limit and one more byte', `${'x'.repeat(65_536)}\na`, 'a'],
      ['more than the limit', `${'line\n'.repeat(50_000)}last`, `${'line\n'.repeat(13_106)}last`],
      ['one endless line', 'x'.repeat(200_000), undefined],
      ['its end after an endless line', `${'x'.repeat(200_000)}\nlast\n`, 'last\n'],
    ])('%s: whole lines of its end are read', async (_what, text, expected) => {
      await writeFile(join(dir, 'f'), text);
      expect(await readProgramTail(join(dir, 'f'))).toBe(expected);
    });
  });
});

describe('a checkpoint', () => {
  it('that is torn is told in the log while the program runs, the last good one stays, and the next good one counts', async () => {
    const write = (text: string) => `printf '%s' '${text}' > "$ERRAND_CHECKPOINT_OUT"`;
    const task = sh(`${write('{"step":1}')}; ${waitFor('tear')}; ${write('{"step":2,"do')}; ${waitFor('mend')}
      ${write('{"step":3}')}; ${waitFor('end')}; ${write('{"step":')}`);
    r.gateway.grant(task);
    await r.start();
    await until(() => saved(task.runId).length === 1, 'the first checkpoint');
    await open('tear');
    const fault =
      'ERRAND_CHECKPOINT_OUT is not JSON (or not written to its end): it is not saved, the last good one stays';
    await until(() => r.gateway.logOf(task.runId, 'stderr').includes(fault), 'the remark');
    expect(saved(task.runId)).toEqual([{ step: 1 }]);
    await open('mend');
    await until(() => saved(task.runId).length === 2, 'the next checkpoint');
    await open('end');
    await ended(task.runId);
    expect(saved(task.runId)).toEqual([{ step: 1 }, { step: 3 }]);
    // The second one, at the end, is told too.
    expect(r.gateway.logOf(task.runId, 'stderr').split(fault).length - 1).toBe(2);
  });

  it('that is too deep for any parser harms neither the agent nor its other runs', async () => {
    const deep = sh(`node -e 'console.log("[".repeat(120000) + "]".repeat(120000))' > "$ERRAND_CHECKPOINT_OUT"`);
    const other = sh('echo fine');
    r.gateway.grant(deep);
    await r.start({ concurrency: 1 });
    await ended(deep.runId);
    r.gateway.grant(other);
    expect(await ended(other.runId)).toMatchObject({ summary: 'fine' });
    expect(saved(deep.runId)).toEqual([]);
    expect(r.gateway.logOf(deep.runId, 'stderr')).toContain('ERRAND_CHECKPOINT_OUT is nested deeper than 100 levels');
  });

  it('is written and read by the example in docs/checkpoints.md, which goes on where it was stopped', async () => {
    await writeFile(
      join(r.dir, 'import-page'),
      `#!/bin/sh\necho "page $1" >> '${join(r.dir, 'pages')}'\n[ "$1" != 3 ] || ${waitFor('third')}\n`,
      { mode: 0o755 },
    );
    const script = EXAMPLE.replaceAll('import-page', join(r.dir, 'import-page'));
    const first = sh(script);
    r.gateway.grant(first);
    await r.start();
    await until(() => saved(first.runId).includes(2), 'the second page');
    r.gateway.cancel(first.runId);
    await ended(first.runId);
    await open('third');
    const checkpoint = saved(first.runId).at(-1);
    const second = sh(script, { checkpoint, checkpointVersion: 1 });
    r.gateway.grant(second);
    expect(await ended(second.runId)).toMatchObject({ type: 'succeeded' });
    const pages = (await readFile(join(r.dir, 'pages'), 'utf8')).trim().split('\n');
    expect(pages).toEqual(['page 1', 'page 2', 'page 3', 'page 3', 'page 4', 'page 5']);
    expect(of(second.runId, 'progress').at(-1)).toMatchObject({ percent: 100, message: 'page 5' });
  });

  it('comes with its version, and without one the version is 0', async () => {
    const script = 'echo "$ERRAND_CHECKPOINT_VERSION"; cat "$ERRAND_CHECKPOINT_IN" 2>/dev/null || true';
    const [first, later] = [sh(script), sh(script, { checkpoint: { page: 7 }, checkpointVersion: 3 })];
    r.gateway.grant(first, later);
    await r.start();
    expect(await ended(first.runId)).toMatchObject({ summary: '0' });
    expect(await ended(later.runId)).toMatchObject({ summary: '3\n{"page":7}' });
  });

  it.each([
    ['cancel', 'cancelled'],
    ['timeout', 'timed_out'],
    ['stop', 'released'],
  ] as const)('that a program writes within its grace after a %s is taken along, before the end', async (why, end) => {
    const task = sh(
      `trap 'printf 7 > "$ERRAND_CHECKPOINT_OUT"; exit 0' TERM; echo ready > "$ERRAND_PROGRESS"; while :; do sleep 0.05; done`,
      { timeoutMs: why === 'timeout' ? 3_000 : 60_000 },
    );
    r.gateway.grant(task);
    const agent = await r.start();
    await until(() => messages(task.runId).length > 0, 'the program to run');
    if (why === 'cancel') r.gateway.cancel(task.runId);
    if (why === 'stop') await agent.stop();
    await ended(task.runId);
    const types = r.gateway.reportsOf(task.runId).map(({ type }) => type);
    expect(types.filter((type) => type !== 'log').slice(-2)).toEqual(['checkpoint', end]);
    expect(saved(task.runId)).toEqual([7]);
  });

  it('while the gateway is away only the newest waits', async () => {
    const task = sh(`n=0; until [ -e '${join(r.dir, 'end')}' ]; do n=$((n + 1))
      echo $n > "$ERRAND_CHECKPOINT_OUT.new"; mv "$ERRAND_CHECKPOINT_OUT.new" "$ERRAND_CHECKPOINT_OUT"; sleep 0.1; done`);
    r.gateway.grant(task);
    await r.start();
    await until(() => saved(task.runId).length > 0, 'the first checkpoint');
    r.gateway.fail(503, 'unavailable', 'report');
    const sent = saved(task.runId).length;
    const seqs = () =>
      new Set(
        r.gateway.calls.flatMap(({ call, body }) =>
          call === 'report'
            ? (body.reports as Report[]).flatMap(({ type, seq }) => (type === 'checkpoint' ? [seq] : []))
            : [],
        ),
      );
    await until(() => seqs().size >= sent + 6, 'six checkpoints that could not be told');
    await open('end');
    r.gateway.recover();
    await ended(task.runId);
    // The one that was on its way, and the newest.
    expect(of(task.runId, 'checkpoint').length - sent).toBeLessThanOrEqual(3);
    const values = saved(task.runId) as number[];
    expect(values).toEqual([...values].sort((a, b) => a - b));
    await emptySpool();
  });

  it('A64: that its agent could not read before kill -9 is told by the next one, before the run is given to anybody else', async () => {
    const task = sh(`printf 1 > "$ERRAND_CHECKPOINT_OUT"; ${waitFor('gate')}
      printf '{"step":2}' > "$ERRAND_CHECKPOINT_OUT"; : > '${join(r.dir, 'written')}'; while :; do sleep 0.05; done`);
    r.gateway.grant(task);
    const first = await agentProcess();
    await until(() => saved(task.runId).includes(1), 'the first checkpoint');
    await first.kill();
    await open('gate');
    await opened('written');
    const second = await agentProcess();
    await until(() => r.gateway.registrations.length === 2, 'the second registration');
    expect(r.gateway.registrations[1]!.reports).toContainEqual(
      expect.objectContaining({ type: 'checkpoint', runId: task.runId, data: { step: 2 } }),
    );
    expect(saved(task.runId).at(-1)).toEqual({ step: 2 });
    await emptySpool();
    await second.kill();
    await agentProcess();
    await until(() => r.gateway.registrations.length === 3, 'the third registration');
    expect(r.gateway.registrations[2]!.reports ?? []).toEqual([]);
  });
});

describe('the file of a checkpoint', () => {
  const none = maskingOf([]);
  const read = (text: string | Buffer, masking = none) => readCheckpoint(Buffer.from(text as string), masking);

  it('holds any JSON, with or without a byte order mark', () => {
    for (const data of [null, 0, '', [], {}, { a: ['é', 1.5, -9_007_199_254_740_991], b: { c: null } }])
      expect(read(` ${JSON.stringify(data, null, 2)}\n`)).toEqual({ data, json: JSON.stringify(data) });
    expect(read('\ufeff{"a":1}')).toEqual({ data: { a: 1 }, json: '{"a":1}' });
  });

  it.each([
    ['torn', '{"a":', 'is not JSON (or not written to its end)'],
    ['two documents', '{}{}', 'is not JSON (or not written to its end)'],
    ['not UTF-8', Buffer.from([0x22, 0xff, 0x22]), 'is not JSON (or not written to its end)'],
    ['with a NUL', '{"a":"\0"}', 'is not JSON (or not written to its end)'],
    ['too large', `"${'x'.repeat(CHECKPOINT_LIMITS.bytes - 1)}"`, 'is larger than 262144 bytes'],
    ['too large when written out', `[${'1e20,'.repeat(20_000)}0]`, 'is larger than 262144 bytes'],
    [
      'with an id of another system',
      '{"last":12345678901234567891}',
      /^has the number 12345678901234567891, which would/,
    ],
    ['with a number of a hundred digits', `[-${'9'.repeat(100)}]`, /^has the number -9{39}, which would lose digits/],
  ])('that is %s is refused', (_what, text, fault) => {
    expect(read(text)).toEqual(typeof fault === 'string' ? fault : expect.stringMatching(fault));
  });

  it('takes long numbers that lose nothing, and long digits in texts', () => {
    for (const text of [
      '9007199254740993000',
      '1e300',
      '0.12345678901234567890',
      '{"12345678901234567891":"12345678901234567891"}',
      '"\\"12345678901234567891"',
    ])
      expect(read(text)).toMatchObject({ json: expect.anything() });
    expect(read(`"${'x'.repeat(CHECKPOINT_LIMITS.bytes - 2)}"`)).toMatchObject({ data: expect.any(String) });
  });

  it('counts what its masks make of it', () => {
    const text = JSON.stringify('key'.repeat(50_000));
    expect(read(text)).toMatchObject({ data: expect.any(String) });
    expect(read(text, maskingOf(['key']))).toBe('is larger than 262144 bytes');
  });
});
