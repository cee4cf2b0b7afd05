import type { Command } from 'commander';
import type { Gateway } from '../app.ts';
import { readAgentSettings } from '../config/agent.ts';
import { readGatewaySettings } from '../config/gateway.ts';
import { createLog, type Log } from '../log.ts';
import { VERSION } from '../version.ts';
import { Api } from './api.ts';
import { type Act, type Context, tell } from './context.ts';
import { LocalAgent, localAgentEnv, localIdentity } from './local-agent.ts';
import { runUntilStopped } from './signals.ts';

/** `errand up` */
export function upCommand(program: Command, act: Act): void {
  program
    .command('up')
    .description('run the gateway and one local agent: everything on one machine')
    .addHelpText('after', '\nExamples:\n  errand up\n  ERRAND_PORT=9000 AGENT_CONCURRENCY=4 errand up')
    .action(act(up));
}

async function up(context: Context): Promise<number> {
  const { env, io } = context;
  const settings = readGatewaySettings(env, io.cwd);
  const identity = localIdentity(env);
  // The agent's settings are checked before anything starts; address and token come later.
  readAgentSettings(
    localAgentEnv(env, { identity, stateDir: settings.stateDir, url: 'http://127.0.0.1', token: 'later' }),
  );
  // A person looks at this terminal: troubles only, unless asked for more.
  const log = createLog({ level: env.ERRAND_LOG_LEVEL?.trim() ? settings.logLevel : 'warn' });
  const { startGateway } = await import('../app.ts');
  const gateway = await startGateway({ settings, log });
  const agent = new LocalAgent({
    env,
    cwd: io.cwd,
    stateDir: settings.stateDir,
    identity,
    url: gateway.url,
    tokens: gateway.rooms.tokens,
    log,
  });
  try {
    await agent.start();
    await announce(context, gateway, log);
  } catch (error) {
    await agent.stop();
    await gateway.stop();
    throw error;
  }
  const stop = async () => {
    // The agent first: what its programs still report is taken in.
    await agent.stop();
    await gateway.stop();
  };
  return runUntilStopped({ stop, hurry: () => agent.hurry() }, log);
}

/** Where the gateway and the web chat are; the link works once, and a new one is made at every start. */
async function announce(context: Context, gateway: Gateway, log: Log): Promise<void> {
  const api = new Api({ url: gateway.url, token: gateway.adminToken });
  const login = await api.post<{ url: string; expiresAt: number }>('/api/chat/logins', { user: 'admin' });
  log.info('up.ready', { url: gateway.url });
  tell(context, `errand ${VERSION} listens on ${gateway.url}`);
  tell(context, `Web chat, a link that works once and for 10 minutes:\n  ${login.url}`);
  tell(context, 'Ctrl-C stops.');
  const told = { url: gateway.url, version: VERSION, login };
  if (context.json) context.io.out(`${JSON.stringify(told)}\n`);
  // Whoever started us with a channel (the demo) learns it without reading our words.
  process.send?.(told);
}
