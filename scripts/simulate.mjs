#!/usr/bin/env node
// Runs the simulation of test/simulation on new seeds for a while: npm run simulate -- --minutes 10
// A seed that breaks a law is printed with its last steps and the command that repeats it; then the exit code is 1.
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const minutes = minutesAsked();
const { status } = spawnSync('npx', ['--no-install', 'vitest', 'run', 'test/simulation', '--reporter=verbose'], {
  stdio: 'inherit',
  env: { ...process.env, SIMULATE_MINUTES: String(minutes) },
});
process.exit(status ?? 1);

function minutesAsked() {
  let text;
  try {
    ({ minutes: text } = parseArgs({ options: { minutes: { type: 'string', default: '10' } } }).values);
  } catch (error) {
    usage(error.message);
  }
  const value = Number(text);
  if (!(value > 0 && value <= 10_000)) usage(`--minutes ${text}: must be a number of minutes, at most 10000`);
  return value;
}

function usage(problem) {
  console.error(`${problem}\nusage: npm run simulate -- --minutes N`);
  process.exit(2);
}
