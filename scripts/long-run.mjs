#!/usr/bin/env node
// Runs a part of the tests for as long as you like, on new draws:
//   npm run simulate -- --minutes 10    the task engine on new seeds; one that breaks a law is printed with how to repeat it
//   npm run chaos -- --minutes 10       real processes, killed at random under load
// Exit code 1 when something broke.
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const RUNS = {
  simulate: { folder: 'test/simulation', variable: 'SIMULATE_MINUTES' },
  chaos: { folder: 'test/chaos', variable: 'CHAOS_MINUTES' },
};

const [name, ...args] = process.argv.slice(2);
const { folder, variable } = RUNS[name] ?? usage(`there is nothing called ${name}`);
const { status } = spawnSync('npx', ['--no-install', 'vitest', 'run', folder, '--reporter=verbose'], {
  stdio: 'inherit',
  env: { ...process.env, [variable]: String(minutesAsked()) },
});
process.exit(status ?? 1);

function minutesAsked() {
  let text;
  try {
    ({ minutes: text } = parseArgs({ args, options: { minutes: { type: 'string', default: '10' } } }).values);
  } catch (error) {
    usage(error.message);
  }
  const value = Number(text);
  if (!(value > 0 && value <= 10_000)) usage(`--minutes ${text}: must be a number of minutes, at most 10000`);
  return value;
}

function usage(problem) {
  console.error(`${problem}\nusage: npm run ${Object.keys(RUNS).join('|')} -- --minutes N`);
  process.exit(2);
}
