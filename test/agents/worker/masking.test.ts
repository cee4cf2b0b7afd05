import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { maskingOf } from '../../../src/agents/worker/masking.ts';
import { makeRunFolder } from '../../../src/agents/worker/runtime/run-folder.ts';
import { readAgentSettings } from '../../../src/config/agent.ts';
import type { SettingsError } from '../../../src/config/values.ts';
import { shellTask } from '../../support/fake-gateway.ts';
import { until } from '../../support/until.ts';
import { type Rig, rig } from './rig.ts';

const SECRET = 'hunter2-SECRET!';
const ODD = 'p@ss word/1+2=3';

describe('A36: a secret', () => {
  let made: Rig;
  beforeEach(async () => {
    made = await rig();
  });
  afterEach(() => made.close());

  it('never leaves the agent, whatever a program does with it on its way out', async () => {
    const script = `
      const fs = require('fs');
      const s = [process.env.A, process.env.B];
      const b64 = (t) => Buffer.from(t).toString('base64');
      const forms = s.flatMap((v) => [v, b64(v), b64(v + '\\n'), b64('user:' + v), Buffer.from(v).toString('hex'),
        encodeURIComponent(v), encodeURIComponent(v).replace(/%../g, (e) => e.toLowerCase()), encodeURIComponent(v).replace(/%20/g, '+'), JSON.stringify({ v: v + '\\n' })]);
      for (const form of forms) { process.stdout.write(form.slice(0, 4)); process.stdout.write(form.slice(4) + ' ordinary text\\n'); }
      console.error('it broke with ' + s.join(' and '));
      console.error(Object.entries(process.env).map((e) => e.join('=')).join('\\n'));
      fs.writeFileSync(process.env.ERRAND_OUTPUT, 'token=' + s[0] + '\\n');
      fs.writeFileSync(process.env.ERRAND_SUMMARY, 'used ' + s[1]);
      fs.writeFileSync(process.env.ERRAND_PROGRESS, '50 with ' + s[0] + '\\n');
      fs.writeFileSync(process.env.ERRAND_CHECKPOINT_OUT, JSON.stringify({ at: [s[0]] }));
      process.exit(1);`;
    await made.start({ secrets: new Map(Object.entries({ A: SECRET, B: ODD })) });
    const task = shellTask(['node', '-e', script.replaceAll('\\\\n', '\\n')], { secrets: ['A', 'B'] });
    made.gateway.grant(task);
    await until(() => made.gateway.endOf(task.runId) !== undefined);
    const told = JSON.stringify(made.gateway.reportsOf(task.runId));
    const decoded = [
      told,
      decodeURIComponent(told.replaceAll(/%(?![0-9a-fA-F]{2})/g, '%25').replaceAll('+', ' ')),
    ].join();
    for (const secret of [SECRET, ODD]) {
      expect(decoded).not.toContain(secret);
      for (const form of ['base64', 'hex'] as const) {
        expect(told).not.toContain(Buffer.from(secret).toString(form).slice(1, -4));
      }
    }
    const log = made.gateway.logOf(task.runId);
    expect(log.match(/\[secret\]/g)!.length).toBeGreaterThanOrEqual(18);
    expect(log.match(/ ordinary text/g)).toHaveLength(18);
    expect(made.gateway.endOf(task.runId)).toMatchObject({ summary: 'used [secret]' });
  });
});

describe('A36: a secret that is too short to be told from ordinary text', () => {
  let dir: string;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'errand-masking-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  it.each(['a', '{', '1234', '12345'])('is refused when the agent starts: %j', async (value) => {
    const path = join(dir, 'secrets.env');
    await writeFile(path, `GOOD=123456\nSHORT=${value}\n`, { mode: 0o600 });
    const env = { AGENT_GATEWAY_URL: 'http://127.0.0.1:1', AGENT_TOKEN: 'agent-token-1', AGENT_SECRETS_FILE: path };
    let problems: SettingsError['problems'] = [];
    try {
      readAgentSettings(env);
    } catch (error) {
      problems = (error as SettingsError).problems;
    }
    expect(problems).toEqual([
      { name: 'AGENT_SECRETS_FILE', message: 'line 2: SHORT is shorter than 6 characters and cannot be masked' },
    ]);
  });

  it('is six characters at least, and those change nothing around them', () => {
    const masking = maskingOf(['123456']);
    expect(masking.text('a1b2 12345 123456 1234567')).toBe('a1b2 12345 [secret] [secret]7');
  });

  it.each([
    '..',
    '../../etc',
    'a/../../b',
    '%2e%2e%2f',
    '..\\\\',
    '/etc',
    '~/.ssh',
    'a\0b',
    '',
    '.',
    'a\u2215b',
    'x y',
  ])('A37: run id %j is no folder name: nothing is made', async (runId) => {
    const work = join(dir, 'work');
    await expect(makeRunFolder(work, shellTask(['true'], { runId }))).rejects.toThrow(RangeError);
    expect(existsSync(work)).toBe(false);
    expect(await readdir(dir)).toEqual([]);
  });
});
