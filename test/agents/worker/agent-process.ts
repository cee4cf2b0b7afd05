import { type ChildProcess, spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { AgentTuning } from '../../../src/agents/worker/agent.ts';
import { compiledSrc } from '../../support/compiled.ts';
import { agentEnvironment } from './rig.ts';

export interface AgentProcess {
  child: ChildProcess;
  /** kill -9; resolves when the process is gone. */
  kill(): Promise<void>;
  /** A signal; resolves with the exit code. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

const backoff = { baseMs: 10, factor: 1.5, capMs: 50, jitter: 0.5 };

/** A real agent in a process of its own, so that it can be killed. `SIGTERM` stops it as the command line does. */
export async function startAgentProcess(
  url: string,
  dir: string,
  env: Record<string, string> = {},
  tuning: Partial<AgentTuning> = {},
): Promise<AgentProcess> {
  const source = await compiledSrc();
  const module = (path: string) => JSON.stringify(pathToFileURL(join(source, path)).href);
  const script = join(dir, 'agent.mjs');
  await writeFile(
    script,
    `import { createAgent } from ${module('agents/worker/agent.js')};
import { systemClock } from ${module('clock.js')};
import { readAgentSettings } from ${module('config/agent.js')};
import { createLog } from ${module('log.js')};
const settings = readAgentSettings(process.env);
const tuning = ${JSON.stringify({ backoff, pullWaitMs: 1_000, ...tuning })};
const agent = createAgent({ settings, log: createLog({ level: settings.logLevel }), clock: systemClock, version: '0.0.0', tuning });
process.on('SIGTERM', () => agent.stop());
agent.ended.then((end) => process.exit(end.exitCode));
await agent.start();
`,
  );
  const child = spawn(process.execPath, [script], {
    cwd: dir,
    env: { PATH: process.env.PATH, HOME: dir, ...agentEnvironment(url, dir), ...env },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  const exited = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  const end = (signal: NodeJS.Signals) => {
    child.kill(signal);
    return exited;
  };
  return {
    child,
    end,
    kill: async () => {
      await end('SIGKILL');
    },
  };
}
