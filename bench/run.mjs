#!/usr/bin/env node
// Runs Errand and BullMQ side by side on this machine, rounds interleaved, and prints medians and ratios of medians.
//   npm run bench                                   all sections, 5 rounds (about 15 minutes)
//   npm run bench -- --sections lifecycle --rounds 5 --json
// Needs redis-server on the PATH and a build (`npm run build`). The knobs of harness.mjs are environment variables (N, IN_FLIGHT, …).
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { knobs, sleep } from './harness.mjs';

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '5' },
    sections: { type: 'string', default: 'lifecycle,paced,agents,backlog,failover' },
  },
});
const rounds = Number(options.rounds);
const wanted = options.sections.split(',');
const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const dir = resolve(knobs.dir);

/** [label, script, variant] per section and mode; the first is the peer. */
const PLANS = {
  lifecycle: [
    [
      'lifecycle',
      [
        ['bullmq', 'bullmq', 'always'],
        ['silent', 'errand', 'silent'],
        ['notified', 'errand', 'notified'],
      ],
    ],
  ],
  paced: [
    [
      'paced',
      [
        ['bullmq', 'bullmq', 'always'],
        ['silent', 'errand', 'silent'],
        ['notified', 'errand', 'notified'],
      ],
    ],
  ],
  agents: [
    [
      'lifecycle',
      [
        ['one of 64', 'errand', 'silent'],
        ['100 of 1', 'errand', 'many'],
        ['bullmq 100 of 1', 'bullmq', 'many'],
      ],
    ],
  ],
  backlog: [
    [
      'shallow',
      [
        ['bullmq', 'bullmq', 'always'],
        ['silent', 'errand', 'silent'],
      ],
    ],
    [
      'backlog',
      [
        ['bullmq', 'bullmq', 'always'],
        ['silent', 'errand', 'silent'],
      ],
    ],
  ],
};

async function startRedis() {
  if (spawnSync('redis-server', ['--version']).error)
    throw new Error('redis-server is not on the PATH: apt-get install redis-server');
  const folder = resolve(dir, 'redis');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const args = [
    '--bind',
    '127.0.0.1',
    '--port',
    String(knobs.redisPort),
    '--dir',
    folder,
    '--save',
    '',
    '--maxmemory-policy',
    'noeviction',
  ];
  const server = spawn('redis-server', [...args, '--appendonly', 'yes', '--appendfsync', 'always'], {
    stdio: 'ignore',
  });
  await sleep(500);
  if (server.exitCode !== null)
    throw new Error(`redis-server ended with ${server.exitCode}: is port ${knobs.redisPort} in use?`);
  return server;
}

/** One contestant, one mode: its JSON line. */
function once([, script, variant], mode) {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, [here(`contestant-${script}.mjs`), variant, mode], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, BENCH_DIR: dir },
    });
    let text = '';
    child.stdout.on('data', (chunk) => (text += chunk));
    child.on('close', (code) => {
      const line = text.trim().split('\n').at(-1);
      const row = line?.startsWith('{') ? JSON.parse(line) : undefined;
      if (!row) fail(new Error(`${script} ${variant} ${mode} ended with ${code}`));
      else if (!row.verified) fail(new Error(`${script} ${variant} ${mode}: the store does not hold all completions`));
      else done(row);
    });
  });
}

async function measure(mode, contestants) {
  const rows = new Map(contestants.map(([label]) => [label, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (let k = 0; k < contestants.length; k += 1) {
      const contestant = contestants[(k + round) % contestants.length];
      const row = await once(contestant, mode);
      rows.get(contestant[0]).push(row);
      const shown =
        mode === 'paced'
          ? `${row.start_p50_ms}/${row.start_p99_ms} ms to start`
          : `${Math.round(row.take_per_s ?? row.tasks_per_s)} tasks/s`;
      console.error(`${mode} round ${round + 1} ${contestant[0]}: ${shown}`);
    }
  }
  return rows;
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];
const column = (rows, label, key) => median(rows.get(label).map((row) => row[key]));
const ratio = (a, b) => Math.round((a / b) * 100) / 100;

function table(title, rows, keys) {
  console.log(`\n## ${title}\n| contestant | ${keys.join(' | ')} |\n|---|${keys.map(() => '---|').join('')}`);
  for (const [label, list] of rows) {
    const cells = keys.map((key) => {
      const values = list.map((row) => row[key]).filter((value) => value != null);
      return values.length === 0 ? '-' : `${median(values)} (${Math.min(...values)} to ${Math.max(...values)})`;
    });
    console.log(`| ${label} | ${cells.join(' | ')} |`);
  }
}

const sections = {
  async lifecycle() {
    const rows = await measure(...PLANS.lifecycle[0]);
    table('lifecycle', rows, ['tasks_per_s', 'ack_p50_ms', 'ack_p99_ms', 'client_cpu_ms_per_task', 'server_cpu_ms']);
    const of = (label) => ratio(column(rows, label, 'tasks_per_s'), column(rows, 'bullmq', 'tasks_per_s'));
    return { silent: of('silent'), notified: of('notified') };
  },
  async paced() {
    const rows = await measure(...PLANS.paced[0]);
    table('paced', rows, ['start_p50_ms', 'start_p99_ms', 'ack_p50_ms', 'ack_p99_ms']);
    const of = (label, key) => ratio(column(rows, label, key), column(rows, 'bullmq', key));
    return {
      start_p50: of('silent', 'start_p50_ms'),
      start_p99: of('silent', 'start_p99_ms'),
      notified_start_p50: of('notified', 'start_p50_ms'),
      notified_start_p99: of('notified', 'start_p99_ms'),
    };
  },
  async agents() {
    const rows = await measure(...PLANS.agents[0]);
    table('agents', rows, ['tasks_per_s', 'ack_p50_ms', 'ack_p99_ms']);
    const rate = (label) => column(rows, label, 'tasks_per_s');
    return {
      hundred_to_one: ratio(rate('100 of 1'), rate('one of 64')),
      hundred_to_bullmq_hundred: ratio(rate('100 of 1'), rate('bullmq 100 of 1')),
    };
  },
  async backlog() {
    const result = {};
    for (const [mode, contestants] of PLANS.backlog) {
      const rows = await measure(mode, contestants);
      table(mode, rows, ['take_per_s', 'tasks_per_s', 'pending_after']);
      for (const [label] of contestants) result[`${label}_${mode}`] = column(rows, label, 'take_per_s');
    }
    return {
      deep_to_shallow: ratio(result.silent_backlog, result.silent_shallow),
      bullmq_deep_to_shallow: ratio(result.bullmq_backlog, result.bullmq_shallow),
      take_to_bullmq: ratio(result.silent_backlog, result.bullmq_backlog),
    };
  },
  async failover() {
    const { failover } = await import('./failover.mjs');
    return failover(dir);
  },
};

if (!existsSync(here('../dist/app.js'))) {
  console.error('bench: there is no build; run `npm run build` first');
  process.exit(2);
}
mkdirSync(dir, { recursive: true });
const redis = await startRedis();
const results = {};
try {
  console.log(
    `Node ${process.version}, ${availableParallelism()} cores, N=${knobs.n}, ${knobs.inFlight} in flight, ${rounds} interleaved rounds, medians (min to max)`,
  );
  for (const section of wanted) {
    if (!sections[section])
      throw new Error(`there is no section ${section}; there are ${Object.keys(sections).join(', ')}`);
    results[section] = await sections[section]();
    console.log(`\nratios, ${section}: ${JSON.stringify(results[section])}`);
  }
} catch (error) {
  console.error(`bench: ${error.message}`);
  process.exitCode = 1;
} finally {
  redis.kill();
}
if (options.json) console.log(JSON.stringify(results));
