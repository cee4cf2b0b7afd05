import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { freePort } from '../support/processes.ts';
import { until } from '../support/until.ts';
import { type Ended, errand, startErrand } from './errand.ts';

let gateway: TestGateway;

beforeAll(async () => {
  gateway = await TestGateway.start();
  await gateway.agent();
});
afterAll(() => gateway?.stop());

function call(...args: string[]): Promise<Ended> {
  return errand(args, place());
}

function place() {
  return { cwd: gateway.folder, env: { ERRAND_URL: gateway.url, ERRAND_STATE_DIR: join(gateway.folder, 'state') } };
}

async function json<T>(...args: string[]): Promise<T> {
  const { code, out, err } = await call(...args, '--json');
  expect({ code, err }).toEqual({ code: 0, err: '' });
  return JSON.parse(out) as T;
}

describe('against a running gateway', () => {
  test('send --wait prints progress and the result of its own task, and ends with 0', async () => {
    const { code, out, err } = await call('send', '/run hello name=Ada', '--wait');
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toMatch(/100% said hello/);
    expect(out).toMatch(/Hello, Ada!/);
  });

  test('send --wait does not take another task of the same conversation for its own', async () => {
    const [first, second] = await Promise.all([
      call('send', '/run hello name=One', '--wait'),
      call('send', '/run hello name=Two', '--wait'),
    ]);
    expect(first.out).toContain('Hello, One!');
    expect(first.out).not.toContain('Two');
    expect(second.out).toContain('Hello, Two!');
    expect(second.out).not.toContain('One');
  });

  test('send --wait ends with 0 after the answer of a command, and with 1 where the errand could not start', async () => {
    const help = await call('send', '/help', '--wait');
    expect(help.code).toBe(0);
    expect(help.out).toContain('/run');
    const wrong = await call('send', '/run sleep seconds=soon', '--wait');
    expect(wrong.code).toBe(1);
    expect(wrong.out).toContain('seconds');
  });

  test('send --wait ends with 1 when the task is cancelled meanwhile', async () => {
    const waiting = await startErrand(['send', '/run sleep seconds=600', '--wait', '--as', 'canceller'], place());
    const task = await until(async () => (await tasksOf('canceller'))[0], 'the task');
    expect((await call('tasks', 'cancel', task.taskId)).code).toBe(0);
    expect((await waiting.ended).code).toBe(1);
  });

  test('send without --wait answers at once with the id of the message', async () => {
    const sent = await json<{ inboxId: string; sessionKey: string }>('send', '/help', '--as', 'ada');
    expect(sent.inboxId).toMatch(/^[0-9a-z]{4,10}$/);
    expect(sent.sessionKey).toContain('ada');
  });

  test('lists, shows and prints what a task did', async () => {
    const { tasks } = await json<{ tasks: { taskId: string }[] }>(
      'send',
      '/run hello name=Listed',
      '--wait',
      '--as',
      'lister',
    );
    const id = tasks[0]!.taskId;
    const list = await call('tasks', 'list', '--template', 'hello');
    expect(list.out.split('\n')[0]).toMatch(/^TASK\s+STATUS\s+TEMPLATE/);
    expect(list.out).toContain(id);
    const shown = await call('tasks', 'show', id, '--events');
    expect(shown.out).toMatch(/status:\s+succeeded/);
    expect(shown.out).toMatch(/RUN\s+NO\s+AGENT/);
    expect(shown.out).toContain('progress');
    expect((await call('tasks', 'logs', id)).out).toContain('Hello, Listed!');
    expect((await call('tasks', 'logs', '-f', id)).code).toBe(0);
  });

  test('logs -f follows a task until it is over', async () => {
    const { body } = await gateway.api<{ taskId: string }>('POST', '/api/tasks', {
      template: 'sleep',
      args: { seconds: 600 },
    });
    const following = await startErrand(['tasks', 'logs', '-f', body.taskId], place());
    await until(
      async () => (await json<{ status: string }>('tasks', 'show', body.taskId)).status === 'running',
      'the task to run',
    );
    expect(following.child.exitCode).toBeNull();
    expect((await call('tasks', 'cancel', body.taskId)).code).toBe(0);
    expect((await following.ended).code).toBe(0);
  });

  test('every refusal has its exit code and one line on standard error', async () => {
    const done = (await json<{ tasks: { taskId: string }[] }>('send', '/run hello', '--wait', '--as', 'refused'))
      .tasks[0]!.taskId;
    for (const [args, code, line] of [
      [['tasks', 'show', 'zzzz'], 3, /^errand: there is no task "zzzz"\n$/],
      [['tasks', 'cancel', done], 4, /^errand: task .* is already succeeded\n$/],
      [['tasks', 'retry', done], 4, /^errand: task .* is succeeded/],
      [['tasks', 'list', '--limit', '0'], 2, /^errand: limit: .*\n$/],
      [['tasks', 'list', '--status', 'odd'], 2, /^errand: .*--status.*\n$/],
      [['tasks', 'lits'], 2, /^errand: .*unknown command 'lits'.*list.*\n$/],
      [['agents', 'token', 'a b'], 2, /^errand: agentId: .*\n$/],
      [['access', 'approve', 'NOTACODE'], 3, /^errand: nobody waits with this code.*\n$/],
      [['tasks', 'list', '--token', 'wrong-wrong-wrong'], 4, /^errand: the admin token is needed.*\n$/],
    ] as const) {
      const ended = await call(...args);
      expect({ args, code: ended.code, out: ended.out }).toEqual({ args, code, out: '' });
      expect(ended.err).toMatch(line);
    }
  });

  test('with --json a refusal is the problem JSON', async () => {
    const { code, err } = await call('tasks', 'show', 'zzzz', '--json');
    expect(code).toBe(3);
    expect(JSON.parse(err)).toMatchObject({ code: 'not_found', status: 404, type: 'urn:errand:error:not_found' });
  });

  test('a token for an agent is the only thing on standard output', async () => {
    const { out } = await call(
      'agents',
      'token',
      'hotel-12',
      '--pool',
      'hotel-12',
      '--label',
      'city=sz',
      '--permanent',
    );
    expect(out).toMatch(/^agt_[\w-]{20,}\n$/);
    const identity = await gateway.gateway.rooms.tokens.identify(out.trim());
    expect(identity).toEqual({ agentId: 'hotel-12', pools: ['hotel-12'], labels: { city: 'sz' } });
  });

  test('what a stranger calls themselves cannot steer the terminal', async () => {
    await gateway.pair('telegram', '\u001b[2J\u001b]0;owned\u0007eve');
    const { out } = await call('access', 'list');
    expect(out).toContain('eve');
    expect(out).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
  });

  test('an env file names the gateway; the environment goes before it', async () => {
    const file = join(gateway.folder, 'other.env');
    await writeFile(file, `ERRAND_URL=${gateway.url}\nERRAND_TOKEN="${gateway.gateway.adminToken}"\n`);
    const env = { ERRAND_STATE_DIR: '/nonexistent' };
    expect((await errand(['agents', 'list', '--settings', file], { cwd: gateway.folder, env })).code).toBe(0);
    expect(
      (
        await errand(['agents', 'list', '--settings', file], {
          cwd: gateway.folder,
          env: { ...env, ERRAND_TOKEN: 'wrong-wrong-wrong' },
        })
      ).code,
    ).toBe(4);
    expect((await errand(['agents', 'list', '--settings', 'missing.env'], { cwd: gateway.folder, env })).code).toBe(2);
  });
});

describe('without a gateway', () => {
  let folder: string;
  const servers: Server[] = [];
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'errand-cli-'));
  });
  afterAll(async () => {
    for (const server of servers) server.close();
    await rm(folder, { recursive: true, force: true });
  });

  test('an unreachable gateway is exit code 5', async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const { code, err } = await errand(['tasks', 'list', '--url', url, '--token', 'x'], { cwd: folder });
    expect(code).toBe(5);
    expect(err).toBe(`errand: cannot reach the gateway at ${url}: ECONNREFUSED\n`);
  });

  test('another program in the place of the gateway is named as such', async () => {
    const server = createServer((_request, response) => response.end('<html>'));
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { code, err } = await errand(['tasks', 'list', '--url', url, '--token', 'x'], { cwd: folder });
    expect(code).toBe(2);
    expect(err).toContain('not as a gateway does');
  });

  test('the token file of this machine is never shown to another one', async () => {
    const { code, err } = await errand(['tasks', 'list', '--url', 'http://errand.example'], {
      cwd: gateway.folder,
      env: { ERRAND_STATE_DIR: join(gateway.folder, 'state') },
    });
    expect(code).toBe(2);
    expect(err).toBe('errand: the admin token of errand.example is needed: give it with --token or ERRAND_TOKEN\n');
  });

  test('check names every problem of gateway and agent at once, one line each', async () => {
    const env = { ERRAND_PORT: '99999', ERRAND_LNAG: 'en', AGENT_ID: '-', AGENT_TOKEN: 'agt_x' };
    const { code, err } = await errand(['check'], { cwd: folder, env });
    expect(code).toBe(2);
    const lines = err.trimEnd().split('\n');
    expect(lines.every((line) => line.startsWith('errand: '))).toBe(true);
    for (const name of ['ERRAND_PORT', 'ERRAND_LNAG', 'AGENT_ID', 'AGENT_GATEWAY_URL'])
      expect(err).toContain(`errand: ${name}: `);
    expect(err).toContain('did you mean ERRAND_LANG?');
  });

  test('check says which settings are fine', async () => {
    expect(await errand(['check'], { cwd: folder })).toEqual({
      code: 0,
      out: 'gateway: ok\nagent: not configured\n',
      err: '',
    });
    const { out } = await errand(['check', '--json'], {
      cwd: folder,
      env: { AGENT_TOKEN: 'agt_x', AGENT_GATEWAY_URL: 'http://127.0.0.1' },
    });
    expect(JSON.parse(out)).toEqual({ gateway: 'ok', agent: 'ok' });
  });

  test('templates check names file, line and column and ends with 2', async () => {
    await writeFile(join(folder, 'bad.yaml'), 'id: bad\ncommand: [node]\ntimeot: 1m\n');
    const { code, err } = await errand(['templates', 'check', folder], { cwd: folder });
    expect(code).toBe(2);
    expect(err).toMatch(/^errand: .*bad\.yaml:3:1: timeot: is not a field; did you mean timeout\?\n$/);
    const fine = await errand(['templates', 'check'], { cwd: folder });
    expect(fine.code).toBe(0);
    expect(fine.out).toContain('hello');
  });

  test('help and version end with 0; no command at all is a usage error that shows the help', async () => {
    const help = await errand(['tasks', 'list', '--help'], { cwd: folder });
    expect(help.code).toBe(0);
    expect(help.out).toContain('Examples:');
    expect(help.out).toContain('--token');
    expect((await errand(['version'], { cwd: folder })).out).toMatch(/^\d+\.\d+\.\d+\n$/);
    const none = await errand([], { cwd: folder });
    expect(none.code).toBe(2);
    expect(none.out + none.err).toContain('Usage: errand');
  });
});

async function tasksOf(user: string): Promise<{ taskId: string }[]> {
  const session = `agent:main:webchat:direct:${user}`;
  return (await gateway.api<{ tasks: { taskId: string }[] }>('GET', `/api/tasks?session=${session}`)).body.tasks;
}
