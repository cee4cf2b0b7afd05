#!/usr/bin/env node
// A fleet: AGENTS simulated agents (real HTTP, long polls, one program of up to 3 s each) take mixed tasks for MINUTES, while one agent in
// fifty is killed each minute: its connections break, its runs are forgotten, and a new instance registers some seconds later.
//   npm run build && node bench/fleet.mjs                   1,000 agents, 10 minutes
//   AGENTS=200 MINUTES=2 RATE=20 node bench/fleet.mjs
// Prints what came of it and, as its last line, the figures as JSON. Goals: at least 99.9 % of tasks succeed, none is lost or doubled,
// heartbeat p99 under 100 ms, memory at the end at most 1.1 times that after a fifth of the time.
import { fork } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { Agent } from 'undici';
import { knobs, now, payload, quantile, round2, sleep } from './harness.mjs';

const AGENTS = Number(process.env.AGENTS ?? 1_000);
const MINUTES = Number(process.env.MINUTES ?? 10);
const RATE = Number(process.env.RATE ?? 50);
const KILLED_PER_MINUTE = 1 / 50;
const AWAY_MS = 5_000;
const HEARTBEAT_MS = 10_000;
const PULL_MS = 25_000;
const LONGEST_MS = 3_000;

const folder = resolve(knobs.dir, 'fleet');
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const server = fork(fileURLToPath(new URL('errand-server.mjs', import.meta.url)), [folder], {
  stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  env: { ...process.env, TOKENS: String(AGENTS) },
});
const { url, token, agentTokens, sessionKey } = await new Promise((done) => server.once('message', done));
const heartbeats = [];
const counts = { kills: 0, executions: 0, refused: 0 };
let isOver = false;

class SimulatedAgent {
  constructor(index) {
    this.index = index;
    this.starts = 0;
    void this.run();
  }

  /** One life after the other. */
  async run() {
    while (!isOver) {
      const life = { agentId: `agent-${this.index}`, instanceId: `${this.index}-${this.starts++}` };
      this.http = new Agent({ connections: 4, pipelining: 1, keepAliveTimeout: 60_000 });
      this.death = new AbortController();
      this.running = new Map();
      await this.live(life).catch((error) => {
        if (!this.death.signal.aborted && !isOver) console.error(`agent-${this.index}: ${error.message}`);
      });
      await this.http.destroy().catch(() => undefined);
      if (!isOver) await sleep(AWAY_MS);
    }
  }

  kill() {
    counts.kills += 1;
    this.death.abort();
  }

  async live(life) {
    const about = { bootId: 'b', version: '1.0.0', protocol: 1, host: 'h', pools: ['default'], labels: {} };
    await this.call('register', { ...life, ...about, runtimes: ['shell'], concurrency: 1 });
    await Promise.all([this.beat(life), this.work(life)]);
  }

  /** The registration was a sign of life: the first heartbeat comes somewhere in the interval, as with agents that wake at any time. */
  async beat(life) {
    await this.rest(HEARTBEAT_MS * Math.random());
    while (!isOver) {
      const activeRuns = [...this.running].map(([runId, { leaseToken }]) => ({ runId, leaseToken }));
      const sentAt = now();
      await this.call('heartbeat', { ...life, uptimeMs: 1, load: 0.1, activeRuns });
      heartbeats.push(now() - sentAt);
      await this.rest(HEARTBEAT_MS * (0.9 + Math.random() * 0.2));
    }
  }

  async work(life) {
    let tasks = [];
    while (!isOver) {
      if (tasks.length === 0)
        ({ tasks } = await this.call('pull', { ...life, maxTasks: 1, waitMs: PULL_MS, holding: [] }));
      for (const task of tasks) {
        this.running.set(task.runId, task);
        counts.executions += 1;
        await this.rest(task.args.t);
        const head = { runId: task.runId, leaseToken: task.leaseToken, at: Date.now() };
        const reports = [
          { ...head, seq: 1, type: 'started' },
          // One in twenty fails the first time.
          task.args.i % 20 === 0 && task.attempt === 1
            ? { ...head, seq: 2, type: 'failed', errorClass: 'transient', error: 'the first try fails' }
            : { ...head, seq: 2, type: 'succeeded', summary: 'fine', exitCode: 0 },
        ];
        const { results } = await this.call('report', { ...life, reports });
        if (results.some(({ result }) => result !== 'accepted')) counts.refused += 1;
        this.running.delete(task.runId);
      }
      tasks = [];
    }
  }

  /** @throws when it is killed meanwhile */
  rest(ms) {
    return setTimeout(ms, undefined, { signal: this.death.signal });
  }

  async call(path, body) {
    const { statusCode, body: answer } = await this.http.request({
      origin: url,
      path: `/api/agent/${path}`,
      method: 'POST',
      headers: { authorization: `Bearer ${agentTokens[this.index]}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: this.death.signal,
      headersTimeout: PULL_MS + 60_000,
    });
    const text = await answer.text();
    if (statusCode !== 200) throw new Error(`${path}: ${statusCode} ${text}`);
    return JSON.parse(text);
  }
}

const memoryMb = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))[1]) / 1_000;

async function online() {
  const response = await fetch(`${url}/api/agents`, { headers: { authorization: `Bearer ${token}` } });
  const { agents } = await response.json();
  return agents.filter((agent) => agent.online).length / AGENTS;
}

const agents = Array.from({ length: AGENTS }, (_, index) => new SimulatedAgent(index));
while ((await online()) < 1) await sleep(200);
const { SubmitClient } = await import('../dist/client/submit-client.js');
const client = new SubmitClient({ url, token });
const submissions = [];
const startedAt = now();
const endsAt = startedAt + MINUTES * 60_000;
const samples = { memory: [], online: [] };
const sampling = setInterval(async () => {
  samples.memory.push({ at: now() - startedAt, mb: memoryMb() });
  samples.online.push(await online());
}, 5_000);
for (let i = 0; now() < endsAt; i += 1) {
  const wait = startedAt + (i * 1_000) / RATE - now();
  if (wait > 1) await sleep(wait);
  const args = { ...payload(i), t: Math.round(Math.random() * LONGEST_MS) };
  submissions.push(client.submit({ template: 'bench', args, ...(i % 2 ? { sessionKey } : { notify: 'silent' }) }));
  if (Math.random() < (AGENTS * KILLED_PER_MINUTE) / 60 / RATE) agents[Math.floor(Math.random() * AGENTS)].kill();
}
const submitted = (await Promise.all(submissions)).length;
clearInterval(sampling);
const memoryAt = (share) => samples.memory.find(({ at }) => at >= MINUTES * 60_000 * share)?.mb ?? memoryMb();
const memory = { early: memoryAt(0.2), late: memoryMb() };

const reader = new Database(join(folder, 'errand.db'), { readonly: true });
const one = (sql) => reader.prepare(sql).pluck().get();
const OPEN = "select count(*) from task where status not in ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost')";
for (const until = now() + 120_000; one(OPEN) > 0 && now() < until; ) await sleep(200);
const figures = {
  agents: AGENTS,
  minutes: MINUTES,
  submitted,
  ...counts,
  stored: one('select count(*) from task'),
  open: one(OPEN),
  succeeded: one("select count(*) from task where status = 'succeeded'"),
  succeeded_twice: one(
    "select count(*) from (select task_id from run where outcome = 'succeeded' group by task_id having count(*) > 1)",
  ),
  messages_missing: one(
    "select count(*) from task where session_key is not null and (select count(*) from outbox where outbox.task_id = task.id and kind = 'final') <> 1",
  ),
  runs_lost: one("select count(*) from run where outcome = 'lost'"),
  success_percent: round2((100 * one("select count(*) from task where status = 'succeeded'")) / submitted),
  online_percent: round2((100 * samples.online.reduce((sum, share) => sum + share, 0)) / samples.online.length),
  heartbeat_p50_ms: round2(quantile(heartbeats, 0.5)),
  heartbeat_p99_ms: round2(quantile(heartbeats, 0.99)),
  rss_early_mb: round2(memory.early),
  rss_late_mb: round2(memory.late),
  rss_ratio: round2(memory.late / memory.early),
  rss_by_minute_mb: Array.from({ length: MINUTES }, (_, minute) => Math.round(memoryAt((minute + 1) / MINUTES))),
};
isOver = true;
for (const agent of agents) agent.death.abort();
for (const [name, value] of Object.entries(figures)) console.log(`${name.padEnd(18)} ${value}`);
console.log(JSON.stringify(figures));
server.kill('SIGKILL');
process.exit(0);
