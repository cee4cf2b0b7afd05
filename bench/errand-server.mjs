// A gateway for the benchmark: the product as built, on a folder of its own, with a `bench` template and one conversation.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [stateDir] = process.argv.slice(2);
const { startGateway } = await import('../dist/app.js');
const { readGatewaySettings } = await import('../dist/config/gateway.js');
const { createLog } = await import('../dist/log.js');
const { touchSessions } = await import('../dist/sessions/sessions.js');

const templates = join(stateDir, 'templates');
mkdirSync(templates, { recursive: true });
writeFileSync(
  join(templates, 'bench.yaml'),
  `id: bench
title: { en: Bench }
args:
  i: { type: integer, required: true }
  t: { type: number, required: true }
  tenant: { type: string, required: true }
  thread: { type: string, required: true }
  prompt: { type: string, required: true }
command: [node, --version]
timeout: 10m
`,
);
const settings = readGatewaySettings({
  ERRAND_STATE_DIR: stateDir,
  ERRAND_TEMPLATES_DIR: templates,
  ERRAND_PORT: '0',
  ...process.env,
});
const gateway = await startGateway({ settings, log: createLog({ level: 'warn' }) });
const sessionKey = 'agent:main:webchat:direct:bench';
const route = { channel: 'webchat', account: 'default', chat: 'bench', chatKind: 'direct' };
await gateway.rooms.store.transact('bench.session', (tx) => touchSessions(tx, [{ sessionKey, route, at: tx.now }]));
const agentTokens = [];
for (let i = 0; i < Number(process.env.TOKENS ?? 100); i += 1)
  agentTokens.push(await gateway.rooms.tokens.issue({ agentId: `agent-${i}`, pools: ['default'], labels: {} }));
process.send({ url: gateway.url, token: gateway.adminToken, agentTokens, sessionKey });
process.on('message', async () => {
  const { rss } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  await gateway.stop();
  process.send({ server_rss_mb: Math.round(rss / 1e6), server_cpu_ms: Math.round((user + system) / 1000) });
  process.exit(0);
});
process.on('disconnect', () => process.exit(1));
