import type { Command } from 'commander';
import { type AgentSettings, readAgentSettings } from '../config/agent.ts';
import { SettingsError } from '../config/values.ts';
import { machineFindings, settingsFileFinding } from './agent-doctor-machine.ts';
import { gatewayFindings } from './agent-doctor-network.ts';
import type { Act, Context } from './context.ts';
import { oneLine } from './table.ts';

/** What one check of `errand agent doctor` found. */
export interface Finding {
  check: string;
  status: 'ok' | 'warn' | 'fail';
  detail: string;
  /** What to do about it. */
  advice?: string | undefined;
}

/** `errand agent doctor` */
export function agentDoctorCommand(agent: Command, act: Act): void {
  agent
    .command('doctor')
    .description(
      'check what an agent needs on this machine, one line each; changes nothing; ends with 1 where something fails',
    )
    .addHelpText('after', '\nExample:\n  errand agent doctor --settings ~/.errand-agent/agent.env')
    .action(act(doctor));
}

async function doctor(context: Context): Promise<number> {
  const findings = await examine(context);
  const ok = findings.every(({ status }) => status !== 'fail');
  context.show({ ok, checks: findings }, () => findings.map(lineOf).join('\n'));
  return ok ? 0 : 1;
}

async function examine({ env, settingsFile }: Context): Promise<Finding[]> {
  const file = await settingsFileFinding(settingsFile);
  let settings: AgentSettings;
  try {
    settings = readAgentSettings(env);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    const wrong = error.problems.map(
      ({ name, message }): Finding => ({ check: 'settings', status: 'fail', detail: `${name} ${message}` }),
    );
    return [file, ...wrong];
  }
  const warnings = settings.warnings.map((detail): Finding => ({ check: 'settings', status: 'warn', detail }));
  return [
    file,
    { check: 'settings', status: 'ok', detail: `agent ${settings.agentId} of ${settings.gatewayUrl}` },
    ...warnings,
    ...(await gatewayFindings(settings)),
    ...(await machineFindings(settings, env.PATH ?? '')),
  ];
}

const CHECK_COLUMNS = 10;

function lineOf({ check, status, detail, advice }: Finding): string {
  const said = oneLine(advice === undefined ? detail : `${detail}: ${advice}`, 1_000);
  return `${status.padEnd(4)}  ${check.padEnd(CHECK_COLUMNS)}  ${said}`;
}
