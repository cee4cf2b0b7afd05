import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { errand } from '../cli/errand.ts';
import { compiledSrc } from '../support/compiled.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

/** A program that pays once: what it has done is a line in a file; while `hold` is there it stays between act and mark. */
const PAY = `
code=0
errand effect begin payment "$ERRAND_ARG_KEY" --policy "$ERRAND_ARG_POLICY" || code=$?
case $code in
  0) echo "paid by $ERRAND_RUN_ID" >> "$ERRAND_ARG_BOOK"
     while [ -e "$ERRAND_ARG_BOOK.hold" ]; do echo $$ > "$ERRAND_ARG_BOOK.pid"; sleep 0.05; done
     errand effect done payment "$ERRAND_ARG_KEY" --result "R-$ERRAND_ARG_KEY" ;;
  10) ;;
  *) exit $code ;;
esac
`;

const TEMPLATE = `
id: pay
args:
  key: { required: true }
  book: { required: true }
  policy: { type: enum, values: [retry, ask, fail], default: ask }
command: [sh, PROGRAM]
retry: { max: 3, base: 100ms, cap: 100ms, jitter: 0 }
`;

/** The example of the documentation, with a way to pay. */
const EXAMPLE = /^```sh\n(.*?)^```$/ms.exec(
  readFileSync(new URL('../../docs/effects.md', import.meta.url), 'utf8'),
)![1]!;

let processes: Processes;
let book: string;
beforeEach(async () => {
  // The gateway runs in the processes' own folder and finds `./templates` there.
  processes = new Processes({ ERRAND_LEASE_MS: '6000', ERRAND_HEARTBEAT_MS: '500' });
  const { folder } = processes;
  book = join(folder, 'book');
  for (const name of ['bin', 'templates']) mkdirSync(join(folder, name));
  const main = join(await compiledSrc(), 'cli', 'main.js');
  writeFileSync(join(folder, 'bin', 'errand'), `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`, {
    mode: 0o755,
  });
  writeFileSync(join(folder, 'pay.sh'), PAY);
  writeFileSync(
    join(folder, 'templates', 'pay.yaml'),
    TEMPLATE.replace('PROGRAM', JSON.stringify(join(folder, 'pay.sh'))),
  );
});
afterEach(() => processes.end());

const lines = () => (readFileSync(book, 'utf8').match(/paid/g) ?? []).length;
const agent = async (id: string) =>
  processes.agent(id, await processes.agentToken(id), { PATH: `${join(processes.folder, 'bin')}:${process.env.PATH}` });
const submit = async (key: string, policy: string) =>
  (await processes.api<{ taskId: string }>('POST', '/api/tasks', { template: 'pay', args: { key, book, policy } }))
    .taskId;

interface Task {
  status: string;
  summary?: string;
  error?: string;
  runs: { outcome?: string; exitCode?: number }[];
}
const task = (id: string) => processes.api<Task>('GET', `/api/tasks/${id}`);
const becomes = (id: string, status: string) =>
  until(async () => (await task(id)).status === status, `task ${id} to be ${status}`, 60_000);
const effect = (key: string) =>
  processes.api<{ state: string; uncertain: boolean; begins: number; waiting: string[] }>(
    'GET',
    `/api/effects/payment/${key}`,
  );
const operator = (...args: string[]) =>
  errand([...args, '--url', processes.url, '--token', processes.adminToken], { cwd: processes.folder });

describe('a program that pays', () => {
  it('does it once, and a second one is told the stored result', async () => {
    await processes.gateway();
    await agent('agent-1');
    const first = await submit('k-1', 'ask');
    await becomes(first, 'succeeded');
    const second = await submit('k-1', 'ask');
    await becomes(second, 'succeeded');
    expect((await task(first)).summary).toBe('first\ndone\nR-k-1');
    expect((await task(second)).summary).toBe('done\nR-k-1');
    expect(lines()).toBe(1);
  }, 120_000);

  it('as docs/effects.md has it', async () => {
    const { folder } = processes;
    writeFileSync(join(folder, 'example.sh'), EXAMPLE);
    writeFileSync(join(folder, 'bin', 'pay-the-bill'), `#!/bin/sh\necho paid >> '${book}'\necho R-1\n`, {
      mode: 0o755,
    });
    const command = `command: [sh, ${JSON.stringify(join(folder, 'example.sh'))}]\n`;
    writeFileSync(join(folder, 'templates', 'bill.yaml'), `id: bill\n${command}`);
    writeFileSync(join(folder, 'templates', 'again.yaml'), `id: again\n${command}`);
    await processes.gateway();
    await agent('agent-1');
    const run = async (template: string) => {
      const submission = { template, idempotencyKey: 'bill:7:pay' };
      const { taskId } = await processes.api<{ taskId: string }>('POST', '/api/tasks', submission);
      await becomes(taskId, 'succeeded');
      return (await task(taskId)).summary;
    };
    expect(await run('bill')).toBe('first\ndone\nR-1');
    expect(await run('again')).toBe('done\nR-1');
    expect(lines()).toBe(1);
  }, 120_000);

  it('kill -9 of the program between act and mark is visible as INIT; a person is asked, and the task goes on by itself', async () => {
    await processes.gateway();
    await agent('agent-1');
    writeFileSync(`${book}.hold`, '');
    const id = await submit('k-2', 'ask');
    const pid = await until(() => readFile(`${book}.pid`, 'utf8').then(Number, () => 0), 'the program to have acted');
    expect(await effect('k-2')).toMatchObject({ state: 'INIT', uncertain: false });
    expect((await operator('effects', 'resolve', 'payment', 'k-2', 'FAIL', '--reason', 'r')).code).toBe(4);
    process.kill(pid, 'SIGKILL');
    await becomes(id, 'failed');
    expect(await effect('k-2')).toMatchObject({ state: 'INIT', uncertain: true });

    await processes.api('POST', `/api/tasks/${id}/retry`);
    await becomes(id, 'waiting');
    const blocked = await task(id);
    expect(blocked.runs.at(-1)).toMatchObject({ outcome: 'blocked' });
    expect(blocked.summary).toMatch(
      /^nobody knows whether the effect payment "k-2" took place.*errand effects resolve/,
    );
    const listed = await operator('effects', 'list', '--state', 'INIT');
    expect(listed.out).toMatch(/payment +k-2 +INIT \(uncertain\)/);
    expect(await effect('k-2')).toMatchObject({ waiting: [id] });
    const story = await operator('tasks', 'trace', 'k-2');
    expect(story.out).toContain('effect payment "k-2" was begun by run');

    const reason = ['--reason', 'seen in the account'];
    const resolved = await operator('effects', 'resolve', 'payment', 'k-2', 'SUCCESS', '--result', 'R-77', ...reason);
    expect(resolved).toMatchObject({ code: 0, out: expect.stringContaining(id) });
    await becomes(id, 'succeeded');
    expect((await task(id)).summary).toBe('done\nR-77');
    expect(lines()).toBe(1);
  }, 120_000);

  it('A64: kill -9 of the agent between act and mark: with retry it is done at most once more, and told as a repeat', async () => {
    await processes.gateway();
    const first = await agent('agent-1');
    writeFileSync(`${book}.hold`, '');
    const id = await submit('k-3', 'retry');
    await until(() => readFile(`${book}.pid`, 'utf8').catch(() => ''), 'the program to have acted');
    await processes.kill(first);
    expect(await effect('k-3')).toMatchObject({ state: 'INIT' });
    // The program outlived its agent; the next agent of this folder ends it before anything else.
    await agent('agent-1');
    await until(() => lines() === 2, 'the second act', 60_000);
    rmSync(`${book}.hold`);
    await becomes(id, 'succeeded');
    expect(lines()).toBe(2);
    expect(await effect('k-3')).toMatchObject({ state: 'SUCCESS', begins: 2 });
  }, 120_000);

  it('A64: kill -9 of the gateway between act and mark: the mark waits for it and nothing is repeated', async () => {
    const gateway = await processes.gateway();
    await agent('agent-1');
    writeFileSync(`${book}.hold`, '');
    const id = await submit('k-4', 'ask');
    await until(() => readFile(`${book}.pid`, 'utf8').catch(() => ''), 'the program to have acted');
    await processes.kill(gateway);
    rmSync(`${book}.hold`);
    await processes.gateway();
    await becomes(id, 'succeeded');
    expect(lines()).toBe(1);
    expect(await effect('k-4')).toMatchObject({ state: 'SUCCESS', begins: 1 });
  }, 120_000);

  it('with the policy fail the next run fails and acts on nothing', async () => {
    await processes.gateway();
    const first = await agent('agent-1');
    writeFileSync(`${book}.hold`, '');
    const id = await submit('k-5', 'fail');
    await until(() => readFile(`${book}.pid`, 'utf8').catch(() => ''), 'the program to have acted');
    await processes.kill(first);
    await agent('agent-1');
    await becomes(id, 'failed');
    expect((await task(id)).runs.at(-1)).toMatchObject({ outcome: 'failed', exitCode: 1 });
    expect((await task(id)).error).toContain('nobody knows whether the effect payment "k-5" took place');
    expect(lines()).toBe(1);
  }, 120_000);
});
