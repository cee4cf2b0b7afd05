import type { Command } from 'commander';
import type { SupervisorNews } from '../agents/worker/upgrade/supervisor.ts';
import { systemClock } from '../clock.ts';
import { readAgentSettings } from '../config/agent.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { VERSION } from '../version.ts';
import { agentDoctorCommand } from './agent-doctor.ts';
import { agentJoinCommand } from './agent-join.ts';
import { agentUnitCommand } from './agent-service.ts';
import { type Act, type Context, tell } from './context.ts';
import { runUntilStopped } from './signals.ts';

/** `errand agent` */
export function agentCommand(program: Command, act: Act): void {
  const command = program
    .command('agent')
    .description('run an agent: it pulls tasks from the gateway and runs them here; its log goes to standard error')
    .option('--supervise', 'keep it running, and change to newer versions with AGENT_AUTO_UPGRADE=idle')
    .addHelpText('after', '\nExample:\n  errand agent --settings agent.env --supervise')
    .action(act(agent));
  agentJoinCommand(command, act);
  agentUnitCommand(command, act);
  agentDoctorCommand(command, act);
}

async function agent(context: Context, { supervise: isSupervisor }: { supervise?: true }): Promise<number> {
  const settings = readAgentSettings(context.env);
  const log = createLog({ level: settings.logLevel });
  if (isSupervisor) {
    const { supervise } = await import('./agent-supervise.ts');
    return supervise(context, settings, log);
  }
  const { createAgent } = await import('../agents/worker/agent.ts');
  const running = createAgent({ settings, log, clock: systemClock, version: VERSION, supervisor: supervisorOf() });
  await running.start();
  tell(context, `agent ${settings.agentId} works for ${settings.gatewayUrl}`);
  const ended = running.ended.then(({ reason, exitCode }) => {
    if (reason !== 'replaced') return exitCode;
    throw new AppError(
      'session_replaced',
      `a newer instance of agent ${settings.agentId} has registered; this one has ended`,
    );
  });
  return runUntilStopped({ stop: () => running.stop(), hurry: () => running.hurry(), ended }, log);
}

/** The channel to `errand agent --supervise`, where that has started us. */
function supervisorOf() {
  if (!process.connected || process.env.ERRAND_SUPERVISED !== '1') return undefined;
  const tell = (news: SupervisorNews) => process.send?.(news, () => undefined);
  return { registered: (version: string) => tell({ errand: 'registered', version }) };
}
