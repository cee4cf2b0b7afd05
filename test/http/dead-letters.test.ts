import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

/** Fails in every room but 303. */
const CHECKIN = `id: checkin
args: { room: { pattern: "[0-9]{3}", required: true }, day: { type: date, default: today }, note: {} }
command: [sh, -c, 'test "$ERRAND_ARG_ROOM" = 303 || { echo "no such room" >&2; exit 1; }']
`;
const OTHER = 'id: other\ncommand: ["false"]\n';

interface Letter {
  taskId: string;
  state: string;
  deaths: number;
  text: { en: string; zh: string };
  diedAt: number;
  task: { args: Record<string, unknown>; generation: number };
}
interface Page {
  deadLetters: Letter[];
  next?: string;
}
interface Decision {
  replayed?: string[];
  discarded?: string[];
  skipped: { taskId: string; state: string }[];
  more: boolean;
  decidedAt: number;
}

let templates: string;
let gateway: TestGateway;
beforeAll(async () => {
  templates = await mkdtemp(join(tmpdir(), 'errand-dead-'));
  await mkdir(templates, { recursive: true });
  await writeFile(join(templates, 'checkin.yaml'), CHECKIN);
  await writeFile(join(templates, 'other.yaml'), OTHER);
  gateway = await TestGateway.start({ ERRAND_TEMPLATES_DIR: templates });
  await gateway.agent('agent-1', { AGENT_CONCURRENCY: '4' });
});
afterAll(async () => {
  await gateway?.stop();
  await rm(templates, { recursive: true, force: true });
});
/** Every test begins with nothing to decide on. */
beforeEach(async () => {
  await post('/api/dead-letters/discard', { all: true, reason: 'next test' });
});

const get = <T>(path: string) => gateway.api<T>('GET', path);
const post = <T>(path: string, body?: unknown) => gateway.api<T>('POST', path, body);
const letter = async (id: string) => (await get<Letter>(`/api/dead-letters/${id}`)).body;
const dead = async (query = '') => (await get<Page>(`/api/dead-letters?state=dead${query}`)).body;

async function deadOne(template = 'checkin', args: Record<string, unknown> = { room: '302' }): Promise<string> {
  const { taskId } = (await post<{ taskId: string }>('/api/tasks', { template, args })).body;
  await until(async () => (await get(`/api/dead-letters/${taskId}`)).status === 200, `${taskId} to die`);
  return taskId;
}

const reaches = (id: string, state: string, deaths = 1) =>
  until(async () => {
    const found = await letter(id);
    return found.state === state && found.deaths === deaths;
  }, `letter ${id} to be ${state}`);

describe('looking', () => {
  test('a letter says in plain words how its task ended, and shows the task', async () => {
    const id = await deadOne('checkin', { room: '302', day: '2026-03-01' });
    expect(await letter(id)).toMatchObject({
      taskId: id,
      state: 'dead',
      template: 'checkin',
      endedAs: 'failed',
      taskStatus: 'failed',
      deaths: 1,
      attempt: 1,
      text: { en: 'failed: exit code 1', zh: '失败：exit code 1' },
      error: 'exit code 1\nno such room',
      errorClass: 'permanent',
      task: { taskId: id, args: { room: '302', day: '2026-03-01' }, runs: [{ outcome: 'failed' }] },
    });
    expect((await get(`/api/tasks/${id}`)).body).toMatchObject({ status: 'failed' });
  });

  test('the list goes on page by page and narrows by state and template', async () => {
    const ids = [await deadOne(), await deadOne(), await deadOne('other', {})];
    const first = await dead('&limit=2');
    expect(first.deadLetters.map(({ taskId }) => taskId)).toEqual([ids[2], ids[1]]);
    const second = await dead(`&limit=2&cursor=${first.next}`);
    expect(second.deadLetters.map(({ taskId }) => taskId)).toEqual([ids[0]]);
    expect(second.next).toBeUndefined();
    expect((await dead('&template=other')).deadLetters).toHaveLength(1);
    expect((await dead('&session=nobody')).deadLetters).toEqual([]);
  });

  test.each([
    ['/api/dead-letters?state=gone', 400, 'state'],
    ['/api/dead-letters?limit=0', 400, 'limit'],
    ['/api/dead-letters?cursor=!!', 400, 'cursor'],
    ['/api/dead-letters?colour=red', 400, 'colour'],
    ['/api/dead-letters/zzzz', 404, undefined],
    ['/api/dead-letters/!!', 404, undefined],
  ])('%s is %i', async (path, status, field) => {
    const answer = await get<{ field?: string; detail: string }>(path);
    expect(answer.status).toBe(status);
    if (field) expect(`${answer.body.field} ${answer.body.detail}`).toContain(field);
  });

  test('strangers see and decide nothing', async () => {
    for (const [method, path] of [
      ['GET', ''],
      ['POST', '/replay'],
      ['POST', '/discard'],
    ] as const)
      expect((await fetch(`${gateway.url}/api/dead-letters${path}`, { method })).status).toBe(401);
  });
});

describe('replay', () => {
  test('runs the same task again; one that fails again is the same letter', async () => {
    const id = await deadOne();
    expect((await post('/api/dead-letters/replay', { ids: [id], reason: 'once more' })).body).toEqual({
      replayed: [id],
      skipped: [],
      more: false,
      decidedAt: expect.any(Number),
    });
    await reaches(id, 'dead', 2);
    expect((await dead()).deadLetters.map(({ taskId }) => taskId)).toEqual([id]);
    const { entries } = (await get<{ entries: unknown[] }>('/api/audit')).body;
    expect(entries[0]).toMatchObject({
      actor: 'api:admin',
      action: 'dead_letter.replayed',
      target: `task/${id}`,
      data: { reason: 'once more' },
    });
  });

  test('with other arguments: the others stay, the old ones are in the audit, and it recovers', async () => {
    const id = await deadOne('checkin', { room: '302', day: '2026-03-01', note: 'late' });
    const answer = await post<Decision>('/api/dead-letters/replay', { ids: [id], args: { room: '303', note: '' } });
    expect(answer).toMatchObject({ status: 200, body: { replayed: [id] } });
    await reaches(id, 'recovered');
    expect((await letter(id)).task).toMatchObject({ generation: 2, args: { room: '303', day: '2026-03-01' } });
    const { entries } = (await get<{ entries: unknown[] }>('/api/audit')).body;
    expect(entries[0]).toMatchObject({
      data: {
        args: { from: { room: '302', day: '2026-03-01', note: 'late' }, to: { room: '303', day: '2026-03-01' } },
      },
    });
  });

  test('wrong arguments are named, and nothing is replayed, not even the others', async () => {
    const ids = [await deadOne(), await deadOne()];
    const wrong = (args: unknown) => post<{ field: string; detail: string }>('/api/dead-letters/replay', { ids, args });
    for (const [args, field] of [
      [{ room: 'abc' }, 'args.room'],
      [{ room: '' }, 'args.room'],
      [{ colour: 'red' }, 'args.colour'],
      [{ room: ['1'] }, 'args.room'],
      [{ __proto__: null, constructor: 'x' }, 'args.constructor'],
    ] as const) {
      const { status, body } = await wrong(args);
      expect({ status, field: body.field }).toEqual({ status: 400, field });
    }
    expect((await wrong({ room: 'abc' })).body.detail).toContain(`task ${ids[0]}`);
    expect((await dead()).deadLetters).toHaveLength(2);
  });

  test('A19: clicked twice at the same time there is one new run; the second is told', async () => {
    const id = await deadOne();
    const click = () =>
      post<Decision & { detail?: string }>('/api/dead-letters/replay', { ids: [id], args: { room: '303' } });
    const answers = await Promise.all([click(), click()]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect(answers.find(({ status }) => status === 409)!.body.detail).toMatch(/is (replayed|recovered)/);
    await reaches(id, 'recovered');
    expect((await letter(id)).task.generation).toBe(2);
  });

  test('A19: replay all, clicked twice at the same time: every task once', async () => {
    const ids = [await deadOne(), await deadOne(), await deadOne()];
    const click = () =>
      post<Decision>('/api/dead-letters/replay', { all: true, template: 'checkin', args: { room: '303' } });
    const answers = await Promise.all([click(), click()]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(answers.flatMap(({ body }) => body.replayed).sort()).toEqual([...ids].sort());
    for (const id of ids) {
      await reaches(id, 'recovered');
      expect((await letter(id)).task.generation).toBe(2);
    }
  });

  test('all may be narrowed by template and time', async () => {
    const early = await deadOne();
    const other = await deadOne('other', {});
    const late = await deadOne();
    const before = (await letter(late)).diedAt;
    const { body } = await post<Decision>('/api/dead-letters/discard', {
      all: true,
      template: 'checkin',
      before,
      reason: 'old',
    });
    expect(body.discarded).toEqual([early]);
    expect((await dead()).deadLetters.map(({ taskId }) => taskId)).toEqual([late, other]);
  });

  test('a person’s retry decides on the letter too', async () => {
    const id = await deadOne();
    await post(`/api/tasks/${id}/retry`);
    expect((await letter(id)).state).toMatch(/replayed|dead/);
    await reaches(id, 'dead', 2);
  });
});

describe('discard', () => {
  test('needs a reason, and keeps it', async () => {
    const id = await deadOne();
    expect(await post('/api/dead-letters/discard', { ids: [id] })).toMatchObject({
      status: 400,
      body: { field: 'reason' },
    });
    expect(await post('/api/dead-letters/discard', { ids: [id], reason: '  ' })).toMatchObject({ status: 400 });
    const { body } = await post<Decision>('/api/dead-letters/discard', { ids: [id], reason: 'the guest has left' });
    expect(body).toMatchObject({ discarded: [id], skipped: [] });
    expect(await letter(id)).toMatchObject({ state: 'discarded', note: 'the guest has left', decidedBy: 'api:admin' });
  });

  test('of several says which were decided before; of none but such it is a conflict', async () => {
    const [first, second] = [await deadOne(), await deadOne()];
    await post('/api/dead-letters/discard', { ids: [first], reason: 'x' });
    const both = { ids: [first, second], reason: 'x' };
    expect((await post<Decision>('/api/dead-letters/discard', both)).body).toMatchObject({
      discarded: [second],
      skipped: [{ taskId: first, state: 'discarded' }],
    });
    expect(await post('/api/dead-letters/discard', both)).toMatchObject({ status: 409, body: { code: 'conflict' } });
  });
});

describe('a selection that is none', () => {
  test.each([
    [{}, 'ids'],
    [{ ids: [], all: true }, 'ids'],
    [{ ids: ['zzzz'], all: true }, 'ids'],
    [{ ids: [] }, 'ids'],
    [{ all: false }, 'all'],
    [{ ids: ['zzzz'], template: 'x' }, 'template'],
    [{ ids: ['zzzz'], before: 5 }, 'before'],
    [{ all: true, before: 'yesterday' }, 'before'],
    [{ all: true, args: { room: '1' } }, 'args'],
    [{ all: true, colour: 'red' }, 'colour'],
  ])('%j is refused, and the place is named', async (body, field) => {
    const answer = await post<{ field: string; detail: string }>('/api/dead-letters/replay', body);
    expect(answer.status).toBe(400);
    expect(`${answer.body.field} ${answer.body.detail}`).toContain(field);
  });

  test('one id that is no dead letter refuses the call: nothing is decided', async () => {
    const id = await deadOne();
    for (const verb of ['replay', 'discard']) {
      const answer = await post(`/api/dead-letters/${verb}`, {
        ids: [id, 'zzzz'],
        ...(verb === 'discard' ? { reason: 'x' } : {}),
      });
      expect(answer).toMatchObject({
        status: 404,
        body: { code: 'not_found', detail: expect.stringContaining('zzzz') },
      });
    }
    expect((await dead()).deadLetters.map(({ taskId }) => taskId)).toEqual([id]);
  });

  test('all of nothing is nothing', async () => {
    expect(await post('/api/dead-letters/replay', { all: true })).toMatchObject({
      status: 200,
      body: { replayed: [], skipped: [], more: false },
    });
  });
});
