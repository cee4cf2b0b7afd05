import { isAbsolute, join, resolve } from 'node:path';
import { z } from 'zod';
import { readSettings, setting } from './settings.ts';
import { type Environment, type SettingProblem, SettingsError } from './values.ts';

/** Everything the gateway is told from outside; read once, frozen. */
export interface GatewaySettings {
  stateDir: string;
  host: string;
  port: number;
  /** Where people and platforms reach the gateway; links and webhooks are built from it. */
  publicUrl: string;
  /** Undefined: generated into the state folder. */
  adminToken: string | undefined;
  templatesDir: string | undefined;
  lang: 'auto' | 'en' | 'zh';
  timeZone: string;
  leaseMs: number;
  heartbeatMs: number;
  offlineMs: number;
  /** How long an agent has to confirm a cancel before the server cancels by itself. */
  cancelGraceMs: number;
  /** A lane in which a task waits longer is told of in the log. */
  laneWarnMs: number;
  /** Calls per second that one agent may make all the time. */
  agentRate: number;
  /** Keys of conversations that are told when an agent goes away and when it is back. */
  alertSessions: readonly string[];
  /** Messages that are older are asked about before they start anything; null: none is. */
  staleAfterMs: number | null;
  /** How long finished tasks, their flows and their messages are kept before they are archived and pruned. */
  retentionMs: number;
  logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  telegram: TelegramSettings | undefined;
  wecom: WecomSettings | undefined;
}

export interface TelegramSettings {
  token: string;
  apiRoot: string;
  mode: 'polling' | 'webhook';
  webhookSecret: string | undefined;
}

export interface WecomSettings {
  corpId: string;
  agentId: string;
  secret: string;
  token: string;
  encodingAesKey: string;
  apiRoot: string;
  /** Milliseconds a callback's timestamp may be off; `off` to replay old samples. */
  timestampWindowMs: number | 'off';
  /** Whether bold, code and links are shown; people who read in WeChat see nothing of such messages. */
  markdown: 'on' | 'off';
}

const zone = z.string().refine((value) => {
  try {
    new Intl.DateTimeFormat('en', { timeZone: value });
    return true;
  } catch {
    return false;
  }
}, 'must be an IANA time zone such as Asia/Shanghai');

const SHAPE = {
  ERRAND_STATE_DIR: setting.text().default('./data'),
  ERRAND_HOST: setting.text(255).default('127.0.0.1'),
  ERRAND_PORT: setting.integer(0, 65_535).default(8787),
  ERRAND_PUBLIC_URL: setting.url().optional(),
  ERRAND_ADMIN_TOKEN: setting.text(256).min(16, 'must be at least 16 characters').optional(),
  ERRAND_TEMPLATES_DIR: setting.text().optional(),
  ERRAND_LANG: setting.oneOf(['auto', 'en', 'zh']).default('auto'),
  ERRAND_TZ: zone.optional(),
  ERRAND_LEASE_MS: setting.integer(500, 3_600_000).default(30_000),
  ERRAND_HEARTBEAT_MS: setting.integer(100, 3_600_000).default(10_000),
  ERRAND_OFFLINE_MS: setting.integer(1_000, 86_400_000).default(90_000),
  ERRAND_CANCEL_GRACE_MS: setting.integer(1_000, 3_600_000).default(30_000),
  ERRAND_LANE_WARN_MS: setting.integer(100, 86_400_000).default(2_000),
  ERRAND_AGENT_RATE: setting.integer(1, 1_000_000).default(2_000),
  ERRAND_ALERT_SESSIONS: setting.list().optional(),
  ERRAND_STALE_AFTER: z.union([z.literal('off'), setting.duration()]).default(1_800_000),
  ERRAND_RETENTION_DAYS: setting.integer(1, 3_650).default(7),
  ERRAND_LOG_LEVEL: setting.oneOf(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
  TELEGRAM_BOT_TOKEN: z
    .string()
    .regex(/^\d+:[A-Za-z0-9_-]{3,}$/, 'must look like 123456:ABC-…, as BotFather gives it')
    .optional(),
  TELEGRAM_API_ROOT: setting.url().default('https://api.telegram.org'),
  TELEGRAM_MODE: setting.oneOf(['polling', 'webhook']).default('polling'),
  TELEGRAM_WEBHOOK_SECRET: z
    .string()
    .regex(/^[A-Za-z0-9_-]{16,256}$/, 'must be 16 to 256 letters, digits, _ or -')
    .optional(),
  WECOM_CORP_ID: setting.text(64).optional(),
  WECOM_AGENT_ID: z
    .string()
    .regex(/^\d{1,16}$/, 'must be a number')
    .optional(),
  WECOM_SECRET: setting.text(128).optional(),
  WECOM_TOKEN: setting.text(64).optional(),
  WECOM_ENCODING_AES_KEY: z
    .string()
    .regex(/^[A-Za-z0-9]{43}$/, 'must be exactly 43 letters and digits')
    .optional(),
  WECOM_API_ROOT: setting.url().default('https://qyapi.weixin.qq.com'),
  WECOM_TIMESTAMP_WINDOW: z.union([z.literal('off'), setting.duration()]).default(600_000),
  WECOM_MARKDOWN: z.enum(['on', 'off']).default('off'),
};

/** In the contract but built by a later release: refused rather than ignored in silence. */
const LATER = [
  'ERRAND_DATABASE_URL',
  'ERRAND_REDIS_URL',
  'ERRAND_WORKFLOWS_DIR',
  'ERRAND_CHANNELS_FILE',
  'WECOM_BOT_TOKEN',
  'WECOM_BOT_ENCODING_AES_KEY',
  'WECOM_ROBOT_KEYS',
];

/** Read by the command line client, not by the gateway. */
const CLIENT = ['ERRAND_URL', 'ERRAND_TOKEN'];

/** @throws SettingsError naming every wrong or unknown variable at once. */
export function readGatewaySettings(env: Environment, cwd = process.cwd()): GatewaySettings {
  const problems = LATER.filter((name) => given(env, name)).map((name) => ({
    name,
    message: 'is not available yet in this version',
  }));
  problems.push(...missing(env));
  const watched = ['ERRAND_', 'TELEGRAM_', 'WECOM_'];
  let values: ReturnType<typeof parse>;
  try {
    values = parse(env, watched);
  } catch (error) {
    if (error instanceof SettingsError) throw new SettingsError([...problems, ...error.problems]);
    throw error;
  }
  if (values.ERRAND_HEARTBEAT_MS >= values.ERRAND_LEASE_MS) {
    problems.push({
      name: 'ERRAND_HEARTBEAT_MS',
      message: 'must be shorter than ERRAND_LEASE_MS, or every lease is lost',
    });
  }
  if (problems.length > 0) throw new SettingsError(problems);
  return Object.freeze(settingsOf(values, cwd));
}

function parse(env: Environment, watched: readonly string[]) {
  return readSettings(SHAPE, env, watched, [...LATER, ...CLIENT]);
}
type Values = ReturnType<typeof parse>;

const WECOM_NAMES = [
  'WECOM_CORP_ID',
  'WECOM_AGENT_ID',
  'WECOM_SECRET',
  'WECOM_TOKEN',
  'WECOM_ENCODING_AES_KEY',
] as const;

/** Settings that only make sense together; looked for before any value is checked, so that everything is told at once. */
function missing(env: Environment): SettingProblem[] {
  const problems: SettingProblem[] = [];
  const need = (names: readonly string[], why: string) => {
    for (const name of names) if (!given(env, name)) problems.push({ name, message: `is missing; ${why}` });
  };
  if (WECOM_NAMES.some((name) => given(env, name))) need(WECOM_NAMES, `WeCom needs all of ${WECOM_NAMES.join(', ')}`);
  if (given(env, 'TELEGRAM_BOT_TOKEN') && env.TELEGRAM_MODE?.trim() === 'webhook') {
    need(['TELEGRAM_WEBHOOK_SECRET', 'ERRAND_PUBLIC_URL'], 'TELEGRAM_MODE=webhook needs it');
  }
  return problems;
}

/** Empty values count as absent. */
const given = (env: Environment, name: string) => Boolean(env[name]?.trim());

function settingsOf(values: Values, cwd: string): GatewaySettings {
  const path = (text: string) => (isAbsolute(text) ? text : resolve(cwd, text));
  const templates = values.ERRAND_TEMPLATES_DIR;
  return {
    stateDir: path(values.ERRAND_STATE_DIR),
    host: values.ERRAND_HOST,
    port: values.ERRAND_PORT,
    publicUrl: (values.ERRAND_PUBLIC_URL ?? ownUrl(values)).replace(/\/+$/, ''),
    adminToken: values.ERRAND_ADMIN_TOKEN,
    templatesDir: templates === undefined ? undefined : path(templates),
    lang: values.ERRAND_LANG,
    timeZone: values.ERRAND_TZ ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
    leaseMs: values.ERRAND_LEASE_MS,
    heartbeatMs: values.ERRAND_HEARTBEAT_MS,
    offlineMs: values.ERRAND_OFFLINE_MS,
    cancelGraceMs: values.ERRAND_CANCEL_GRACE_MS,
    laneWarnMs: values.ERRAND_LANE_WARN_MS,
    agentRate: values.ERRAND_AGENT_RATE,
    alertSessions: [...new Set(values.ERRAND_ALERT_SESSIONS ?? [])],
    staleAfterMs: values.ERRAND_STALE_AFTER === 'off' ? null : values.ERRAND_STALE_AFTER,
    retentionMs: values.ERRAND_RETENTION_DAYS * 86_400_000,
    logLevel: values.ERRAND_LOG_LEVEL,
    telegram: telegramOf(values),
    wecom: wecomOf(values),
  };
}

function ownUrl({ ERRAND_HOST: host, ERRAND_PORT: port }: Values): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function telegramOf(values: Values): TelegramSettings | undefined {
  if (!values.TELEGRAM_BOT_TOKEN) return undefined;
  return {
    token: values.TELEGRAM_BOT_TOKEN,
    apiRoot: values.TELEGRAM_API_ROOT.replace(/\/+$/, ''),
    mode: values.TELEGRAM_MODE,
    webhookSecret: values.TELEGRAM_WEBHOOK_SECRET,
  };
}

function wecomOf(values: Values): WecomSettings | undefined {
  if (!values.WECOM_CORP_ID) return undefined;
  return {
    corpId: values.WECOM_CORP_ID,
    agentId: values.WECOM_AGENT_ID!,
    secret: values.WECOM_SECRET!,
    token: values.WECOM_TOKEN!,
    encodingAesKey: values.WECOM_ENCODING_AES_KEY!,
    apiRoot: values.WECOM_API_ROOT.replace(/\/+$/, ''),
    timestampWindowMs: values.WECOM_TIMESTAMP_WINDOW,
    markdown: values.WECOM_MARKDOWN,
  };
}

/** The database file of a state folder. */
export const databasePath = (stateDir: string) => join(stateDir, 'errand.db');
