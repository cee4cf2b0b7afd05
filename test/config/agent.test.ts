import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { idFromHostname, readAgentSettings } from '../../src/config/agent.ts';
import { SettingsError } from '../../src/config/values.ts';

const dir = mkdtempSync(join(tmpdir(), 'errand-settings-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const BASE = { AGENT_GATEWAY_URL: 'http://127.0.0.1:8787', AGENT_TOKEN: 'tok-123456' };

function problemsOf(env: Record<string, string>): string[] {
  try {
    readAgentSettings(env);
    return [];
  } catch (error) {
    return (error as SettingsError).problems.map((problem) => `${problem.name}: ${problem.message}`);
  }
}

let files = 0;
function secretsFile(text: string, mode = 0o600): string {
  files += 1;
  const path = join(dir, `secrets-${files}`);
  writeFileSync(path, text, { mode });
  return path;
}

describe('agent settings', () => {
  it('need only the address and the token; the rest has defaults', () => {
    const settings = readAgentSettings(BASE);
    const spoolDir = resolve('data', `agent-${settings.agentId}`);
    expect(settings).toMatchObject({
      gatewayUrl: 'http://127.0.0.1:8787',
      pools: ['default'],
      labels: {},
      runtimes: ['shell', 'http'],
      concurrency: 1,
      allow: ['*'],
      commands: undefined,
      spoolDir,
      workDir: join(spoolDir, 'work'),
      killGraceMs: 10_000,
      logLevel: 'info',
      warnings: [],
    });
    expect(settings.agentId).toMatch(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/);
  });

  it('are read as they are given', () => {
    const settings = readAgentSettings({
      ...BASE,
      AGENT_ID: 'hotel-12',
      AGENT_POOLS: 'hotel-12, night',
      AGENT_LABELS: 'city=sz,floor=3',
      AGENT_CONCURRENCY: '8',
      AGENT_ALLOW: 'report-*,hello',
      AGENT_COMMANDS: 'node,/usr/bin/printf',
      AGENT_SPOOL_DIR: '/var/spool/x',
      AGENT_KILL_GRACE: '3s',
    });
    expect(settings).toMatchObject({
      agentId: 'hotel-12',
      pools: ['hotel-12', 'night'],
      labels: { city: 'sz', floor: '3' },
      concurrency: 8,
      allow: ['report-*', 'hello'],
      commands: ['node', '/usr/bin/printf'],
      workDir: '/var/spool/x/work',
      killGraceMs: 3_000,
    });
  });

  it('report every problem at once, each with its name, and no secret', () => {
    const problems = problemsOf({
      AGENT_TOKEN: 'x'.repeat(200),
      AGENT_GATEWAY_URL: 'ftp://x',
      AGENT_CONCURENCY: '2',
      AGENT_CONCURRENCY: 'many',
      AGENT_ID: 'no spaces',
      AGENT_LABELS: 'city',
      AGENT_UPGRADE_KEY: 'k',
      AGENT_ACP_COMMAND_CODER: 'coder',
      AGENT_SECRETS_FILE: '/nowhere/secrets',
    });
    const named = problems.map((line) => line.split(':')[0]).sort();
    expect(named).toEqual([
      'AGENT_ACP_COMMAND_CODER',
      'AGENT_CONCURENCY',
      'AGENT_CONCURRENCY',
      'AGENT_GATEWAY_URL',
      'AGENT_ID',
      'AGENT_LABELS',
      'AGENT_SECRETS_FILE',
      'AGENT_TOKEN',
      'AGENT_UPGRADE_KEY',
    ]);
    expect(problems.join('\n')).toContain('did you mean AGENT_CONCURRENCY?');
    expect(problems.join('\n')).not.toContain('xxxxxxxxxx');
  });

  it('say what to do when the address and the token are missing', () => {
    const problems = problemsOf({});
    expect(problems).toHaveLength(2);
    expect(problems.join()).toContain('AGENT_GATEWAY_URL: must be set to the address of the gateway');
  });

  it.each([
    [{ AGENT_JOIN_TOKEN: 'x' }, 'AGENT_JOIN_TOKEN: is not available yet'],
    [{ AGENT_RUNTIMES: 'shell,acp' }, 'AGENT_RUNTIMES: the acp runtime is not available yet'],
    [{ AGENT_RUNTIMES: 'cobol' }, "AGENT_RUNTIMES: 'cobol' is not a runtime; there is: shell, http"],
    [
      { AGENT_ALLOW: 'deploy@sha256:ab' },
      "AGENT_ALLOW: 'deploy@sha256:ab' must pin sha256: and 64 hex digits (errand templates show prints it)",
    ],
    [
      { AGENT_HTTP_ALLOW: 'http://pms.local' },
      "AGENT_HTTP_ALLOW: 'http://pms.local' is no host, address or network such as 10.0.0.0/8",
    ],
  ])('refuse what this version cannot honour: %j', (env, expected) => {
    expect(problemsOf({ ...BASE, ...env } as Record<string, string>)).toEqual([expected]);
  });

  it('make an id of any host name', () => {
    expect(idFromHostname('web-1.example.com')).toBe('web-1.example.com');
    expect(idFromHostname('_büro pc_')).toBe('b-ro-pc_');
    expect(idFromHostname('机器')).toBe('agent');
    expect(idFromHostname('x'.repeat(200))).toHaveLength(64);
  });
});

describe('the secrets file', () => {
  it('holds NAME=value lines, comments and quotes', () => {
    const path = secretsFile('# keys\n\nAPI_KEY=abc=def=ghi\nQUOTED="with spaces "\r\n  SPACED = padded-value  \n');
    const { secrets, warnings } = readAgentSettings({ ...BASE, AGENT_SECRETS_FILE: path });
    expect([...secrets]).toEqual([
      ['API_KEY', 'abc=def=ghi'],
      ['QUOTED', 'with spaces '],
      ['SPACED', 'padded-value'],
    ]);
    expect(warnings).toEqual([]);
  });

  it('that others can read is a warning', () => {
    const path = secretsFile('API_KEY=abcdefgh\n', 0o644);
    expect(readAgentSettings({ ...BASE, AGENT_SECRETS_FILE: path }).warnings[0]).toContain('chmod 600');
  });

  it('with a value too short to be masked, a bad line or a repeat is refused line by line, without showing values', () => {
    const problems = problemsOf({
      ...BASE,
      AGENT_SECRETS_FILE: secretsFile('PIN=12345\nlower=abcdefgh\nA_KEY=abcdefgh\nA_KEY=zyxwvuts\n'),
    });
    expect(problems).toEqual([
      'AGENT_SECRETS_FILE: line 1: PIN is shorter than 6 characters and cannot be masked',
      'AGENT_SECRETS_FILE: line 2: must be NAME=value with a name of capital letters, digits and underscores',
      'AGENT_SECRETS_FILE: line 4: A_KEY is given twice',
    ]);
  });

  it('is a problem of its own among the others', () => {
    expect(() => readAgentSettings({ AGENT_SECRETS_FILE: '/nowhere' })).toThrow(SettingsError);
  });
});
