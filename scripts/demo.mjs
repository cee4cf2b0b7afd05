// The demo: gateway, one local agent and the web chat on this machine; one errand, its progress and its result. `--once` ends after it.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const MAIN = join(ROOT, 'dist', 'cli', 'main.js');
const ERRAND = '/run hello';
const once = process.argv.includes('--once');

const built = spawnSync(process.execPath, [join(ROOT, 'scripts', 'build.mjs')], {
  cwd: ROOT,
  stdio: ['ignore', 'pipe', 'inherit'],
  encoding: 'utf8',
});
if (built.status !== 0 || !existsSync(MAIN)) {
  process.stdout.write(built.stdout);
  process.exit(1);
}

// A group of its own: Ctrl-C reaches this script, which then stops it in order; the channel ends it when this script is killed.
const up = spawn(process.execPath, [MAIN, 'up'], {
  cwd: ROOT,
  stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  detached: true,
});
const gone = new Promise((resolve) => up.once('exit', (code) => resolve(code ?? 1)));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => up.kill('SIGTERM'));

const ready = await Promise.race([new Promise((resolve) => up.once('message', resolve)), gone]);
if (typeof ready === 'number') {
  if (ready === 2) console.error('demo: another port: ERRAND_PORT=8788 npm run demo');
  if (ready === 4)
    console.error(
      'demo: a gateway runs on this folder already; another folder: ERRAND_STATE_DIR=./data-demo npm run demo',
    );
  process.exit(1);
}
const { url, version, login } = ready;
console.log(`Errand ${version} runs on ${url}: gateway, one local agent, web chat.\n`);
console.log(`> ${ERRAND}`);
const failed = await send();

if (once) {
  up.kill('SIGTERM');
  await gone;
  process.exit(failed ? 1 : 0);
}
console.log(`\nYour turn. The web chat (the link works once, for 10 minutes):\n  ${login.url}\nCtrl-C stops.`);
process.exit(await gone);

/** Says the errand in the web chat and shows what comes back; answers whether it failed. */
function send() {
  const child = spawn(process.execPath, [MAIN, 'send', ERRAND, '--wait', '--url', url], {
    cwd: ROOT,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  // A gateway that ends meanwhile, or is stopped, ends the waiting.
  void gone.then(() => child.kill());
  return new Promise((resolve) => child.once('exit', (code) => resolve(code !== 0)));
}
