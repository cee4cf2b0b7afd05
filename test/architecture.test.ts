import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

/** Architecture, section 4, as one table. Everything below reads it; nothing else decides who may import whom. */

/** Each room may import those before it. */
const ORDER = [
  'leaf',
  'config',
  'telemetry',
  'store',
  'engine',
  'sessions',
  'outbox',
  'tasks',
  'flows',
  'approvals',
  'workflows',
  'cron',
  'releases',
  'agents',
  'health',
  'notifications',
  'followup',
  'commands',
  'intake',
  'artifacts',
  'retention',
  'http',
  'app',
  'cli',
];

/** Rooms beside that order: what they may import, and who may import them. */
const BESIDE: Readonly<Record<string, { imports: readonly string[]; importedBy: readonly string[] | 'everybody' }>> = {
  /** The ports: types and schemas that both sides speak. */
  'channels/channel.ts': { imports: [], importedBy: 'everybody' },
  'agents/protocol.ts': {
    imports: ['tasks'],
    importedBy: ['flows', 'releases', 'agents', 'artifacts', 'http', 'app', 'cli', 'agents/worker'],
  },
  /** How arguments get into what is run: the same on both sides, so that an agent can check what it is asked for. */
  'agents/artifact-protocol.ts': {
    imports: ['agents/protocol.ts'],
    importedBy: ['artifacts', 'http', 'agents/worker'],
  },
  'agents/join-protocol.ts': { imports: ['agents/protocol.ts'], importedBy: ['agents', 'http', 'cli'] },
  'agents/health-protocol.ts': { imports: ['tasks', 'agents/protocol.ts'], importedBy: ['http', 'agents/worker'] },
  'agents/run-content.ts': {
    imports: ['leaf', 'tasks', 'agents/protocol.ts'],
    importedBy: ['flows', 'agents', 'http', 'agents/worker'],
  },
  /** Adapters know the port and nothing of the house. */
  'channels/rates.ts': { imports: ['channels/channel.ts'], importedBy: ['outbox', 'app'] },
  'channels/text.ts': { imports: ['leaf'], importedBy: ['channels/telegram', 'channels/wecom', 'channels/webchat'] },
  'channels/telegram': { imports: ['leaf', 'config', 'channels/channel.ts', 'channels/text.ts'], importedBy: ['app'] },
  'channels/wecom': { imports: ['leaf', 'config', 'channels/channel.ts', 'channels/text.ts'], importedBy: ['app'] },
  'channels/webchat': { imports: ['leaf', 'config', 'channels/channel.ts', 'channels/text.ts'], importedBy: ['app'] },
  /** The agent process loads no database driver and no room of the gateway. */
  'agents/worker': {
    imports: [
      ...['leaf', 'config', 'agents/protocol.ts', 'agents/artifact-protocol.ts', 'agents/health-protocol.ts'],
      'agents/run-content.ts',
    ],
    importedBy: ['cli'],
  },
  /** For programs that submit tasks over HTTP. */
  client: { imports: ['leaf', 'flows'], importedBy: ['cli'] },
};

/** Packages, and the only places that may import them. A package that is not named here may be imported nowhere. */
const PACKAGES: Readonly<Record<string, RegExp>> = {
  kysely: /^store\/|(^|[/-])queries\.ts$/,
  'better-sqlite3': /^store\//,
  pg: /^store\//,
  bullmq: /^engine\//,
  ioredis: /^engine\//,
  grammy: /^channels\/telegram\//,
  '@wecom/crypto': /^channels\/wecom\//,
  'fast-xml-parser': /^channels\/wecom\//,
  fastify: /^http\//,
  'fastify-type-provider-zod': /^http\//,
  '@fastify/cookie': /^http\//,
  '@fastify/static': /^http\//,
  '@fastify/swagger': /^http\//,
  '@fastify/swagger-ui': /^http\//,
  'prom-client': /^(telemetry|http)\//,
  pino: /^log\.ts$/,
  commander: /^cli\//,
  yaml: /^flows\//,
  undici: /^(agents\/worker|client|channels\/(telegram|wecom)|cli)\/|^http-call\.ts$/,
  zod: /^(config|flows|http|channels|store|sessions)\/|^agents\/((artifact-|health-|join-)?protocol\.ts|worker\/)/,
};

const ROOT = join(import.meta.dirname, '..');
const SOURCES = join(ROOT, 'src');

interface SourceFile {
  /** Relative to src. */
  path: string;
  text: string;
  imports: string[];
}

const files: SourceFile[] = readdirSync(SOURCES, { recursive: true })
  .map(String)
  .filter((path) => path.endsWith('.ts'))
  .map((path) => {
    const text = readFileSync(join(SOURCES, path), 'utf8');
    return { path, text, imports: ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName) };
  });

function roomOf(path: string): string {
  const beside = Object.keys(BESIDE).find((room) => path === room || path.startsWith(`${room}/`));
  if (beside) return beside;
  const [first, ...rest] = path.split('/');
  if (rest.length > 0) return first!;
  return first === 'app.ts' ? 'app' : 'leaf';
}

/** Null where the law allows it, else what it says. */
function breach(from: string, to: string): string | null {
  if (from === to) return null;
  const [source, target] = [BESIDE[from], BESIDE[to]];
  const allowed =
    (source
      ? source.imports.includes(to) || target?.importedBy === 'everybody'
      : !target && ORDER.indexOf(to) < ORDER.indexOf(from)) ||
    (target !== undefined && !source && (target.importedBy === 'everybody' || target.importedBy.includes(from)));
  return allowed ? null : `${from} may not import ${to}`;
}

const isRelative = (name: string) => name.startsWith('.');
const packageOf = (name: string) =>
  name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/');

it('enough was read for the rest to mean anything', () => {
  expect(files.length).toBeGreaterThan(100);
  expect(files.reduce((sum, file) => sum + file.imports.length, 0)).toBeGreaterThan(500);
});

it('every room has its place in the table', () => {
  const known = new Set([...ORDER, ...Object.keys(BESIDE)]);
  expect([...new Set(files.map(({ path }) => roomOf(path)))].filter((room) => !known.has(room))).toEqual([]);
});

it('rooms import only what stands before them', () => {
  const breaches = files.flatMap(({ path, imports }) =>
    imports.filter(isRelative).flatMap((name) => {
      const target = normalize(join(dirname(path), name));
      const rule = target.startsWith('..') ? 'outside of src' : breach(roomOf(path), roomOf(target));
      return rule === null ? [] : [`${path} → ${target}: ${rule}`];
    }),
  );
  expect(breaches).toEqual([]);
});

it('packages are imported only where they belong, and are real dependencies', () => {
  const { dependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const breaches = files.flatMap(({ path, imports }) =>
    imports
      .filter((name) => !isRelative(name) && !name.startsWith('node:'))
      .flatMap((name) => {
        const place = PACKAGES[packageOf(name)];
        if (!place?.test(path)) return [`${path} → ${name}`];
        return packageOf(name) in dependencies ? [] : [`${name} is not among the dependencies`];
      }),
  );
  expect(breaches).toEqual([]);
});

it('the agent process reaches no database, however many steps it takes', () => {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const seen = new Set<string>();
  const packages = new Set<string>();
  const visit = (path: string) => {
    if (seen.has(path)) return;
    seen.add(path);
    for (const name of byPath.get(path)?.imports ?? []) {
      if (isRelative(name)) visit(normalize(join(dirname(path), name)));
      else packages.add(packageOf(name));
    }
  };
  for (const { path } of files) if (path.startsWith('agents/worker/')) visit(path);
  expect(seen.size).toBeGreaterThan(20);
  expect([...packages].filter((name) => ['kysely', 'better-sqlite3', 'fastify', 'grammy'].includes(name))).toEqual([]);
  expect([...seen].filter((path) => /^(store|flows|outbox|sessions|http)\//.test(path))).toEqual([]);
});

describe('files', () => {
  const bad = (test: (file: SourceFile) => boolean) => files.filter(test).map(({ path }) => path);

  it('are no longer than 400 lines', () => {
    expect(bad(({ text }) => text.split('\n').length > 400)).toEqual([]);
  });

  it('have names in kebab case, and are named after what they hold', () => {
    expect(bad(({ path }) => !path.split('/').every((part) => /^[a-z0-9]+(-[a-z0-9]+)*(\.ts)?$/.test(part)))).toEqual(
      [],
    );
    expect(
      bad(({ path }) => /(^|[/-])(util|utils|helper|helpers|manager|misc|common|index)(\.ts|\/|-)/.test(path)),
    ).toEqual([]);
  });

  it('export by name, name the files they import in full, and the builtin modules by their scheme', () => {
    expect(bad(({ text }) => /^export default|^export \* from/m.test(text))).toEqual([]);
    const builtin =
      /^(fs|path|crypto|http|https|net|tls|os|url|util|stream|events|child_process|zlib|timers|dns|buffer)(\/|$)/;
    const wrong = files.flatMap(({ path, imports }) =>
      imports
        .filter((name) => (isRelative(name) ? !name.endsWith('.ts') : builtin.test(name)))
        .map((name) => `${path} → ${name}`),
    );
    expect(wrong).toEqual([]);
  });

  it('read the environment in config alone; the command line hands it over', () => {
    // A program is handed PATH, HOME and the like of the agent that starts it: these are no settings.
    const inherits = 'agents/worker/runtime/run-folder.ts';
    expect(
      bad(({ path, text }) => /process\.env\b/.test(text) && !/^(config|cli)\//.test(path) && path !== inherits),
    ).toEqual([]);
  });
});

it('the law itself refuses what it should', () => {
  const cases: [from: string, to: string, allowed: boolean][] = [
    ['tasks/claim.ts', 'store/tx.ts', true],
    ['tasks/claim.ts', 'flows/start.ts', false],
    ['store/sqlite.ts', 'ids.ts', true],
    ['ids.ts', 'store/tx.ts', false],
    ['channels/telegram/send.ts', 'channels/channel.ts', true],
    ['channels/telegram/send.ts', 'channels/wecom/api.ts', false],
    ['channels/wecom/api.ts', 'store/tx.ts', false],
    ['http/server.ts', 'channels/telegram/channel.ts', false],
    ['app.ts', 'channels/telegram/channel.ts', true],
    ['agents/worker/run.ts', 'agents/protocol.ts', true],
    ['agents/worker/run.ts', 'tasks/task.ts', false],
    ['agents/gateway.ts', 'agents/worker/run.ts', false],
    ['outbox/enqueue.ts', 'channels/channel.ts', true],
    ['flows/spec.ts', 'agents/protocol.ts', true],
    ['flows/spec.ts', 'agents/gateway.ts', false],
    ['outbox/enqueue.ts', 'agents/protocol.ts', false],
  ];
  for (const [from, to, allowed] of cases)
    expect([from, to, breach(roomOf(from), roomOf(to)) === null]).toEqual([from, to, allowed]);
});
