import type { Command } from 'commander';
import { AppError } from '../errors.ts';
import type { AgentShown } from '../http/agent-shapes.ts';
import { agentState } from './agents-drain.ts';
import { agentNotes } from './agents-publish.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { fields, localTime, oneLine, printable } from './table.ts';

interface Diagnostic {
  at: number;
  failed: string[];
  bundle: unknown;
}

/** `errand agents show` */
export function agentShowCommand(agents: Command, act: Act): void {
  agents
    .command('show <id>')
    .description('show one agent with what its self-checks have found')
    .addHelpText('after', '\nExamples:\n  errand agents show hotel-12\n  errand agents show hotel-12 --json')
    .action(act(showAgent));
}

async function showAgent({ api, show }: Context, id: string): Promise<void> {
  const gateway = api();
  const { agents } = await gateway.get<{ agents: AgentShown[] }>('/api/agents');
  const agent = agents.find(({ agentId }) => agentId === id);
  if (!agent) throw new AppError('not_found', `there is no agent ${JSON.stringify(id)}`);
  const { diagnostics } = await gateway.get<{ diagnostics: Diagnostic[] }>(path`/api/agents/${id}/diagnostics`);
  show({ ...agent, diagnostics }, () => [describe(agent), diagnosticsText(diagnostics)].join('\n\n'));
}

function describe(agent: AgentShown): string {
  const labels = Object.entries(agent.labels).map(([key, value]) => `${key}=${value}`);
  return fields([
    ['agent', agent.agentId],
    ['state', [agentState(agent), ...agentNotes(agent)].join(', ')],
    ['busy', `${agent.activeRuns} of ${agent.concurrency}`],
    ['pools', agent.pools.join(', ')],
    ['labels', labels.join(', ')],
    ['runtimes', agent.runtimes.join(', ')],
    ['host', agent.host],
    ['version', agent.version],
    ['load', agent.load === null ? undefined : agent.load.toFixed(2)],
    ['last seen', localTime(agent.lastSeenAt)],
  ]);
}

/** The newest whole, the others in one line each; `--json` has all of them. */
function diagnosticsText(diagnostics: readonly Diagnostic[]): string {
  const [newest, ...older] = diagnostics;
  if (!newest) return 'Its self-checks have found nothing.';
  return [
    `${localTime(newest.at)}  self-checks failed: ${oneLine(newest.failed.join(', '), 60)}`,
    printable(JSON.stringify(newest.bundle, null, 2)),
    ...older.map(({ at, failed }) => `${localTime(at)}  self-checks failed: ${oneLine(failed.join(', '), 60)}`),
  ].join('\n');
}
