import type { Command } from 'commander';
import { readGatewaySettings } from '../config/gateway.ts';
import { createLog } from '../log.ts';
import { VERSION } from '../version.ts';
import { type Act, type Context, tell } from './context.ts';
import { runUntilStopped } from './signals.ts';

/** `errand gateway` */
export function gatewayCommand(program: Command, act: Act): void {
  program
    .command('gateway')
    .description('run the gateway; its log goes to standard error')
    .addHelpText('after', '\nExample:\n  ERRAND_STATE_DIR=/var/lib/errand errand gateway')
    .action(act(gateway));
}

async function gateway(context: Context): Promise<number> {
  const settings = readGatewaySettings(context.env, context.io.cwd);
  const log = createLog({ level: settings.logLevel });
  // Loaded here: the other commands need neither server nor database.
  const { startGateway } = await import('../app.ts');
  const running = await startGateway({ settings, log });
  tell(context, `errand ${VERSION} listens on ${running.url}`);
  if (context.json) context.io.out(`${JSON.stringify({ url: running.url, version: VERSION })}\n`);
  return runUntilStopped(running, log);
}
