#!/usr/bin/env node
// Makes the package that `errand agents publish` takes: this program and what an agent needs of node_modules, as one gzipped tar without
// links. No database driver is in it: an agent loads none.
//   node scripts/pack-agent.mjs [--out errand-agent-<version>.tar.gz]
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Of the dependencies, what an agent needs: no server, no database driver, no chat platform. A test starts the result. */
const NEEDED = ['commander', 'pino', 'undici', 'yaml', 'zod'];

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const [flag, file, ...more] = process.argv.slice(2);
if ((flag !== undefined && flag !== '--out') || (flag && !file) || more.length > 0)
  fail('usage: node scripts/pack-agent.mjs [--out <file>]', 2);
const out = resolve(file ?? `errand-agent-${version}.tar.gz`);

const built = spawnSync(process.execPath, [join(ROOT, 'scripts', 'build.mjs')], { stdio: ['ignore', 2, 2] });
if (built.status !== 0) fail('the build failed', 1);
const stage = mkdtempSync(join(tmpdir(), 'errand-pack-'));
try {
  const target = join(stage, 'package');
  mkdirSync(target);
  for (const name of ['package.json', 'LICENSE', 'README.md']) cpSync(join(ROOT, name), join(target, name));
  cpSync(join(ROOT, 'dist'), join(target, 'dist'), {
    recursive: true,
    filter: (path) => relative(join(ROOT, 'dist'), path) !== 'console' && !/\.(d\.ts|map)$/.test(path),
  });
  for (const folder of foldersOf(NEEDED)) {
    // A package inside of another is in the list itself, where it is needed.
    const isOwn = (path) => !relative(folder, path).split(/[\\/]/).includes('node_modules');
    cpSync(folder, join(target, relative(ROOT, folder)), { recursive: true, dereference: true, filter: isOwn });
  }
  execFileSync('tar', ['-czf', out, '-C', stage, 'package']);
} finally {
  rmSync(stage, { recursive: true, force: true });
}
console.log(`${basename(out)}: errand ${version}, ${(statSync(out).size / 2 ** 20).toFixed(1)} MiB`);
console.log(`publish it with: errand agents publish ${version} ${out}`);

/** Where these packages are installed, and all that they depend on. */
function foldersOf(names) {
  const found = new Set();
  const open = names.map((name) => [ROOT, name, true]);
  for (let next = open.pop(); next; next = open.pop()) {
    const folder = installedFor(...next);
    if (!folder || found.has(folder)) continue;
    found.add(folder);
    const { dependencies = {}, optionalDependencies = {} } = JSON.parse(
      readFileSync(join(folder, 'package.json'), 'utf8'),
    );
    for (const name of Object.keys(dependencies)) open.push([folder, name, !(name in optionalDependencies)]);
  }
  return found;
}

/** As Node looks for it: in the nearest node_modules upwards. */
function installedFor(from, name, isRequired) {
  for (let at = from; ; at = join(at, '..')) {
    const folder = join(at, 'node_modules', name);
    if (existsSync(join(folder, 'package.json'))) return folder;
    if (resolve(at) === resolve(ROOT)) break;
  }
  return isRequired ? fail(`${name} is not installed: npm ci`, 1) : undefined;
}

function fail(message, code) {
  console.error(`pack-agent: ${message}`);
  process.exit(code);
}
