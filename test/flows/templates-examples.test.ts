import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ShellSpec } from '../../src/agents/protocol.ts';
import { checkArgs } from '../../src/flows/args.ts';
import { matchTrigger, parseRun } from '../../src/flows/router.ts';
import { specFor } from '../../src/flows/spec.ts';
import { loadTemplates, packagedTemplatesDir, problemText, type TemplateRegistry } from '../../src/flows/templates.ts';

const run = promisify(execFile);
const context = { now: Date.UTC(2026, 2, 1, 12), timeZone: 'UTC' };
let templates: TemplateRegistry;
let folder: string;

beforeAll(async () => {
  templates = await loadTemplates(packagedTemplatesDir());
  folder = await mkdtemp(join(tmpdir(), 'errand-examples-'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** From the chat message to what the program prints and reports, in an empty folder, as an agent does it. */
async function ask(message: string) {
  const routed = parseRun(templates.list(), message) ?? matchTrigger(templates.list(), message);
  if (!routed || 'problem' in routed) throw new Error(`not understood: ${message}`);
  const { argv } = specFor(routed.template, checkArgs(routed.template, routed.args, context)) as ShellSpec;
  const progress = join(folder, `progress-${Math.random()}`);
  const [program, ...rest] = argv as [string, ...string[]];
  const { stdout } = await run(program, rest, {
    cwd: folder,
    env: { PATH: process.env.PATH, ERRAND_PROGRESS: progress },
  });
  return { stdout, progress: await readFile(progress, 'utf8').catch(() => '') };
}

describe('the packaged examples', () => {
  test('all load without a problem', () => {
    expect(templates.problems().map(problemText)).toEqual([]);
    expect(templates.list().map(({ id }) => id)).toEqual(['hello', 'hotel-report', 'sleep', 'system-info']);
  });

  test.each([
    ['/run hello name=Ada', 'Hello, Ada!\n'],
    ['/run hello', 'Hello, world!\n'],
    ['/run hello Ada Lovelace', 'Hello, Ada Lovelace!\n'],
    ['/hello', 'Hello, world!\n'],
    ['打招呼 张三', 'Hello, 张三!\n'],
    ['/run hello name="--version"', 'Hello, --version!\n'],
    ["/run hello ' && ls && echo '", 'Hello,  && ls && echo !\n'],
  ])('hello greets: %s', async (message, said) => {
    const { stdout, progress } = await ask(message);
    expect(stdout).toBe(said);
    expect(progress).toMatch(/^100 /m);
  });

  test('hotel-report says what it would report, with the day of its creation', async () => {
    const { stdout, progress } = await ask('上报 302 张 三');
    expect(stdout).toBe('Would report: room 302, guest 张 三, day 2026-03-01.\n');
    expect(progress.split('\n')).toHaveLength(4);
  });

  test('system-info tells about the machine', async () => {
    expect((await ask('系统信息')).stdout).toContain(`Node: ${process.version}`);
  });

  test('sleep sleeps and reports how much is left', async () => {
    const { stdout, progress } = await ask('/run sleep 1');
    expect(stdout).toBe('Slept 1 s.\n');
    expect(progress).toBe('0 1 s left\n100 0 s left\n');
  });
});
