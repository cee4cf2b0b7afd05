#!/usr/bin/env node
// What an agent costs that has nothing to do: memory and processor time over SECONDS (60), beside a gateway that runs.
//   npm run build && node bench/idle.mjs
// Goal: under 80 MB resident and under 1 % of one core.
import { fork, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { knobs, round2, sleep } from './harness.mjs';

const SECONDS = Number(process.env.SECONDS ?? 60);
const TICKS_PER_SECOND = 100;
const folder = resolve(knobs.dir, 'idle');
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const server = fork(here('errand-server.mjs'), [folder], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
const { url, token, agentTokens } = await new Promise((done) => server.once('message', done));
const agent = spawn(process.execPath, [here('../dist/cli/main.js'), 'agent'], {
  stdio: ['ignore', 'ignore', 'inherit'],
  env: {
    PATH: process.env.PATH,
    AGENT_GATEWAY_URL: url,
    AGENT_TOKEN: agentTokens[0],
    AGENT_ID: 'agent-0',
    AGENT_SPOOL_DIR: join(folder, 'spool'),
    AGENT_LOG_LEVEL: 'warn',
  },
});

const isOnline = async () => {
  const response = await fetch(`${url}/api/agents`, { headers: { authorization: `Bearer ${token}` } });
  return (await response.json()).agents.some((one) => one.online);
};
/** Of /proc/<pid>/stat: user and system time, seconds. */
const cpuSeconds = () => {
  const fields = readFileSync(`/proc/${agent.pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
};
const memoryMb = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${agent.pid}/status`, 'utf8'))[1]) / 1_000;

while (!(await isOnline())) await sleep(200);
await sleep(5_000);
const before = cpuSeconds();
await sleep(SECONDS * 1_000);
const figures = { rss_mb: round2(memoryMb()), cpu_percent: round2(((cpuSeconds() - before) / SECONDS) * 100) };
console.log(JSON.stringify(figures));
agent.kill('SIGKILL');
server.kill('SIGKILL');
process.exit(0);
