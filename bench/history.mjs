#!/usr/bin/env node
// Does a long history slow the present down? Seeds ROWS finished tasks (each with its run, flow and outgoing message, and a tenth of them
// with an event) and PENDING queued ones, then measures what people and agents ask for, over HTTP, one call after another.
//   npm run build && node bench/history.mjs              1,000,000 finished rows (about 2 GB of disk under .bench/history)
//   ROWS=50000 CALLS=200 node bench/history.mjs
// Prints a table and, as its last line, the figures as JSON. Goal: p99 under 10 ms.
import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { Pool } from 'undici';
import { knobs, now, payload, quantile, round2 } from './harness.mjs';

const { idCodec } = await import('../dist/ids.js');
const ROWS = Number(process.env.ROWS ?? 1_000_000);
const PENDING = Number(process.env.PENDING ?? 2_000);
const CALLS = Number(process.env.CALLS ?? 500);
const CHUNK = 50_000;
const DAY = 86_400_000;
const folder = resolve(knobs.dir, 'history');
const file = join(folder, 'errand.db');

async function startServer() {
  const child = fork(fileURLToPath(new URL('errand-server.mjs', import.meta.url)), [folder], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const address = await new Promise((done, failed) => {
    child.once('message', done);
    child.once('exit', (code) => failed(new Error(`the server ended with ${code}`)));
  });
  return {
    ...address,
    async stop() {
      const gone = new Promise((done) => child.once('exit', done));
      child.send('stop');
      await gone;
    },
  };
}

/** Finished five days ago at the earliest, so that nothing of it is pruned. Answers an id from the middle. */
function seed() {
  const db = new Database(file);
  db.pragma('synchronous = OFF');
  const first = db.prepare('select next from id_block').pluck().get();
  db.prepare('update id_block set next = next + ?').run(ROWS * 4 + PENDING + 5);
  const stream = first + ROWS * 4 + PENDING + 4;
  db.prepare(
    "insert into stream (id, queue, owner, template, lane, serial, created_at) values (?, 'default/shell', '', 'bench', 'main', '', 0)",
  ).run(stream);
  const start = Date.now() - 5 * DAY;
  const args = JSON.stringify(payload(1));
  const numbers = `with recursive n (i) as (select @from union all select i + 1 from n where i + 1 < @to)`;
  const at = `cast(@start + i * ${(4 * DAY) / ROWS} as integer)`;
  const statements = [
    `insert into flow (id, owner_session_key, status, route, goal, notify_policy, created_at, updated_at, ended_at)
     select @first + 4 * i, 'agent:main:webchat:direct:user' || (i % 100), 'finished', '{}', 'please', 'done_only', ${at}, ${at}, ${at} from n`,
    `insert into task (id, template, runtime, stream_id, status, priority, run_at, args, session_key, flow_id, source, scope_kind,
       notify_policy, delivery_status, attempt, max_attempts, timeout_ms, summary, created_at, started_at, ended_at, last_event_at, cleanup_after)
     select @first + 4 * i + 1, 'bench', 'shell', @stream, case when i % 50 = 0 then 'failed' else 'succeeded' end, 1, ${at}, @args,
       'agent:main:webchat:direct:user' || (i % 100), @first + 4 * i, 'chat', 'session', 'done_only', 'delivered', 1, 3, 600000, 'fine',
       ${at}, ${at}, ${at}, ${at}, ${at} + ${7 * DAY} from n`,
    `insert into run (id, task_id, generation, attempt, agent_id, instance_id, lease_token, deadline_at, claimed_at, started_at, ended_at, outcome)
     select @first + 4 * i + 2, @first + 4 * i + 1, 1, 1, 'agent-0', 'i', 't', ${at}, ${at}, ${at}, ${at}, 'succeeded' from n`,
    `insert into outbox (id, channel, account, chat, route, session_key, kind, text, status, task_id, flow_id, dedupe_key, next_at, give_up_at, created_at, sent_at)
     select @first + 4 * i + 3, 'webchat', 'default', 'user' || (i % 100), '{}', 'agent:main:webchat:direct:user' || (i % 100), 'final', 'fine', 'sent',
       @first + 4 * i + 1, @first + 4 * i, 'seed' || i, ${at}, ${at}, ${at}, ${at} from n`,
    `insert into event (task_id, run_id, seq, type, at, data) select @first + 4 * i + 1, @first + 4 * i + 2, 1, 'progress', ${at}, '{}' from n where i % 10 = 0`,
  ].map((text) =>
    db.prepare(`${text.slice(0, text.indexOf('select '))}${numbers} ${text.slice(text.indexOf('select '))}`),
  );
  const chunk = db.transaction((from, to) => {
    for (const statement of statements) {
      const given = { from, to, first, start, args, stream };
      const used = Object.fromEntries(Object.entries(given).filter(([name]) => statement.source.includes(`@${name}`)));
      statement.run(used);
    }
  });
  for (let from = 0; from < ROWS; from += CHUNK) chunk(from, Math.min(ROWS, from + CHUNK));
  db.prepare(
    `with recursive n (i) as (select 0 union all select i + 1 from n where i + 1 < ?)
     insert into task (id, template, runtime, stream_id, status, priority, run_at, args, source, scope_kind, notify_policy, delivery_status,
       max_attempts, timeout_ms, created_at, last_event_at)
     select ? + i, 'bench', 'shell', ?, 'queued', 1, ?, ?, 'api', 'system', 'silent', 'not_applicable', 3, 600000, ?, ? from n`,
  ).run(PENDING, first + 4 * ROWS, stream, start, args, start, start);
  db.pragma('wal_checkpoint(TRUNCATE)');
  const key = db.prepare("select value from meta where key = 'id_key'").pluck().get();
  db.close();
  return idCodec(Buffer.from(key, 'hex')).encode(first + 2 * ROWS);
}

async function measure(server) {
  const figures = {};
  const pool = new Pool(server.url, { connections: 1 });
  const call = async (method, path, body, token = server.token) => {
    const response = await pool.request({
      method,
      path,
      headers: { authorization: `Bearer ${token}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const text = await response.body.text();
    if (response.statusCode >= 300) throw new Error(`${method} ${path}: ${response.statusCode} ${text}`);
    return JSON.parse(text);
  };
  const timed = async (name, work, calls = CALLS, before = () => undefined) => {
    const times = [];
    for (let n = 0; n < calls; n += 1) {
      await before();
      const started = now();
      await work(n);
      times.push(now() - started);
    }
    figures[name] = { p50: round2(quantile(times, 0.5)), p99: round2(quantile(times, 0.99)) };
  };
  const { middle, agentTokens } = server;
  const agent = { agentId: 'agent-0', instanceId: randomUUID() };
  const about = {
    bootId: 'b',
    version: '1.0.0',
    protocol: 1,
    host: 'h',
    pools: ['default'],
    labels: {},
    runtimes: ['shell'],
  };
  await call('POST', '/api/agent/register', { ...agent, ...about, concurrency: 1_024 }, agentTokens[0]);
  for (let n = 0; n < 20; n += 1) await call('GET', '/api/tasks');
  // A reading is kept for a second: only calls that make one count.
  const rested = () => new Promise((done) => setTimeout(done, 1_001));
  await timed('figures (/api/stats)', () => call('GET', '/api/stats'), Math.min(20, CALLS), rested);
  await timed('tasks, page 1', () => call('GET', '/api/tasks?limit=50'));
  await timed('tasks, far page', () => call('GET', `/api/tasks?limit=50&cursor=${middle}`));
  await timed('tasks that failed, page 1', () => call('GET', '/api/tasks?limit=50&status=failed'));
  await timed('tasks that run', () => call('GET', '/api/tasks?limit=50&status=running'));
  await timed('tasks of a conversation', (n) =>
    call('GET', `/api/tasks?limit=50&session=agent:main:webchat:direct:user${n % 100}`),
  );
  await timed('flows, page 1', () => call('GET', '/api/flows?limit=50'));
  await timed('flows, far page', () => call('GET', `/api/flows?limit=50&cursor=${middle}`));
  await timed('live flows', () => call('GET', '/api/flows?limit=50&status=active'));
  await timed('messages, page 1', () => call('GET', '/api/outbox?limit=50'));
  await timed('messages that are dead', () => call('GET', '/api/outbox?limit=50&state=dead'));
  const heard = await answersOf(server);
  await timed('chat command /status', async () => {
    const answer = heard.next();
    await call('POST', '/api/chat/messages', { text: '/status', user: 'user7' });
    await answer;
  });
  heard.close();
  await timed(
    'claim of one task',
    async () => {
      const { tasks } = await call(
        'POST',
        '/api/agent/pull',
        { ...agent, maxTasks: 1, waitMs: 0, holding: [] },
        agentTokens[0],
      );
      if (tasks.length !== 1) throw new Error(`${tasks.length} tasks`);
    },
    Math.min(CALLS, PENDING),
  );
  return figures;
}

/** The live side of the web chat, as its page has it: the bot's messages as they come. */
async function answersOf({ url, token }) {
  const gone = new AbortController();
  const response = await fetch(`${url}/api/chat/events?user=user7`, {
    headers: { authorization: `Bearer ${token}` },
    signal: gone.signal,
  });
  let tell = () => undefined;
  const read = async () => {
    let text = '';
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const events = text.split('\n\n');
      text = events.pop();
      for (const event of events) {
        const data = /^data: (.*)$/m.exec(event)?.[1];
        if (data && JSON.parse(data).from === 'bot') tell();
      }
    }
  };
  read().catch(() => undefined);
  return {
    next: () =>
      new Promise((done) => {
        tell = done;
      }),
    close: () => gone.abort(),
  };
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
await (await startServer()).stop();
console.error(`seeding ${ROWS} finished tasks …`);
const middle = seed();
const server = await startServer();
const figures = await measure({ ...server, middle });
await server.stop();
const width = Math.max(...Object.keys(figures).map((name) => name.length));
for (const [name, { p50, p99 }] of Object.entries(figures))
  console.log(`${name.padEnd(width)}  p50 ${p50} ms  p99 ${p99} ms`);
console.log(
  JSON.stringify({ rows: ROWS, pending: PENDING, megabytes: Math.round(statSync(file).size / 1e6), ...figures }),
);
