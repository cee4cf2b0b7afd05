import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { compiledSrc } from '../support/compiled.ts';
import { Processes } from '../support/processes.ts';
import { until } from '../support/until.ts';

/** Three steps, each with an act outside and a checkpoint; while the file `<book>.hold` names a boundary, the program waits there. */
const STEPS = `
book=$ERRAND_ARG_BOOK
hold() {
  while [ "$(cat "$book.hold" 2>/dev/null)" = "$1" ]; do echo $$ > "$book.here"; sleep 0.05; done
}
act() { echo "$1 $ERRAND_IDEMPOTENCY_KEY" >> "$book"; }
finished=$(cat "$ERRAND_CHECKPOINT_IN" 2>/dev/null || echo 0)
for step in 1 2 3; do
  [ "$step" -le "$finished" ] && continue
  if [ "$step" = 2 ] && [ -e "$book.broken" ]; then exit 1; fi
  ACT
  hold "acted-$step"
  echo $step > "$ERRAND_CHECKPOINT_OUT.new"; mv "$ERRAND_CHECKPOINT_OUT.new" "$ERRAND_CHECKPOINT_OUT"
  hold "saved-$step"
done
echo "from $finished, version $ERRAND_CHECKPOINT_VERSION"
`;
const PLAIN = 'act $step';
const GUARDED = `
  code=0
  errand effect begin "step-$step" "$ERRAND_IDEMPOTENCY_KEY" --policy ask || code=$?
  case $code in
    0) act $step; errand effect done "step-$step" "$ERRAND_IDEMPOTENCY_KEY" ;;
    10) ;;
    *) exit $code ;;
  esac`;
const BOUNDARIES = ['acted-1', 'saved-1', 'acted-2', 'saved-2', 'acted-3', 'saved-3'];

let processes: Processes;
beforeEach(() => house());

/** The gateway runs in the processes' own folder and finds `./templates` there. */
async function house(env: Record<string, string> = {}): Promise<void> {
  processes = new Processes(env);
  const { folder } = processes;
  for (const name of ['bin', 'templates']) mkdirSync(join(folder, name));
  const main = join(await compiledSrc(), 'cli', 'main.js');
  writeFileSync(join(folder, 'bin', 'errand'), `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`, {
    mode: 0o755,
  });
  for (const [id, act] of Object.entries({ plain: PLAIN, guarded: GUARDED })) {
    writeFileSync(join(folder, `${id}.sh`), STEPS.replace('ACT', act));
    const command = `command: [sh, ${JSON.stringify(join(folder, `${id}.sh`))}]`;
    const rest = 'args: { book: { required: true } }\nretry: { max: 20, base: 100ms, cap: 100ms, jitter: 0 }\n';
    writeFileSync(join(folder, 'templates', `${id}.yaml`), `id: ${id}\n${command}\n${rest}`);
  }
}
afterEach(() => processes.end());

const agent = async (id = 'agent-1') =>
  processes.agent(id, await processes.agentToken(id), { PATH: `${join(processes.folder, 'bin')}:${process.env.PATH}` });

interface Task {
  status: string;
  summary?: string;
  checkpointVersion?: number;
  runs: { outcome?: string }[];
}

/** One task of such a program, with its book. */
class Steps {
  readonly book: string;
  id = '';

  constructor(name: string) {
    this.book = join(processes.folder, name);
  }

  async submit(template: string): Promise<this> {
    const submission = { template, args: { book: this.book }, idempotencyKey: this.book };
    this.id = (await processes.api<{ taskId: string }>('POST', '/api/tasks', submission)).taskId;
    return this;
  }

  holdAt(boundary: string): void {
    writeFileSync(`${this.book}.hold`, boundary);
  }

  /** Answers the process id of the program once it waits, and its agent has noted that it is to be ended should the agent die. */
  async waits(): Promise<number> {
    const [here, journal] = [`${this.book}.here`, join(processes.folder, 'agent-1', 'runs.log')];
    const pid = await until(() => Number(existsSync(here) && readFileSync(here, 'utf8')), 'the boundary');
    await until(() => readFileSync(journal, 'utf8').includes(`"pgid":${pid},`), 'the agent to know its program');
    return pid;
  }

  goOn(): void {
    rmSync(`${this.book}.hold`, { force: true });
  }

  task(): Promise<Task> {
    return processes.api<Task>('GET', `/api/tasks/${this.id}`);
  }

  async becomes(status: string): Promise<Task> {
    await until(async () => (await this.task()).status === status, `task ${this.id} to be ${status}`, 60_000);
    return this.task();
  }

  /** How often each step was done; and every act had the same key. */
  acts(): number[] {
    const lines = readFileSync(this.book, 'utf8').trim().split('\n');
    const acts = lines.map((line) => line.split(' '));
    expect(acts.every(([, key]) => key === this.book)).toBe(true);
    return [1, 2, 3].map((step) => acts.filter(([number]) => number === String(step)).length);
  }
}

/** Once for each step; once more where it was stopped after the act and before its checkpoint. */
const atMost = (boundary: string) => [1, 2, 3].map((step) => (boundary === `acted-${step}` ? 2 : 1));

describe('A64: three steps with a checkpoint each', () => {
  it('kill -9 of the agent at every boundary: what is saved is never done again, the rest once more with the same key', async () => {
    await processes.gateway();
    let current = await agent();
    for (const boundary of BOUNDARIES) {
      const steps = new Steps(boundary);
      steps.holdAt(boundary);
      await steps.submit('plain');
      await steps.waits();
      await processes.kill(current);
      // The program is still there, waits, and is ended by the next agent before anything else.
      current = await agent();
      await until(async () => (await steps.task()).runs.length === 2, 'the second run', 60_000);
      steps.goOn();
      const task = await steps.becomes('succeeded');
      expect([boundary, steps.acts()]).toEqual([boundary, atMost(boundary)]);
      expect(task.summary).toMatch(boundary === 'acted-1' ? /^from 0, version 0$/ : /^from [123], version [123]$/);
      expect(task.checkpointVersion).toBeUndefined();
    }
  }, 240_000);

  it('kill -9 of the gateway at every boundary: nothing is done twice', async () => {
    let gateway = await processes.gateway();
    await agent();
    for (const boundary of BOUNDARIES) {
      const steps = new Steps(boundary);
      steps.holdAt(boundary);
      await steps.submit('plain');
      await steps.waits();
      await processes.kill(gateway);
      steps.goOn();
      gateway = await processes.gateway();
      const task = await steps.becomes('succeeded');
      expect([boundary, steps.acts(), task.runs.length]).toEqual([boundary, [1, 1, 1], 1]);
    }
  }, 240_000);

  it('kill -9 of both at once', async () => {
    let gateway = await processes.gateway();
    let current = await agent();
    for (const boundary of ['acted-2', 'saved-2']) {
      const steps = new Steps(boundary);
      steps.holdAt(boundary);
      await steps.submit('plain');
      await steps.waits();
      await Promise.all([processes.kill(gateway), processes.kill(current)]);
      gateway = await processes.gateway();
      current = await agent();
      await until(async () => (await steps.task()).runs.length === 2, 'the second run', 60_000);
      steps.goOn();
      await steps.becomes('succeeded');
      expect([boundary, steps.acts()]).toEqual([boundary, atMost(boundary)]);
    }
  }, 240_000);

  it('an agent that never comes back: another one goes on from what the gateway has', async () => {
    await processes.end();
    await house({ ERRAND_LEASE_MS: '2000', ERRAND_HEARTBEAT_MS: '500' });
    await processes.gateway();
    const first = await agent();
    const steps = new Steps('book');
    steps.holdAt('saved-2');
    await steps.submit('plain');
    const pid = await steps.waits();
    await until(async () => (await steps.task()).checkpointVersion, 'the checkpoint');
    const { checkpointVersion } = await steps.task();
    await processes.kill(first);
    process.kill(-pid, 'SIGKILL');
    steps.goOn();
    await agent('agent-2');
    const task = await steps.becomes('succeeded');
    expect(steps.acts()).toEqual([1, 1, 1]);
    expect(task.summary).toBe(`from 2, version ${checkpointVersion}`);
    expect(task.runs.map(({ outcome }) => outcome)).toEqual(['lost', 'succeeded']);
  }, 120_000);

  it('with effects: kill -9 of the agent does nothing twice, also between the mark of an effect and its checkpoint', async () => {
    await processes.gateway();
    let current = await agent();
    for (const boundary of ['acted-1', 'acted-2', 'saved-2']) {
      const steps = new Steps(boundary);
      steps.holdAt(boundary);
      await steps.submit('guarded');
      await steps.waits();
      await processes.kill(current);
      current = await agent();
      await until(async () => (await steps.task()).runs.length === 2, 'the second run', 60_000);
      steps.goOn();
      await steps.becomes('succeeded');
      expect([boundary, steps.acts()]).toEqual([boundary, [1, 1, 1]]);
    }
  }, 240_000);

  it('a failed task that two people resume at once is one run, which goes on from the checkpoint', async () => {
    await processes.gateway();
    await agent();
    const steps = new Steps('book');
    writeFileSync(`${steps.book}.broken`, '');
    await steps.submit('plain');
    expect((await steps.becomes('failed')).checkpointVersion).toBe(1);
    rmSync(`${steps.book}.broken`);
    const retry = () => processes.api('POST', `/api/tasks/${steps.id}/retry`);
    await Promise.allSettled([retry(), retry()]);
    const task = await steps.becomes('succeeded');
    expect([task.runs.length, task.summary, steps.acts()]).toEqual([2, 'from 1, version 1', [1, 1, 1]]);
  }, 120_000);
});

it('progress in a loop costs rows by the second, not by the line', async () => {
  const { folder } = processes;
  const loop = `until [ -e '${join(folder, 'end')}' ]; do for i in 1 2 3 4 5 6 7 8 9 0; do n=$((n + 1)); echo "$n of many"; done; done >> "$ERRAND_PROGRESS"
    echo '100 all of them' >> "$ERRAND_PROGRESS"; echo $n`;
  writeFileSync(join(folder, 'loop.sh'), loop);
  writeFileSync(
    join(folder, 'templates', 'loop.yaml'),
    `id: loop\ncommand: [sh, ${JSON.stringify(join(folder, 'loop.sh'))}]\n`,
  );
  await processes.gateway();
  await agent();
  const begunAt = performance.now();
  const { taskId } = await processes.api<{ taskId: string }>('POST', '/api/tasks', { template: 'loop' });
  const events = async () =>
    (
      await processes.api<{ events: { type: string; data: { message?: string } }[] }>(
        'GET',
        `/api/tasks/${taskId}/events`,
      )
    ).events.filter(({ type }) => type === 'progress');
  await until(async () => (await events()).length >= 4, 'four lines', 60_000);
  writeFileSync(join(folder, 'end'), '');
  const done = await until(async () => {
    const task = await processes.api<Task & { progress: unknown }>('GET', `/api/tasks/${taskId}`);
    return task.status === 'succeeded' && task;
  }, 'the end');
  const seconds = (performance.now() - begunAt) / 1_000;
  expect(Number(done.summary)).toBeGreaterThan(10_000);
  expect((await events()).length).toBeLessThanOrEqual(seconds + 2);
  expect((await events()).at(-1)!.data).toEqual({ percent: 100, message: 'all of them' });
  expect(done.progress).toEqual({ percent: 100, message: 'all of them' });
}, 120_000);
