import type { Command } from 'commander';
import { systemClock } from '../clock.ts';
import { readAgentSettings } from '../config/agent.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { VERSION } from '../version.ts';
import { type Act, type Context, tell } from './context.ts';
import { runUntilStopped } from './signals.ts';

/** `errand agent` */
export function agentCommand(program: Command, act: Act): void {
  program
    .command('agent')
    .description('run an agent: it pulls tasks from the gateway and runs them here; its log goes to standard error')
    .addHelpText('after', '\nExample:\n  errand agent --settings agent.env')
    .action(act(agent));
}

async function agent(context: Context): Promise<number> {
  const settings = readAgentSettings(context.env);
  const log = createLog({ level: settings.logLevel });
  const { createAgent } = await import('../agents/worker/agent.ts');
  const running = createAgent({ settings, log, clock: systemClock, version: VERSION });
  await running.start();
  tell(context, `agent ${settings.agentId} works for ${settings.gatewayUrl}`);
  const ended = running.ended.then(({ reason, exitCode }) => {
    if (reason === 'stopped') return exitCode;
    throw new AppError(
      'session_replaced',
      `a newer instance of agent ${settings.agentId} has registered; this one has ended`,
    );
  });
  return runUntilStopped({ stop: () => running.stop(), hurry: () => running.hurry(), ended }, log);
}
