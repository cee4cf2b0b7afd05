// Builds dist/: the program (tsc) and the web chat page (vite). What is newer than its sources is left as it is; --force builds all.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const at = (...parts) => join(ROOT, ...parts);

const TARGETS = [
  {
    name: 'program',
    sources: ['src', 'tsconfig.json', 'tsconfig.build.json', 'package.json'],
    command: ['typescript/bin/tsc', '-p', 'tsconfig.build.json', '--noEmitOnError'],
    // A file that is gone from src must not live on in dist.
    prepare: () => removeAllBut(at('dist'), ['console']),
    finish: () => chmodSync(at('dist', 'cli', 'main.js'), 0o755),
  },
  {
    name: 'web chat page',
    sources: ['console', 'vite.config.ts', 'package.json'],
    command: ['vite/bin/vite.js', 'build', '--logLevel', 'warn'],
    prepare: () => undefined,
    finish: () => undefined,
  },
];

if (!existsSync(at('node_modules', 'typescript'))) fail('the dependencies are not installed: npm ci');
for (const target of TARGETS) build(target, process.argv.includes('--force'));

function build({ name, sources, command, prepare, finish }, force) {
  const stamp = at('dist', `.built-${name.replaceAll(' ', '-')}`);
  if (
    !force &&
    existsSync(stamp) &&
    statSync(stamp).mtimeMs > Math.max(...sources.map((source) => newestIn(at(source))))
  ) {
    console.log(`${name}: up to date`);
    return;
  }
  const startedAt = new Date();
  mkdirSync(at('dist'), { recursive: true });
  prepare();
  const [script, ...args] = command;
  const { status } = spawnSync(process.execPath, [at('node_modules', script), ...args], {
    cwd: ROOT,
    stdio: 'inherit',
  });
  if (status !== 0) fail(`${name}: the build failed`);
  finish();
  writeFileSync(stamp, `${startedAt.toISOString()}\n`);
  console.log(`${name}: built in ${((Date.now() - startedAt.getTime()) / 1_000).toFixed(1)} s`);
}

/** Folders count too: removing a file changes its folder. */
function newestIn(path) {
  const found = statSync(path);
  if (!found.isDirectory()) return found.mtimeMs;
  return Math.max(found.mtimeMs, ...readdirSync(path).map((name) => newestIn(join(path, name))));
}

function removeAllBut(folder, kept) {
  for (const name of readdirSync(folder)) {
    if (kept.includes(name) || name.startsWith('.built-')) continue;
    rmSync(join(folder, name), { recursive: true, force: true });
  }
}

function fail(message) {
  console.error(`build: ${message}`);
  process.exit(1);
}
