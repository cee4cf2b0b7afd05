import type { Command } from 'commander';
import { readAgentSettings } from '../config/agent.ts';
import { readGatewaySettings } from '../config/gateway.ts';
import { type SettingProblem, SettingsError } from '../config/values.ts';
import type { Act, Context } from './context.ts';

/** `errand check` */
export function checkCommand(program: Command, act: Act): void {
  program
    .command('check')
    .description('check the settings of the gateway, and of the agent where AGENT_ variables are set; starts nothing')
    .addHelpText('after', '\nExamples:\n  errand check\n  errand check --settings agent.env')
    .action(act(check));
}

async function check({ env, io, show }: Context): Promise<void> {
  const hasAgent = Object.keys(env).some((name) => name.startsWith('AGENT_'));
  const problems = [
    ...problemsOf(() => void readGatewaySettings(env, io.cwd)),
    ...(hasAgent ? problemsOf(() => void readAgentSettings(env)) : []),
  ];
  if (problems.length > 0) throw new SettingsError(problems);
  const agent = hasAgent ? 'ok' : 'not configured';
  show({ gateway: 'ok', agent }, () => `gateway: ok\nagent: ${agent}`);
}

function problemsOf(read: () => void): readonly SettingProblem[] {
  try {
    read();
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    throw error;
  }
}
