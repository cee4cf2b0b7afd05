// Errand as built: gateway on SQLite (synchronous=FULL), submitter and agent over HTTP, each in its own process.
//   silent    tasks nobody waits for: task, attempt and event rows
//   notified  tasks of a conversation: flow and outgoing message rows too
//   many      as silent, with 100 agents of concurrency 1 instead of one of 64
import { fork } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { knobs, payload, pendingFor, RESULT, run } from './harness.mjs';

const folderOf = (ctx) => resolve(knobs.dir, `errand-${ctx.variant}-${pendingFor(ctx.mode) > 0 ? ctx.mode : 'life'}`);
const addressOf = (ctx) => JSON.parse(readFileSync(join(folderOf(ctx), 'address.json'), 'utf8'));
const result = JSON.stringify(RESULT);
let server;
let reader;

const submissionOf = (ctx, address) => (args) => ({
  template: 'bench',
  args,
  ...(ctx.variant === 'notified' ? { sessionKey: address.sessionKey } : { notify: 'silent' }),
});

async function submitterOf(ctx) {
  const { SubmitClient } = await import('../dist/client/submit-client.js');
  const address = addressOf(ctx);
  const client = new SubmitClient({ url: address.url, token: address.token });
  const submission = submissionOf(ctx, address);
  return { submit: (data) => client.submit(submission(data)), close: () => client.close() };
}

await run({
  name: 'errand',
  url: import.meta.url,
  async prepare(ctx) {
    const dir = folderOf(ctx);
    const pending = pendingFor(ctx.mode);
    if (pending === 0 && existsSync(dir)) rmSync(dir, { recursive: true });
    mkdirSync(dir, { recursive: true });
    server = fork(fileURLToPath(new URL('errand-server.mjs', import.meta.url)), [dir], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const address = await new Promise((done) => server.once('message', done));
    writeFileSync(join(dir, 'address.json'), JSON.stringify(address), { mode: 0o600 });
    reader = new Database(join(dir, 'errand.db'), { readonly: true });
    const have = this.countPending();
    if (pending > have) {
      const filler = await submitterOf(ctx);
      for (let i = have; i < pending; i += 2_000) {
        await Promise.all(
          Array.from({ length: Math.min(2_000, pending - i) }, (_, k) => filler.submit(payload(i + k))),
        );
      }
      await filler.close();
    }
  },
  openSubmitter: submitterOf,
  async openWorker(ctx, told) {
    const { createAgent } = await import('../dist/agents/worker/agent.js');
    const { readAgentSettings } = await import('../dist/config/agent.js');
    const { systemClock } = await import('../dist/clock.js');
    const { createLog } = await import('../dist/log.js');
    const { url, agentTokens } = addressOf(ctx);
    const many = ctx.variant === 'many';
    const noop = {
      async run(job) {
        told.started(job.assignment.args);
        setImmediate(() => told.completed()); // the run's end is on its way; the store is asked for the truth
        return { type: 'succeeded', summary: result, exitCode: 0 };
      },
    };
    const agents = agentTokens.slice(0, many ? 100 : 1).map((token, index) => {
      const settings = readAgentSettings({
        AGENT_GATEWAY_URL: url,
        AGENT_TOKEN: token,
        AGENT_ID: `agent-${index}`,
        AGENT_CONCURRENCY: String(many ? 1 : knobs.inFlight),
        AGENT_SPOOL_DIR: join(folderOf(ctx), `spool-${index}`),
        AGENT_LOG_LEVEL: 'warn',
      });
      return createAgent({
        settings,
        clock: systemClock,
        version: 'bench',
        log: createLog({ level: 'warn' }),
        runtimes: new Map([['shell', noop]]),
      });
    });
    await Promise.all(agents.map((agent) => agent.start()));
    return { close: () => Promise.all(agents.map((agent) => agent.stop())) };
  },
  countDone: () => reader.prepare("select count(*) as n from task where status = 'succeeded'").get().n,
  countPending: () => reader.prepare("select count(*) as n from task where status = 'queued'").get().n,
  async end() {
    const pending_after = this.countPending();
    const rows = Object.fromEntries(
      ['task', 'run', 'event', 'flow', 'outbox'].map((table) => [
        table,
        reader.prepare(`select count(*) as n from ${table}`).get().n,
      ]),
    );
    reader.close();
    server.send('stop');
    return { pending_after, rows, ...(await new Promise((done) => server.once('message', done))) };
  },
});
