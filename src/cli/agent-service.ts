import { realpathSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname } from 'node:path';
import type { Command } from 'commander';
import { readAgentSettings } from '../config/agent.ts';
import { AppError } from '../errors.ts';
import { readAgentFile } from './agent-file.ts';
import { systemdUnit } from './agent-unit.ts';
import type { Act, Context } from './context.ts';

/** `errand agent unit` */
export function agentUnitCommand(agent: Command, act: Act): void {
  agent
    .command('unit')
    .description('print a systemd unit that runs the agent of this settings file')
    .addHelpText('after', '\nExample:\n  errand agent unit --settings ~/.errand-agent/agent.env')
    .action(act(unit));
}

async function unit({ settingsFile, show }: Context): Promise<void> {
  if (settingsFile === undefined)
    throw new AppError('invalid_request', "--settings: name the agent's settings file", { field: '--settings' });
  const text = unitFor(settingsFile);
  show({ unit: text }, () => text);
}

/**
 * The unit for an agent with these settings, run by this very program as whoever runs it now. The environment does not count: the
 * unit will have another. @throws AppError invalid_config
 */
export function unitFor(settingsFile: string): string {
  const settings = readAgentSettings(readAgentFile(settingsFile)?.values ?? {});
  const folders = new Set([dirname(settingsFile), settings.spoolDir, settings.workDir, settings.installDir]);
  return systemdUnit({
    agentId: settings.agentId,
    settingsFile,
    writable: [...folders].filter((dir) => ![...folders].some((other) => dir.startsWith(`${other}/`))),
    killGraceMs: settings.killGraceMs,
    user: userInfo().username,
    command: [process.execPath, ...process.execArgv, realpathSync(process.argv[1]!)],
    supervised: settings.autoUpgrade !== 'off',
  });
}
