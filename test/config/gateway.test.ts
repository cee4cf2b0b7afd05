import { describe, expect, it } from 'vitest';
import { databasePath, readGatewaySettings } from '../../src/config/gateway.ts';
import { SettingsError } from '../../src/config/values.ts';

const TOKEN = '123456:ABC-def_123';
const WECOM = {
  WECOM_CORP_ID: 'ww1',
  WECOM_AGENT_ID: '1000002',
  WECOM_SECRET: 's',
  WECOM_TOKEN: 't',
  WECOM_ENCODING_AES_KEY: 'a'.repeat(43),
};
const read = (env: Record<string, string> = {}) => readGatewaySettings(env, '/srv/errand');
const names = (env: Record<string, string>) => {
  try {
    read(env);
    return [];
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return error.problems.map(({ name }) => name).sort();
  }
};

it('without any variable the gateway is a local one, with the times of the documentation', () => {
  expect(read()).toEqual({
    stateDir: '/srv/errand/data',
    host: '127.0.0.1',
    port: 8787,
    publicUrl: 'http://127.0.0.1:8787',
    adminToken: undefined,
    templatesDir: undefined,
    lang: 'auto',
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    leaseMs: 30_000,
    heartbeatMs: 10_000,
    agentRate: 2_000,
    laneWarnMs: 2_000,
    offlineMs: 90_000,
    cancelGraceMs: 30_000,
    alertSessions: [],
    staleAfterMs: 1_800_000,
    retentionMs: 7 * 86_400_000,
    logLevel: 'info',
    telegram: undefined,
    wecom: undefined,
  });
  expect(Object.isFrozen(read())).toBe(true);
  expect(databasePath('/srv/errand/data')).toBe('/srv/errand/data/errand.db');
});

it('paths are taken from the working folder, addresses without a slash at their end', () => {
  expect(
    read({
      ERRAND_STATE_DIR: '/var/lib/errand',
      ERRAND_TEMPLATES_DIR: 'mine',
      ERRAND_PUBLIC_URL: 'https://bot.example.org/',
    }),
  ).toMatchObject({
    stateDir: '/var/lib/errand',
    templatesDir: '/srv/errand/mine',
    publicUrl: 'https://bot.example.org',
  });
  expect(read({ ERRAND_HOST: '::1', ERRAND_PORT: '80' }).publicUrl).toBe('http://[::1]:80');
});

describe('Telegram', () => {
  it('needs a token only, and polls by default', () => {
    expect(read({ TELEGRAM_BOT_TOKEN: TOKEN }).telegram).toEqual({
      token: TOKEN,
      apiRoot: 'https://api.telegram.org',
      mode: 'polling',
      webhookSecret: undefined,
    });
  });

  it('by webhook needs its secret and a public address', () => {
    expect(names({ TELEGRAM_BOT_TOKEN: TOKEN, TELEGRAM_MODE: 'webhook' })).toEqual([
      'ERRAND_PUBLIC_URL',
      'TELEGRAM_WEBHOOK_SECRET',
    ]);
    expect(names({ TELEGRAM_MODE: 'webhook' })).toEqual([]);
    expect(
      names({
        TELEGRAM_BOT_TOKEN: TOKEN,
        TELEGRAM_MODE: 'webhook',
        TELEGRAM_WEBHOOK_SECRET: 'x'.repeat(16),
        ERRAND_PUBLIC_URL: 'https://b',
      }),
    ).toEqual([]);
    expect(names({ TELEGRAM_WEBHOOK_SECRET: 'short' })).toEqual(['TELEGRAM_WEBHOOK_SECRET']);
  });
});

describe('WeCom', () => {
  it('is complete or absent', () => {
    expect(read(WECOM).wecom).toEqual({
      corpId: 'ww1',
      agentId: '1000002',
      secret: 's',
      token: 't',
      encodingAesKey: 'a'.repeat(43),
      apiRoot: 'https://qyapi.weixin.qq.com',
      timestampWindowMs: 600_000,
      markdown: 'off',
    });
    for (const name of Object.keys(WECOM)) {
      const rest = Object.fromEntries(Object.entries(WECOM).filter(([key]) => key !== name));
      expect(names(rest)).toEqual([name]);
    }
  });

  it('the window of its timestamps is a duration, or off', () => {
    expect(read({ ...WECOM, WECOM_MARKDOWN: 'on' }).wecom?.markdown).toBe('on');
    expect(read({ ...WECOM, WECOM_TIMESTAMP_WINDOW: 'off' }).wecom?.timestampWindowMs).toBe('off');
    expect(read({ ...WECOM, WECOM_TIMESTAMP_WINDOW: '5m' }).wecom?.timestampWindowMs).toBe(300_000);
    expect(names({ ...WECOM, WECOM_TIMESTAMP_WINDOW: 'never' })).toEqual(['WECOM_TIMESTAMP_WINDOW']);
    expect(names({ ...WECOM, WECOM_ENCODING_AES_KEY: 'short' })).toEqual(['WECOM_ENCODING_AES_KEY']);
  });
});

it('everything that is wrong is told at once: bad values, missing partners, unknown names, and what is not built yet', () => {
  expect(
    names({
      ERRAND_PORT: '99999',
      ERRAND_LANG: 'fr',
      ERRAND_TZ: 'Mars/Olympus',
      ERRAND_ADMIN_TOKEN: 'short',
      TELEGRAM_BOT_TOKEN: 'x',
      TELEGRAM_MODE: 'webhook',
      WECOM_CORP_ID: 'ww1',
      ERRAND_REDIS_URL: 'redis://x',
      ERRAND_LEASEMS: '5',
      TELEGRAM_TOKEN: 'y',
    }),
  ).toEqual([
    'ERRAND_ADMIN_TOKEN',
    'ERRAND_LANG',
    'ERRAND_LEASEMS',
    'ERRAND_PORT',
    'ERRAND_PUBLIC_URL',
    'ERRAND_REDIS_URL',
    'ERRAND_TZ',
    'TELEGRAM_BOT_TOKEN',
    'TELEGRAM_TOKEN',
    'TELEGRAM_WEBHOOK_SECRET',
    'WECOM_AGENT_ID',
    'WECOM_ENCODING_AES_KEY',
    'WECOM_SECRET',
    'WECOM_TOKEN',
  ]);
});

it('a heartbeat that is not shorter than the lease would lose every lease', () => {
  expect(names({ ERRAND_LEASE_MS: '5000', ERRAND_HEARTBEAT_MS: '5000' })).toEqual(['ERRAND_HEARTBEAT_MS']);
  expect(names({ ERRAND_LEASE_MS: '5000' })).toEqual(['ERRAND_HEARTBEAT_MS']);
  expect(names({ ERRAND_LEASE_MS: '5000', ERRAND_HEARTBEAT_MS: '1000' })).toEqual([]);
});

it('the client’s variables and those of a running program are nobody’s mistake; other programs’ are not looked at', () => {
  expect(names({ ERRAND_URL: 'http://x', ERRAND_TOKEN: 'y', ERRAND_RUN_ID: 'z', PATH: '/bin', AGENT_ID: 'a' })).toEqual(
    [],
  );
});

it('no message holds the value of a secret', () => {
  const secret = 'p4ss-w0rd!';
  try {
    read({
      TELEGRAM_BOT_TOKEN: secret,
      ERRAND_ADMIN_TOKEN: secret,
      TELEGRAM_WEBHOOK_SECRET: secret,
      WECOM_ENCODING_AES_KEY: secret,
    });
    expect.unreachable();
  } catch (error) {
    expect((error as Error).message).toContain('TELEGRAM_BOT_TOKEN');
    expect((error as Error).message).not.toContain(secret);
  }
});
