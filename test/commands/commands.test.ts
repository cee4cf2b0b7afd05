import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseCommand } from '../../src/commands/command.ts';
import { COMMANDS, suggestCommand } from '../../src/commands/registry.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { ERRANDS } from '../support/errands.ts';
import { Rooms } from '../support/rooms.ts';

let rooms: Rooms;

beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

const reply = (userId: string, text: string) => rooms.reply(userId, text);

const choose = (lang: 'en' | 'zh', userId?: string) => rooms.choose(lang, userId);

describe('every command', () => {
  // Without an errand, with a live one, with a finished one; `<id>` is the errand's id.
  const cases: [string, RegExp, RegExp][] = [
    [
      '/help',
      /^Commands:[\s\S]*\/cancel[\s\S]*Errands:[\s\S]*greet \{name\}/,
      /^命令：[\s\S]*\/cancel[\s\S]*任务：[\s\S]*greet/,
    ],
    ['/start', /^Hello Name 7!/, /^您好，Name 7！/],
    [
      '/whoami',
      /Role: operator\nConversation: agent:main:telegram:direct:7/,
      /角色：操作员\n会话：agent:main:telegram:direct:7/,
    ],
    ['/run', /Which errand\? There is: hello/, /要运行哪一个？可以运行：hello/],
    ['/run nothere', /There is no errand nothere/, /没有 nothere 这个任务/],
    [
      '/status',
      /^⏳ \w+ Hello \(Ada\) — No machine serves pool default$/,
      /^⏳ \w+ 问候 \(Ada\) — 没有机器为机器池 default 服务$/,
    ],
    ['/tasks', /^⏳ \w+ Hello \(Ada\) — waits/, /^⏳ \w+ 问候 \(Ada\) — 等待/],
    [
      '/task <id>',
      /^Hello \(Ada\) · \w+\nState: No machine[\s\S]*\/cancel/,
      /^问候 \(Ada\) · \w+\n状态：没有机器[\s\S]*\/cancel/,
    ],
    ['/why <id>', /^Hello · \w+\nNo machine serves pool default\./, /^问候 · \w+\n没有机器为机器池 default 服务。/],
    ['/logs <id>', /printed nothing/, /没有输出/],
    ['/retry <id>', /nothing to retry: Hello \(Ada\) is queued/, /无需重试：问候 \(Ada\) 排队中/],
    ['/notify done_only <id>', /^You will hear how it ends: Hello \(Ada\)\.$/, /^结束时会通知您：问候 \(Ada\)。$/],
    ['/notify loud <id>', /^Which one\? \/notify </, /^请注明通知方式：\/notify </],
    ['/notify silent', /Which errand\? \/notify </, /请注明任务编号/],
    ['/task', /Which errand\? \/task <id>/, /请注明任务编号/],
    ['/logs', /Which errand\? \/logs <id>/, /请注明任务编号/],
    ['/retry', /Which errand\? \/retry <id>/, /请注明任务编号/],
    ['/task zzzz', /no errand zzzz in this conversation/, /没有编号为 zzzz 的任务/],
    ['/dead', /^No errand has failed for good\.$/, /^没有最终失败的任务。$/],
    ['/pair', /not allowed to use \/pair/, /没有权限使用 \/pair/],
    ['/yes', /no open question/, /没有等待您回答的问题/],
    ['/no', /no open question/, /没有等待您回答的问题/],
    ['/access', /not allowed to use \/access/, /没有权限使用 \/access/],
    ['/staus', /I do not know \/staus\. Did you mean \/status\?/, /没有 \/staus 这个命令。您是不是要找 \/status/],
    ['/cancel <id>', /^Cancelled before it started: Hello \(Ada\)\.$/, /^已在开始前取消：问候 \(Ada\)。$/],
  ];

  it.each(['en', 'zh'] as const)('answers in %s', async (lang) => {
    await choose(lang);
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    for (const [text, en, zh] of cases)
      expect(await reply('7', text.replace('<id>', id)), text).toMatch({ en, zh }[lang]);
    const tried = new Set(cases.map(([text]) => parseCommand(text)!.name));
    for (const { name } of COMMANDS) expect(tried, 'a case for every command').toContain(name);
  });

  it('has a Chinese name that does the same', async () => {
    for (const { aliases } of COMMANDS) expect(aliases.some((alias) => /\p{Script=Han}/u.test(alias))).toBe(true);
    expect(await reply('7', '/状态')).toContain('当前没有运行');
    expect(await reply('7', '／帮助')).toContain('命令：');
  });

  it('has a name of its own', () => {
    const names = COMMANDS.flatMap(({ name, aliases }) => [name, ...aliases]);
    expect(new Set(names).size).toBe(names.length);
  });

  it('is found whatever its case, width and bot name', () => {
    expect(parseCommand('/Cancel@errand_bot  k7q2 ')).toEqual({ name: 'cancel', rest: 'k7q2' });
    expect(parseCommand('／ＲＵＮ a\nb')).toEqual({ name: 'run', rest: 'a\nb' });
    expect(parseCommand('1/2')).toBeUndefined();
    expect(parseCommand('/')).toBeUndefined();
    expect(suggestCommand('xyzzyx')).toBeUndefined();
  });

  it('shows a viewer what a viewer may do', async () => {
    await rooms.pair('5', 'viewer');
    const help = await reply('5', '/help');
    expect(help).toContain('/status');
    expect(help).not.toMatch(/\/cancel|\/run|\/pair|Errands/);
    expect(await reply('5', '/cancel')).toBe(
      'You are not allowed to use /cancel (you are telegram:5); an administrator can change that.',
    );
    expect(await reply('5', 'greet Ada')).toContain('not allowed to run');
  });

  it('lists errands with ids that can be copied and names that stand out', async () => {
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    for (const command of ['/status', '/tasks', `/task ${id}`]) {
      const { text, marks } = await rooms.lookOfReply('7', command);
      const looks = marks.map(({ kind, start, length }) => [kind, text.slice(start, start + length)]);
      expect(looks, command).toContainEqual(['code', id]);
      expect(looks, command).toContainEqual(['bold', 'Hello (Ada)']);
    }
  });

  it('explains itself', async () => {
    expect(await reply('7', '/help /retry')).toBe('/retry <id> — run a failed or waiting errand again');
  });
});

describe('ids', () => {
  it.each(['/task', '/logs', '/cancel', '/retry'])('%s does not reach into another conversation', async (command) => {
    await rooms.pair('8');
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    const before = await rooms.tasks();
    const foreign = await reply('8', `${command} ${id}`);
    expect(foreign).toBe((await reply('8', `${command} zzzz`)).replaceAll('zzzz', id));
    expect(await rooms.tasks()).toEqual(before);
  });

  it('reach everywhere for who administers', async () => {
    await rooms.pair('1', 'admin');
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    expect(await reply('1', `/task ${id.toUpperCase()}`)).toContain('Hello (Ada)');
    await rooms.say('1', `/cancel ${id}`);
    expect((await rooms.tasks())[0]!.status).toBe('cancelled');
  });

  it('of runs and of what is no id are no errands', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    for (const word of [rooms.store.ids.encode(grant.runId), "'; drop table task", '-1', '%']) {
      expect(await reply('7', `/task ${word}`)).toContain('no errand');
    }
  });
});

describe('/cancel', () => {
  it('of a queued errand answers, and its final message appears once', async () => {
    await rooms.say('7', 'greet Ada');
    const rows = await rooms.say('7', '/cancel');
    expect(rows.map((row) => row.kind).sort()).toEqual(['final', 'reply']);
    expect(await reply('7', '/cancel')).toBe('Nothing is running or waiting here.');
    expect((await rooms.sent()).filter((row) => row.kind === 'final')).toHaveLength(1);
    expect((await rooms.tasks())[0]!.status).toBe('cancelled');
  });

  it('of a running errand asks its agent to stop, and says so', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' });
    expect(await reply('7', '/cancel')).toContain('I told it to stop');
    expect(await reply('7', '/status')).toContain('being cancelled');
    await rooms.report(grant, { type: 'cancelled' });
    expect((await rooms.sent()).at(-1)!.text).toMatch(/^🚫 Hello was cancelled/);
  });

  it('too late is told as too late', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), { type: 'succeeded', summary: 'x' });
    expect(await reply('7', `/cancel ${await rooms.lastTaskId()}`)).toContain('already over (done)');
  });

  it('lists the choices when there are several, and cancels none', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.say('7', 'greet Bob');
    expect(await reply('7', '/cancel')).toMatch(/Which one\?[\s\S]*Hello \(Ada\)[\s\S]*Hello \(Bob\)/);
    expect((await rooms.tasks()).map((task) => task.status)).toEqual(['queued', 'queued']);
  });
});

describe('looking', () => {
  const log = (text: string, offset: number): RunNews => ({ type: 'log', stream: 'stdout', text, offset });

  it('/status tells how far a running errand is and when a delayed one starts', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' }, { type: 'progress', percent: 42, message: 'half\nway' });
    rooms.clock.advance(5_000);
    expect(await reply('7', '/status')).toMatch(/^▶️ \w+ Hello \(Ada\) — running 5 s, 42 %, half way$/);
    await rooms.report(grant, { type: 'failed', errorClass: 'rate_limited', error: 'slow down', retryAfterMs: 90_000 });
    expect(await reply('7', '/status')).toContain('starts in 1 min 30 s (the other side asked to come back later)');
  });

  it('/task tells runs, times, error and what to do', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' });
    rooms.clock.advance(3_000);
    await rooms.report(grant, { type: 'failed', errorClass: 'permanent', error: 'no such room\n  at x', exitCode: 2 });
    const id = await rooms.lastTaskId();
    expect(await reply('7', `/task ${id}`)).toBe(
      `Hello (Ada) · ${id}\nState: failed after 3 s\nAsked: 3 s ago\nTry 1 on a1: failed, 3 s\nError: no such room\n/retry ${id} · /logs ${id}`,
    );
  });

  it('/logs shows the last lines in order, bounded', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    const id = await rooms.lastTaskId();
    await rooms.report(grant, { type: 'started' }, log('one\n', 0), log('two\n', 4));
    expect(await reply('7', `/logs ${id}`)).toBe('one\ntwo');
    const lines = Array.from({ length: 500 }, (_, index) => `line ${index}\n`);
    await rooms.report(grant, ...lines.map((line, index) => log(line, index)));
    const shown = (await reply('7', `/logs ${id}`)).split('\n');
    expect(shown[0]).toContain('the end of what');
    expect([shown.length, shown[1], shown.at(-1)]).toEqual([41, 'line 460', 'line 499']);
    await rooms.report(grant, log('😀'.repeat(20_000), 9));
    const long = await reply('7', `/logs ${id}`);
    expect(long.length).toBeLessThan(3_700);
    expect(long.isWellFormed()).toBe(true);
    expect(long).not.toContain('\uFFFD');
  });

  it('/tasks shows the ten newest, of this conversation only', async () => {
    await rooms.pair('8');
    await rooms.say('8', 'greet Eve');
    for (let index = 0; index < 12; index += 1) await rooms.say('7', `greet n${index}`);
    const lines = (await reply('7', '/tasks')).split('\n');
    expect(lines).toHaveLength(10);
    expect(lines[0]).toContain('(n11)');
    expect(lines.join()).not.toContain('Eve');
  });
});

describe('/retry', () => {
  it('runs a failed errand once more, and its end is told again', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), { type: 'failed', errorClass: 'permanent', error: 'no' });
    expect(await reply('7', `/retry ${await rooms.lastTaskId()}`)).toBe('Once more: Hello (Ada).');
    await rooms.report(await rooms.claim(), { type: 'succeeded', summary: 'yes' });
    expect((await rooms.sent()).filter((row) => row.kind === 'final')).toHaveLength(2);
  });
});

describe('/pair', () => {
  beforeEach(() => rooms.pair('1', 'admin'));

  it('lists who waits, without their codes', async () => {
    expect(await reply('1', '/pair')).toBe('Nobody waits to be let in.');
    const [asked] = await rooms.say('9', 'hi');
    const code = /approve (\w{8})/.exec(asked!.text)![1]!;
    const list = await reply('1', '/pair');
    expect(list).toContain('Name 9 (telegram:9)');
    expect(list).not.toContain(code);
  });

  it('gives the role that is named, and refuses a wrong form without using the code up', async () => {
    const [asked] = await rooms.say('9', 'hi');
    const code = /approve (\w{8})/.exec(asked!.text)![1]!;
    expect(await reply('1', `/pair approve ${code} king`)).toContain('/pair [approve <code>');
    await rooms.say('1', `/pair approve ${code} viewer`);
    expect(await reply('9', '/whoami')).toContain('Role: viewer');
    expect(await reply('1', `/pair approve ${code}`)).toContain('No one waits with this code');
  });

  it('refuses to guess on after five wrong codes', async () => {
    for (let index = 0; index < 5; index += 1)
      expect(await reply('1', '/pair approve WRONGXYZ')).toContain('No one waits');
    const [asked] = await rooms.say('9', 'hi');
    const code = /approve (\w{8})/.exec(asked!.text)![1]!;
    expect(await reply('1', `/pair approve ${code}`)).toContain('Too many wrong codes');
  });
});
