import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readSettings, setting } from '../../src/config/settings.ts';
import { byteCount, distance, durationMs, SettingsError } from '../../src/config/values.ts';

const SHAPE = {
  APP_PORT: setting.integer(1, 100).default(7),
  APP_NAME: setting.text(5).optional(),
  APP_URL: setting.url().optional(),
  APP_WAIT: setting.duration().optional(),
  APP_LIST: setting.list().optional(),
  APP_MODE: setting.oneOf(['fast', 'slow']).default('fast'),
};
const read = (env: Record<string, string | undefined>, known: (string | RegExp)[] = []) =>
  readSettings(SHAPE, env, ['APP_', 'ERRAND_'], known);
const problems = (env: Record<string, string>, known: (string | RegExp)[] = []) => {
  try {
    read(env, known);
    return 'no problem';
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return error.problems.map(({ name, message }) => `${name} ${message}`);
  }
};

describe('settings', () => {
  it('are parsed, trimmed and filled in; empty counts as absent', () => {
    expect(
      read({ APP_PORT: ' 42 ', APP_NAME: '', APP_LIST: 'a, b,,c ', APP_WAIT: '10m', OTHER: 'x', APP_URL: undefined }),
    ).toEqual({
      APP_PORT: 42,
      APP_LIST: ['a', 'b', 'c'],
      APP_WAIT: 600_000,
      APP_MODE: 'fast',
    });
  });

  it('every problem is told at once, each with its name', () => {
    expect(
      problems({
        APP_PORT: '101',
        APP_NAME: 'too long',
        APP_URL: 'ftp://x',
        APP_WAIT: '10 minutes',
        APP_MODE: 'Fast',
        APP_PROT: '1',
      }),
    ).toEqual([
      'APP_PROT is not a setting; did you mean APP_PORT?',
      'APP_PORT must be between 1 and 100',
      'APP_NAME must be at most 5 characters',
      'APP_URL must be an http or https URL',
      'APP_WAIT must be a duration such as 30s, 10m or 1d',
      'APP_MODE must be one of fast, slow',
    ]);
  });

  it('an unknown name under a watched prefix is a mistake, unless somebody else reads it', () => {
    expect(problems({ APP_SOMETHING_ELSE_ENTIRELY: '1' })).toEqual(['APP_SOMETHING_ELSE_ENTIRELY is not a setting']);
    expect(problems({ APP_X_1: '1', APP_Y: '1', UNWATCHED: '1' }, [/^APP_X_\d+$/, 'APP_Y'])).toBe('no problem');
  });

  it('what a running program is given is no setting, so that Errand can run inside a run of Errand', () => {
    expect(problems({ ERRAND_OUTPUT: 'x', ERRAND_ARG_ROOM: '1', ERRAND_TASK_ID: 'y', ERRAND_ARGS_JSON: '{}' })).toBe(
      'no problem',
    );
    expect(problems({ ERRAND_OUTPUTS: 'x' })).toEqual(['ERRAND_OUTPUTS is not a setting']);
  });

  it('numbers are whole numbers and nothing else', () => {
    for (const value of ['1e1', '0x10', '1.5', 'NaN', '--1', '1 2', '99999999999999999999'])
      expect(problems({ APP_PORT: value })).toEqual(['APP_PORT must be a whole number']);
  });

  it('a message never repeats the value, which may be a secret', () => {
    const shape = { APP_KEY: z.string().regex(/^[a-z]{4}$/, 'must be four letters') };
    expect(() => readSettings(shape, { APP_KEY: 'S3cret!' }, ['APP_'])).toThrow(
      expect.objectContaining({ message: 'APP_KEY: must be four letters', code: 'invalid_config', exitCode: 2 }),
    );
  });
});

it('durations and sizes are exact, and anything else is none', () => {
  expect(['1500ms', '30s', '10m', '1h', '7d', '0s'].map(durationMs)).toEqual([
    1_500, 30_000, 600_000, 3_600_000, 604_800_000, 0,
  ]);
  for (const text of ['', '5', '1.5h', '-1s', '1 h', '1H', 's', '1w', '10m5s'])
    expect(durationMs(text)).toBeUndefined();
  expect(['512B', '64KiB', '512MiB', '2GiB'].map(byteCount)).toEqual([512, 65_536, 536_870_912, 2_147_483_648]);
  for (const text of ['', '1', '1KB', '1kib', '1.5MiB', '-1B']) expect(byteCount(text)).toBeUndefined();
});

it('the distance of two names counts changed letters', () => {
  expect([distance('', ''), distance('abc', ''), distance('kitten', 'sitting'), distance('AB', 'BA')]).toEqual([
    0, 3, 3, 2,
  ]);
});
