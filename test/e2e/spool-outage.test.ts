import type { ChildProcess } from 'node:child_process';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

let templates: string;
let house: Processes;
let gateway: ChildProcess;
beforeEach(async () => {
  templates = await mkdtemp(join(tmpdir(), 'errand-outage-'));
  const template = (id: string, script: string, more = '') =>
    writeFile(
      join(templates, `${id}.yaml`),
      `id: ${id}\ntitle: { en: ${id} }\ncommand: ${JSON.stringify(['sh', '-c', script])}\nretry: { max: 1 }\n${more}`,
    );
  const wait = `until [ -e '${templates}/gate' ]; do sleep 0.05; done`;
  await template('fine', `${wait}; echo all is well`);
  await template('broken', `${wait}; echo it broke >&2; exit 3`);
  await template(
    'called-off',
    `trap "echo told > ${templates}/told; ${wait}; exit 0" TERM; while :; do sleep 0.05; done`,
    'grace: 10m\n',
  );
  house = new Processes({
    ERRAND_TEMPLATES_DIR: templates,
    ERRAND_LEASE_MS: '600000',
    ERRAND_HEARTBEAT_MS: '200',
    ERRAND_CANCEL_GRACE_MS: '3600000',
  });
  gateway = await house.gateway();
});
afterEach(async () => {
  await house.end();
  await rm(templates, { recursive: true, force: true });
});

interface TaskView {
  status: string;
  summary?: string;
  error?: string;
  attempt: number;
  runs: { outcome: string | null; exitCode: number | null }[];
}
interface Event {
  type: string;
  data?: { endedAt?: number } | null;
}

const task = (id: string) => house.api<TaskView>('GET', `/api/tasks/${id}`);

it('results of an outage survive a reboot of the agent: each comes once, with its exit code, output and time (A08)', async () => {
  const token = await house.agentToken('a1');
  const first = await house.agent('a1', token, { AGENT_CONCURRENCY: '3', AGENT_KILL_GRACE: '10m' });
  const ids: string[] = [];
  for (const template of ['fine', 'broken', 'called-off'])
    ids.push((await house.api<{ taskId: string }>('POST', '/api/tasks', { template, args: {} })).taskId);
  await until(async () => (await Promise.all(ids.map(task))).every(({ status }) => status === 'running'), 'three runs');
  await house.api('POST', `/api/tasks/${ids[2]}/cancel`);
  await until(() => readFile(join(templates, 'told'), 'utf8').catch(() => ''), 'the cancel to reach the program');

  await house.kill(gateway);
  await writeFile(join(templates, 'gate'), '');
  const spool = join(house.folder, 'a1', 'reports.log');
  const ends = async () => [
    ...(await readFile(spool, 'utf8').catch(() => '')).matchAll(/"at":(\d+),"type":"(succeeded|failed|cancelled)"/g),
  ];
  const endedAt = new Map(
    (await until(async () => ((await ends()).length === 3 ? ends() : null), 'three results on the disk')).map(
      (match) => [match[2]!, Number(match[1])],
    ),
  );
  await house.kill(first);
  await house.agent('a1', token, { AGENT_CONCURRENCY: '3' });
  await until(
    () => Date.now() - Math.max(...endedAt.values()) > 1_500,
    'the outage to be longer than the clock is exact',
  );
  await house.gateway();

  await until(
    async () => (await Promise.all(ids.map(task))).every(({ status }) => !['running', 'leased'].includes(status)),
    'the results',
  );
  const [fine, broken, calledOff] = await Promise.all(ids.map(task));
  expect(fine).toMatchObject({
    status: 'succeeded',
    summary: 'all is well',
    attempt: 1,
    runs: [{ outcome: 'succeeded', exitCode: 0 }],
  });
  expect(broken).toMatchObject({
    status: 'failed',
    error: expect.stringContaining('it broke'),
    attempt: 1,
    runs: [{ outcome: 'failed', exitCode: 3 }],
  });
  expect(calledOff).toMatchObject({ status: 'cancelled', attempt: 1, runs: [{ outcome: 'cancelled' }] });
  for (const [id, type] of [
    [ids[0], 'succeeded'],
    [ids[1], 'failed'],
    [ids[2], 'cancelled'],
  ] as const) {
    const { events } = await house.api<{ events: Event[] }>('GET', `/api/tasks/${id}/events`);
    const told = events.filter((event) => event.type === 'ended_earlier').map(({ data }) => data?.endedAt);
    expect(told).toEqual([endedAt.get(type)]);
    expect(events.filter((event) => event.type.startsWith('late_'))).toEqual([]);
  }
  await until(async () => (await stat(spool)).size === 0, 'the spool to be empty');
});
