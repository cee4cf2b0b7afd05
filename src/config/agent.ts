import type { KeyObject } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import type { LogLevel } from '../log.ts';
import { inTheClear } from './gateway-url.ts';
import { parseAllowed } from './http-allow.ts';
import { readSettings, setting } from './settings.ts';
import { readUpgradeKey } from './upgrade-key.ts';
import { type Environment, type SettingProblem, SettingsError } from './values.ts';

/** What an agent process is told by its owner (agent.env.example). Relative paths are resolved against the working folder. */
export interface AgentSettings {
  gatewayUrl: string;
  token: string;
  agentId: string;
  pools: string[];
  labels: Record<string, string>;
  runtimes: string[];
  /** How many tasks run at once. */
  concurrency: number;
  /** Holds one fresh folder per run. */
  workDir: string;
  /** Holds unsent results and the list of started runs. */
  spoolDir: string;
  /** Template ids or globs that this agent accepts; `id@sha256:…` only with exactly this content. */
  allow: string[];
  /** Executables that this agent may start; absent: any. */
  commands?: string[];
  /** Where the http runtime may go beside public addresses: names, addresses, networks. */
  httpAllow: string[];
  /** PEM text of certificates that are trusted besides the system's. */
  ca?: string;
  proxy?: string;
  /** Values by name; handed to programs, masked in everything that leaves the agent. */
  secrets: ReadonlyMap<string, string>;
  /** Between SIGTERM and SIGKILL, milliseconds: the upper bound of what a template may ask for, and the rule at a stop of the agent. */
  killGraceMs: number;
  /** `idle`: a newer package that the gateway names is installed while nothing runs here. */
  autoUpgrade: 'off' | 'idle';
  /** Holds the versions of this agent. */
  installDir: string;
  /** Packages without a signature of this key are refused. */
  upgradeKey?: KeyObject;
  logLevel: LogLevel;
  /** What is allowed but unwise; to be logged once at start. */
  warnings: string[];
}

/** A shorter secret would be found by chance in ordinary output, so that masking it would garble results. */
const MIN_SECRET_CHARS = 6;

/** Runtimes of this build. */
const BUILT_RUNTIMES: readonly string[] = ['shell', 'http'];

const MAX_CONCURRENCY = 1024;
const NOT_YET = ['AGENT_JOIN_TOKEN'] as const;
const NOT_YET_FAMILY = /^AGENT_ACP_COMMAND_/;

/**
 * Reads the agent's settings, the secrets file and the certificate file.
 * @throws SettingsError with every problem at once: bad values, unknown `AGENT_` names, names that this version cannot honour yet
 */
export function readAgentSettings(env: Environment): AgentSettings {
  const problems = notYetAvailable(env);
  const values = collect(problems, () => readSettings(shape(), env, ['AGENT_'], [...NOT_YET, NOT_YET_FAMILY]));
  const secrets = collect(problems, () => readSecrets(env.AGENT_SECRETS_FILE?.trim()));
  const ca = collect(problems, () => readText('AGENT_CA_FILE', env.AGENT_CA_FILE?.trim()));
  if (problems.length > 0 || !values || !secrets) throw new SettingsError(problems);
  const agentId = values.AGENT_ID ?? idFromHostname(hostname());
  const spoolDir = resolve(values.AGENT_SPOOL_DIR ?? join('data', `agent-${agentId}`));
  return {
    gatewayUrl: values.AGENT_GATEWAY_URL,
    token: values.AGENT_TOKEN,
    agentId,
    pools: values.AGENT_POOLS,
    labels: values.AGENT_LABELS,
    runtimes: values.AGENT_RUNTIMES,
    concurrency: values.AGENT_CONCURRENCY,
    workDir: resolve(values.AGENT_WORK_DIR ?? join(spoolDir, 'work')),
    spoolDir,
    allow: values.AGENT_ALLOW,
    commands: values.AGENT_COMMANDS,
    httpAllow: values.AGENT_HTTP_ALLOW,
    ca,
    proxy: values.AGENT_PROXY,
    secrets: secrets.values,
    killGraceMs: values.AGENT_KILL_GRACE,
    autoUpgrade: values.AGENT_AUTO_UPGRADE,
    installDir: resolve(values.AGENT_INSTALL_DIR ?? join(spoolDir, 'install')),
    upgradeKey: values.AGENT_UPGRADE_KEY,
    logLevel: values.AGENT_LOG_LEVEL,
    warnings: [...inTheClear(values.AGENT_GATEWAY_URL), ...secrets.warnings],
  };
}

/** A host name as an agent id: other characters become dashes, 64 characters at most, `agent` where nothing is left. */
export function idFromHostname(name: string): string {
  const id = name
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 64);
  return id || 'agent';
}

function shape() {
  return {
    AGENT_GATEWAY_URL: required(
      setting.url(),
      'must be set to the address of the gateway, for example http://127.0.0.1:8787',
    ),
    AGENT_TOKEN: required(setting.text(128), 'must be set to the token that the gateway gave this agent'),
    AGENT_ID: setting
      .text(64)
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, 'must be letters, digits, dots, dashes or underscores')
      .optional(),
    AGENT_POOLS: names('pools').prefault('default'),
    AGENT_LABELS: labels().prefault(''),
    AGENT_RUNTIMES: runtimes().prefault('shell,http'),
    AGENT_CONCURRENCY: setting.integer(1, MAX_CONCURRENCY).prefault('1'),
    AGENT_WORK_DIR: setting.text().optional(),
    AGENT_SPOOL_DIR: setting.text().optional(),
    AGENT_ALLOW: allowList().prefault('*'),
    AGENT_COMMANDS: setting.list().optional(),
    AGENT_HTTP_ALLOW: httpAllow().prefault(''),
    AGENT_CA_FILE: setting.text().optional(),
    AGENT_PROXY: setting.url().optional(),
    AGENT_SECRETS_FILE: setting.text().optional(),
    AGENT_KILL_GRACE: setting.duration().prefault('10s'),
    AGENT_AUTO_UPGRADE: setting.oneOf(['off', 'idle']).prefault('off'),
    AGENT_INSTALL_DIR: setting.text().optional(),
    AGENT_UPGRADE_KEY: upgradeKey().optional(),
    AGENT_LOG_LEVEL: setting.oneOf(['debug', 'info', 'warn', 'error', 'silent']).prefault('info'),
  };
}

type TextSetting = ReturnType<typeof setting.text>;

/** An absent name gets the sentence that says what to do, instead of the schema's own. */
function required(schema: TextSetting, message: string) {
  return schema.optional().transform((value, context) => {
    if (value === undefined) context.addIssue({ code: 'custom', message });
    return value ?? '';
  });
}

function names(what: string) {
  return setting
    .list()
    .refine((items) => items.length >= 1 && items.length <= 32, `must name 1 to 32 ${what}`)
    .refine((items) => items.every((item) => item.length <= 64), `must name ${what} of at most 64 characters`);
}

function labels() {
  return setting.list().transform((items, context) => {
    const out: Record<string, string> = {};
    for (const item of items) {
      const match = /^([^=]{1,64})=(.{0,64})$/.exec(item);
      if (match) out[match[1]!.trim()] = match[2]!.trim();
      else context.addIssue({ code: 'custom', message: `must be k=v,… but has '${item}'` });
    }
    return out;
  });
}

function runtimes() {
  return setting.list().transform((items, context) => {
    for (const item of items) {
      if (BUILT_RUNTIMES.includes(item)) continue;
      const message =
        item === 'acp'
          ? `the ${item} runtime is not available yet`
          : `'${item}' is not a runtime; there is: ${BUILT_RUNTIMES.join(', ')}`;
      context.addIssue({ code: 'custom', message });
    }
    if (items.length === 0) context.addIssue({ code: 'custom', message: 'must name at least one runtime' });
    return items;
  });
}

function upgradeKey() {
  return setting.text(1024).transform((value, context) => {
    const key = readUpgradeKey(value);
    if (key) return key;
    context.addIssue({ code: 'custom', message: 'must be a public Ed25519 key: PEM, or base64 of it' });
    return z.NEVER;
  });
}

function allowList() {
  return setting.list().transform((items, context) => {
    for (const item of items) {
      const [pattern = '', digest] = item.split(/@(.*)/s, 2);
      if (!/^[a-z0-9*?-]{1,64}$/.test(pattern)) {
        context.addIssue({ code: 'custom', message: `'${item}' is neither a template id nor a pattern with * and ?` });
      } else if (digest !== undefined && !/^sha256:[0-9a-f]{64}$/.test(digest)) {
        const advice = 'errand templates show prints it';
        context.addIssue({ code: 'custom', message: `'${item}' must pin sha256: and 64 hex digits (${advice})` });
      }
    }
    return items;
  });
}

function httpAllow() {
  return setting.list().transform((items, context) => {
    for (const item of items.filter((one) => parseAllowed(one) === undefined)) {
      context.addIssue({ code: 'custom', message: `'${item}' is no host, address or network such as 10.0.0.0/8` });
    }
    return items;
  });
}

function notYetAvailable(env: Environment): SettingProblem[] {
  return Object.keys(env)
    .filter((name) => env[name]?.trim() && (NOT_YET.some((known) => known === name) || NOT_YET_FAMILY.test(name)))
    .sort()
    .map((name) => ({ name, message: 'is not available yet' }));
}

/** Runs one reader; what it finds wrong joins the list. */
function collect<T>(problems: SettingProblem[], read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    problems.push(...error.problems);
    return undefined;
  }
}

function readText(name: string, path: string | undefined): string | undefined {
  if (!path) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new SettingsError([{ name, message: `cannot read ${path} (${(error as NodeJS.ErrnoException).code})` }]);
  }
}

interface SecretsFile {
  values: Map<string, string>;
  warnings: string[];
}

/** Lines `NAME=value`; empty lines and lines that start with # are skipped; one pair of quotes around the value is taken off. */
function readSecrets(path: string | undefined): SecretsFile {
  const values = new Map<string, string>();
  const text = readText('AGENT_SECRETS_FILE', path);
  if (!path || text === undefined) return { values, warnings: [] };
  const problems: SettingProblem[] = [];
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const problem = line.trim() === '' || line.trimStart().startsWith('#') ? undefined : readSecret(line, values);
    if (problem) problems.push({ name: 'AGENT_SECRETS_FILE', message: `line ${index + 1}: ${problem}` });
  }
  if (problems.length > 0) throw new SettingsError(problems);
  return { values, warnings: tooOpen(path) };
}

/** Answers what is wrong with the line, without its value. */
function readSecret(line: string, into: Map<string, string>): string | undefined {
  const match = /^\s*([A-Z_][A-Z0-9_]{0,63})\s*=\s*(.*?)\s*$/.exec(line);
  if (!match) return 'must be NAME=value with a name of capital letters, digits and underscores';
  const [, name, raw] = match as unknown as [string, string, string];
  const value = /^(["']).*\1$/.test(raw) && raw.length >= 2 ? raw.slice(1, -1) : raw;
  if (value.length < MIN_SECRET_CHARS)
    return `${name} is shorter than ${MIN_SECRET_CHARS} characters and cannot be masked`;
  if (value.includes('\0')) return `${name} contains a NUL character`;
  if (into.has(name)) return `${name} is given twice`;
  into.set(name, value);
  return undefined;
}

function tooOpen(path: string): string[] {
  const mode = statSync(path).mode & 0o777;
  const open = process.platform !== 'win32' && (mode & 0o077) !== 0;
  return open ? [`AGENT_SECRETS_FILE: ${path} can be read by others (mode ${mode.toString(8)}); chmod 600 it`] : [];
}
