import { CallFailed, GatewayClient } from '../agents/worker/client.ts';
import { InstallFolder } from '../agents/worker/upgrade/install-folder.ts';
import { Supervisor } from '../agents/worker/upgrade/supervisor.ts';
import { systemClock } from '../clock.ts';
import type { AgentSettings } from '../config/agent.ts';
import type { Environment } from '../config/values.ts';
import type { Log } from '../log.ts';
import { type Context, tell } from './context.ts';
import { runUntilStopped } from './signals.ts';

/** Runs the installed version of the agent, and this very program while none is installed, until told to stop. Answers the exit code. */
export async function supervise(context: Context, settings: AgentSettings, log: Log): Promise<number> {
  const { io, settingsFile } = context;
  const supervisor = new Supervisor({
    install: new InstallFolder(settings.installDir, systemClock),
    baseScript: process.argv[1]!,
    nodeArgs: process.execArgv,
    // Read anew by every version: it may know more settings than this one.
    args: ['agent', ...(settingsFile === undefined ? ['--no-settings'] : ['--settings', settingsFile])],
    cwd: io.cwd,
    env: present(io.env),
    log,
    isReachable: () => isReachable(settings),
  });
  await supervisor.start();
  tell(context, `agent ${settings.agentId} is supervised; its versions are in ${settings.installDir}`);
  const { ended } = supervisor;
  return runUntilStopped({ stop: () => supervisor.stop(), hurry: () => supervisor.hurry(), ended }, log);
}

/** Whether the gateway answers, whatever it answers. */
async function isReachable(settings: AgentSettings): Promise<boolean> {
  const client = new GatewayClient(settings);
  try {
    const { body } = await client.stream('/healthz', { from: 0 });
    for await (const _chunk of body);
    return true;
  } catch (error) {
    return error instanceof CallFailed && error.verdict !== 'again';
  } finally {
    await client.close();
  }
}

function present(env: Environment): Record<string, string> {
  return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined));
}
