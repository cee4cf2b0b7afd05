import type { Command } from 'commander';
import type { AgentView } from '../agents/registry.ts';
import { AppError } from '../errors.ts';
import type { Act, Context } from './context.ts';
import { localTime, table } from './table.ts';

/** `errand agents …` */
export function agentsCommands(program: Command, act: Act): void {
  const agents = program.command('agents').description('look at agents, give them tokens');
  agents
    .command('list')
    .description('list agents that ever registered')
    .addHelpText('after', '\nExample:\n  errand agents list')
    .action(act(list));
  agents
    .command('token <id>')
    .description('issue a token for an agent; it is shown once, and fixes pools and labels')
    .option('--pool <pool>', 'a pool it serves; may be repeated (default: default)', collect)
    .option('--label <key=value>', 'a label it has; may be repeated', collect)
    .addHelpText('after', '\nExample:\n  errand agents token hotel-12 --pool hotel-12 --label city=sz')
    .action(act(token));
}

function collect(value: string, before: string[] = []): string[] {
  return [...before, value];
}

async function list({ api, show }: Context): Promise<void> {
  const answer = await api().get<{ agents: AgentView[] }>('/api/agents');
  show(answer, () => {
    const rows = answer.agents.map((agent) => [
      agent.agentId,
      agent.online ? 'online' : 'offline',
      `${agent.activeRuns}/${agent.concurrency}`,
      agent.pools.join(','),
      labelText(agent.labels),
      agent.runtimes.join(','),
      agent.host,
      agent.version,
      localTime(agent.lastSeenAt),
    ]);
    return table(
      ['AGENT', 'STATE', 'BUSY', 'POOLS', 'LABELS', 'RUNTIMES', 'HOST', 'VERSION', 'LAST SEEN'],
      rows,
      'No agent has registered yet.',
    );
  });
}

async function token(
  { api, show }: Context,
  agentId: string,
  options: { pool?: string[]; label?: string[] },
): Promise<void> {
  const labels = Object.fromEntries((options.label ?? []).map(labelOf));
  const body = { agentId, labels, permanent: true, ...(options.pool ? { pools: options.pool } : {}) };
  const answer = await api().post<{ agentId: string; agentToken: string }>('/api/agents/tokens', body);
  // Nothing but the token, so that it can go into a file or a variable.
  show(answer, () => answer.agentToken);
}

function labelOf(text: string): [string, string] {
  const at = text.indexOf('=');
  if (at < 1)
    throw new AppError('invalid_request', `--label: must be key=value but is '${text}'`, { field: '--label' });
  return [text.slice(0, at), text.slice(at + 1)];
}

function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
}
