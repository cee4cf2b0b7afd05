import { describe, expect, it } from 'vitest';
import { AppError, ERROR_CODES, messageOf } from '../../src/errors.ts';
import { createLog, redact, silentLog } from '../../src/log.ts';

const TELEGRAM = '123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw';

/** A log into memory. */
function memory(level: 'debug' | 'info' | 'silent' = 'debug') {
  const lines: string[] = [];
  return { lines, log: createLog({ level, destination: { write: (line) => void lines.push(line) } }) };
}

describe('redaction', () => {
  it('masks credentials wherever they stand', () => {
    const masked = (text: string, ...secrets: string[]) => redact(text, secrets);
    expect(masked(`token ${TELEGRAM}.`)).toBe('token [telegram-token].');
    expect(masked(`https://api.telegram.org/bot${TELEGRAM}/getMe`)).not.toContain('AAHdq');
    expect(masked('GET http://127.0.0.1:9/bot42:short/getUpdates')).toBe(
      'GET http://127.0.0.1:9/bot[telegram-token]/getUpdates',
    );
    expect(masked('Authorization: Bearer agt_abcDEF-123_456')).toBe('Authorization: Bearer [secret]');
    expect(masked('authorization: bearer abcdef123456==')).toBe('authorization: bearer [secret]');
    expect(masked('https://q/cgi-bin/gettoken?corpid=ww1&corpsecret=s3cr3t&x=1')).toBe(
      'https://q/cgi-bin/gettoken?corpid=ww1&corpsecret=[secret]&x=1',
    );
    expect(masked('?access_token=abc"')).toBe('?access_token=[secret]"');
    expect(masked('the hunter2hunter2 password', 'hunter2hunter2')).toBe('the [secret] password');
  });

  it('leaves what is no credential', () => {
    for (const text of ['at 12:30:45', 'ratio 3:1', 'http://127.0.0.1:8787/chat?after=12', 'task 4kx9 took 30:00', ''])
      expect(redact(text)).toBe(text);
  });
});

describe('the log', () => {
  it('writes named events with their fields, one line each', () => {
    const { log, lines } = memory();
    log.info('task.claimed', { taskId: '4kx9', agentId: 'a1' });
    log.warn('plain');
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { msg: 'task.claimed', taskId: '4kx9', agentId: 'a1' },
      { msg: 'plain' },
    ]);
    expect(lines.every((line) => line.endsWith('\n') && line.indexOf('\n') === line.length - 1)).toBe(true);
  });

  it('masks what it was told, in every field and in children, from then on', () => {
    const { log, lines } = memory();
    const child = log.child({ channel: 'telegram' });
    log.addSecret('correct-horse');
    log.addSecret('abc'); // too short to be a secret: it would mask half of the log
    child.error('send.failed', {
      error: new Error('POST said correct-horse'),
      note: { deep: ['correct-horse'] },
      abc: 'abcabc',
    });
    child.addSecret('battery-staple');
    log.info('battery-staple');
    expect(lines.join('')).not.toMatch(/correct-horse|battery-staple/);
    expect(JSON.parse(lines[0]!)).toMatchObject({ channel: 'telegram', error: 'POST said [secret]', abc: 'abcabc' });
  });

  it('shows an error as its chain of messages, without stacks and inner objects', () => {
    const { log, lines } = memory();
    const cause = Object.assign(new Error('connect ECONNREFUSED'), { request: { url: 'http://secret' } });
    log.error('poll.failed', { error: new Error('cannot reach the platform', { cause }) });
    expect(JSON.parse(lines[0]!)).toMatchObject({ error: 'cannot reach the platform: connect ECONNREFUSED' });
    expect(lines[0]).not.toMatch(/http:\/\/secret|at .*test/);
  });

  it('keeps to its level', () => {
    const { log, lines } = memory('info');
    log.debug('hidden');
    log.info('shown');
    expect(lines).toHaveLength(1);
    const silent = memory('silent');
    silent.log.error('nothing');
    expect(silent.lines).toEqual([]);
    silentLog.child({}).error('nothing');
  });
});

describe('errors', () => {
  it('every code has a status, an exit code of the contract and a sentence', () => {
    for (const [code, { status, exit, title }] of Object.entries(ERROR_CODES)) {
      expect(code).toMatch(/^[a-z_]+$/);
      expect(status).toBeGreaterThanOrEqual(400);
      expect([1, 2, 3, 4, 5]).toContain(exit);
      expect(title).toMatch(/^[A-Z].{10,}\.$/);
    }
  });

  it('carry their code, field and cause', () => {
    const cause = new Error('inner');
    const error = new AppError('idempotency_conflict', 'used before', { field: 'idempotencyKey', cause });
    expect([error.status, error.exitCode, error.field, error.cause, error.name]).toEqual([
      409,
      4,
      'idempotencyKey',
      cause,
      'AppError',
    ]);
    expect(new AppError('internal', 'x').cause).toBeUndefined();
    expect(['x', 5, undefined, new Error('e')].map(messageOf)).toEqual(['x', '5', 'undefined', 'e']);
  });
});
