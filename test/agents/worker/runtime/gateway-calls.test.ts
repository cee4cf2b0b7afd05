import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ARTIFACT_LIMITS, type ArtifactRequest } from '../../../../src/agents/artifact-protocol.ts';
import type { Assignment } from '../../../../src/agents/protocol.ts';
import { digestOf, type RunContent, shellSpecOf } from '../../../../src/agents/run-content.ts';
import { GatewayClient } from '../../../../src/agents/worker/client.ts';
import { maskingOf } from '../../../../src/agents/worker/masking.ts';
import { pinsOf, refusalOf } from '../../../../src/agents/worker/policy.ts';
import { ArtifactSender, findArtifacts } from '../../../../src/agents/worker/runtime/artifacts.ts';
import { PinnedContent } from '../../../../src/agents/worker/runtime/pinned.ts';
import type { Job, RunEnd } from '../../../../src/agents/worker/runtime/runtime.ts';
import { silentLog } from '../../../../src/log.ts';
import { shellTask } from '../../../support/fake-gateway.ts';
import { until } from '../../../support/until.ts';

let dir: string;
let client: GatewayClient;
let calls: { path: string; body: Record<string, unknown> }[] = [];
let answer: (body: Record<string, unknown>, response: ServerResponse) => object | undefined;
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
    calls.push({ path: request.url!, body });
    const said = answer(body, response);
    if (said) response.end(JSON.stringify(said));
  });
});
beforeEach(async () => {
  calls = [];
  dir = await mkdtemp(join(tmpdir(), 'errand-calls-'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  client = new GatewayClient({ gatewayUrl: `http://127.0.0.1:${port}`, token: 'agent-token-1' });
});
afterEach(async () => {
  await client.close();
  const closed = new Promise((resolve) => server.close(resolve));
  server.closeAllConnections();
  await closed;
  await rm(dir, { recursive: true, force: true });
});

function jobOf(assignment: Assignment, secrets: Record<string, string> = {}) {
  const [signal, hurry] = [new AbortController(), new AbortController()];
  const values = new Map(Object.entries(secrets));
  const job: Job = {
    ...{ assignment, secrets: values, masking: maskingOf(values.values()) },
    ...{ signal: signal.signal, hurry: hurry.signal, emit: () => undefined, spawned: () => undefined },
  };
  return { job, hurry };
}
const CALLER = '"agentId":"a1","instanceId":"i1"';

describe('the files that a program left', () => {
  const folder = () => join(dir, 'run1', 'artifacts');
  beforeEach(() => mkdir(folder(), { recursive: true }));

  it('are the plain ones, in folders too; links, pipes and names that cannot be used are left out and told', async () => {
    await mkdir(join(folder(), 'sub'));
    await writeFile(join(folder(), 'sub', 'b.txt'), 'b');
    await writeFile(join(folder(), 'a.txt'), 'a');
    await writeFile(join(folder(), 'line\nend'), 'x');
    await symlink('/etc/passwd', join(folder(), 'passwd'));
    await symlink('/etc', join(folder(), 'etc'));
    const { files, complaints } = await findArtifacts(folder());
    expect(files.map(({ name }) => name)).toEqual(['a.txt', 'sub/b.txt']);
    expect(complaints).toEqual([
      'ERRAND_ARTIFACTS: etc was left out: it is a link',
      'a file in ERRAND_ARTIFACTS was left out: its name cannot be used',
      'ERRAND_ARTIFACTS: passwd was left out: it is a link',
    ]);
  });

  it('are none where the folder, or that of the run, was replaced by a link', async () => {
    const elsewhere = join(dir, 'elsewhere');
    await mkdir(join(elsewhere, 'artifacts'), { recursive: true });
    await writeFile(join(elsewhere, 'artifacts', 'secret'), 's');
    await rm(folder(), { recursive: true });
    await symlink(join(elsewhere, 'artifacts'), folder());
    expect((await findArtifacts(folder())).files).toEqual([]);
    await rename(join(dir, 'run1'), join(dir, 'moved'));
    await symlink(elsewhere, join(dir, 'run1'));
    expect((await findArtifacts(folder())).files).toEqual([]);
  });

  it('beyond the limit of their number are counted', async () => {
    for (let n = 0; n < ARTIFACT_LIMITS.files + 3; n += 1) await writeFile(join(folder(), `f${n}`), '');
    const { files, complaints } = await findArtifacts(folder());
    expect(files).toHaveLength(ARTIFACT_LIMITS.files);
    expect(complaints).toEqual([`3 more files in ERRAND_ARTIFACTS were left out: at most ${ARTIFACT_LIMITS.files}`]);
  });
});

describe('sending files', () => {
  const backoff = { baseMs: 1, factor: 1, capMs: 1, jitter: 0 };
  const sender = (limitMs = 60_000) => new ArtifactSender({ client, caller: CALLER, backoff, limitMs });
  /** A gateway that keeps what it is sent. */
  let stored: Buffer;
  const keep = (body: Record<string, unknown>) => {
    const { offset, data, bytes } = body as unknown as ArtifactRequest;
    if (offset !== stored.length) return { answer: 'more', offset: stored.length };
    stored = Buffer.concat([stored, Buffer.from(data, 'base64')]);
    return stored.length < bytes ? { answer: 'more', offset: stored.length } : { answer: 'stored' };
  };
  beforeEach(() => {
    stored = Buffer.alloc(0);
  });

  it('goes on where it stopped, after errors and lost answers', async () => {
    const whole = Buffer.alloc(1_300_000, 'ab');
    const path = join(dir, 'f');
    await writeFile(path, whole);
    let turn = 0;
    answer = (body, response) => {
      turn += 1;
      if (turn === 1) return void response.writeHead(503).end('{}');
      const said = keep(body);
      // Carried out, but the answer is lost.
      if (turn === 2) return void response.destroy();
      return said;
    };
    const { job } = jobOf(shellTask(['x']));
    expect(await sender().send(job, [{ path, name: 'f' }])).toEqual([]);
    expect(stored.equals(whole)).toBe(true);
    expect(calls[0]!.body).toMatchObject({ agentId: 'a1', name: 'f', bytes: 1_300_000 });
    expect(calls[0]!.body.sha256).toBe(createHash('sha256').update(whole).digest('hex'));
  });

  it('gives up when its time is over, or when the agent has no time left', async () => {
    const path = join(dir, 'f');
    await writeFile(path, 'x');
    answer = (_body, response) => void response.writeHead(503).end('{}');
    const { job } = jobOf(shellTask(['x']));
    const late = ['ERRAND_ARTIFACTS: f was left out: it could not be brought to the gateway in time'];
    expect(await sender(50).send(job, [{ path, name: 'f' }])).toEqual(late);
    const second = jobOf(shellTask(['x']));
    calls = [];
    const sending = sender().send(second.job, [{ path, name: 'f' }]);
    await until(() => calls.length > 1);
    second.hurry.abort();
    expect(await sending).toEqual(late);
  });

  it('tells what the gateway refuses, and goes on with the next; names are masked', async () => {
    for (const name of ['one', 'two']) await writeFile(join(dir, name), name);
    answer = (body) => (String(body.name).startsWith('one') ? { answer: 'refused', reason: 'too many' } : keep(body));
    const { job } = jobOf(shellTask(['x']), { KEY: 'hunter2-SECRET!' });
    const files = ['one', 'two'].map((name) => ({ path: join(dir, name), name: `${name}-hunter2-SECRET!` }));
    expect(await sender().send(job, files)).toEqual(['ERRAND_ARTIFACTS: one-[secret] was left out: too many']);
    expect(stored.toString()).toBe('two');
    expect(JSON.stringify(calls)).not.toContain('hunter2');
  });

  it('does not ask for ever a gateway that never gets on', async () => {
    await writeFile(join(dir, 'f'), 'x');
    answer = () => ({ answer: 'more', offset: 0 });
    const { job } = jobOf(shellTask(['x']));
    expect(await sender().send(job, [{ path: join(dir, 'f'), name: 'f' }])).toEqual([
      'ERRAND_ARTIFACTS: f was left out: the gateway does not take it in',
    ]);
  });
});

describe('a pinned digest', () => {
  const content: RunContent = {
    ...{ id: 'deploy', runtime: 'shell', command: ['deploy', '--to={{place}}'], request: null, env: {}, secrets: [] },
    ...{ graceMs: 1_000, exitClasses: {}, limits: { outputBytes: 1_024 }, args: ['place'], noDash: [] },
  };
  const pin = digestOf(content);
  const args = { place: 'here' };
  const assignment = (more: Parameters<typeof shellTask>[1] = {}) =>
    shellTask([], {
      ...{ template: 'deploy', args, limits: { ...content.limits }, spec: shellSpecOf(content, args) },
      ...more,
    });
  let ran: Assignment[];
  const run = (
    task: Assignment,
    allow = [`deploy@${pin}`],
    held = new PinnedContent({ allow, client, caller: CALLER, log: silentLog }),
  ) =>
    held
      .around({
        run: async (job) => {
          ran.push(job.assignment);
          return { type: 'succeeded', summary: '', exitCode: 0 };
        },
      })
      .run(jobOf(task).job);
  beforeEach(() => {
    ran = [];
    answer = () => ({ content });
  });

  it('lets the content run that has it, and asks for it once', async () => {
    const held = new PinnedContent({ allow: [`deploy@${pin}`], client, caller: CALLER, log: silentLog });
    for (const _ of [1, 2]) expect(await run(assignment(), [], held)).toMatchObject({ type: 'succeeded' });
    expect(ran.map(({ spec }) => spec)).toEqual(Array(2).fill(shellSpecOf(content, args)));
    expect(calls).toHaveLength(1);
  });

  it.each<[string, Parameters<typeof shellTask>[1]]>([
    ['another command', { spec: { argv: ['rm', '-rf', '/'], env: {}, graceMs: 1_000, exitClasses: {} } }],
    ['another variable', { spec: { ...shellSpecOf(content, args), env: { LD_PRELOAD: '/tmp/x.so' } } }],
    ['one more secret', { secrets: ['PSB_TOKEN'] }],
    ['another limit', { limits: { outputBytes: 999_999 } }],
    ['another runtime', { runtime: 'http' }],
    ['an argument that is none', { args: { place: 'here', other: 'x' } }],
  ])('against a gateway that asks for %s runs nothing', async (_what, more) => {
    const end = (await run(assignment(more))) as Extract<RunEnd, { type: 'failed' }>;
    expect(end).toMatchObject({ type: 'failed', errorClass: 'permanent' });
    expect(end.error).toContain('something else than the pinned template deploy says');
    expect(ran).toEqual([]);
  });

  it('against a gateway that shows other content, names the digest that the content has', async () => {
    const other = { ...content, command: ['deploy', '--hard'] };
    answer = () => ({ content: other });
    const end = (await run(assignment())) as Extract<RunEnd, { type: 'failed' }>;
    expect(end.error).toContain(`the template deploy is ${digestOf(other)} by now`);
    answer = () => ({ content: { ...content, id: 'other' } });
    expect(await run(assignment())).toMatchObject({ type: 'failed' });
    expect(ran).toEqual([]);
  });

  it('cannot be checked while the gateway is away: that passes', async () => {
    answer = (_body, response) => void response.writeHead(503).end('{}');
    expect(await run(assignment())).toMatchObject({ type: 'failed', errorClass: 'transient' });
  });

  it('binds only the templates that it is written to, and no longer where an entry without one permits the template', async () => {
    expect(pinsOf([`deploy@${pin}`, 'dep*@sha256:b', 'x'], 'deploy')).toEqual([pin, 'sha256:b']);
    expect(pinsOf([`deploy@${pin}`, 'dep*'], 'deploy')).toBeUndefined();
    expect(pinsOf([`deploy@${pin}`], 'other')).toEqual([]);
    const policy = { allow: [`deploy@${pin}`], runtimes: ['shell'], secrets: new Map<string, string>() };
    expect(refusalOf(policy, assignment())).toBeUndefined();
    expect(refusalOf(policy, assignment({ template: 'other' }))).toContain('AGENT_ALLOW');
  });
});
