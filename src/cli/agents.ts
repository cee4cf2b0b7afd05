import type { Command } from 'commander';
import { isLoopback } from '../config/gateway-url.ts';
import { durationMs } from '../config/values.ts';
import { AppError } from '../errors.ts';
import type { AgentShown } from '../http/agent-shapes.ts';
import { agentDrainCommands, agentState } from './agents-drain.ts';
import { agentNotes, publishCommands } from './agents-publish.ts';
import { agentShowCommand } from './agents-show.ts';
import { path } from './api.ts';
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
    .command('token [id]')
    .description(
      'invite a machine: prints the line to run there; the token in it works once and fixes pools, labels and id',
    )
    .option('--pool <pool>', 'a pool it serves; may be repeated (default: default)', collect)
    .option('--label <key=value>', 'a label it has; may be repeated', collect)
    .option('--ttl <duration>', 'how long the line works: 10m, 1h, at most 7d (default: 1h)')
    .option('--permanent', "prints the agent's own token instead, at once and for good; needs an id")
    .addHelpText(
      'after',
      '\nExamples:\n  errand agents token hotel-12 --pool hotel-12 --label city=sz\n  errand agents token --pool kiosks --ttl 10m',
    )
    .action(act(token));
  agents
    .command('revoke <id>')
    .description('all tokens of an agent stop working at once, also join tokens for it')
    .addHelpText('after', '\nExample:\n  errand agents revoke hotel-12')
    .action(act(revoke));
  agentDrainCommands(agents, act);
  agentShowCommand(agents, act);
  publishCommands(agents, act);
}

function collect(value: string, before: string[] = []): string[] {
  return [...before, value];
}

async function list({ api, show }: Context): Promise<void> {
  const answer = await api().get<{ agents: AgentShown[] }>('/api/agents');
  show(answer, () => {
    const rows = answer.agents.map((agent) => [
      agent.agentId,
      [agentState(agent), ...agentNotes(agent)].join(', '),
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

interface TokenOptions {
  pool?: string[];
  label?: string[];
  ttl?: string;
  permanent?: true;
}

interface IssuedToken {
  agentToken?: string;
  joinToken?: string;
  expiresAt?: number;
  gatewayUrl?: string;
}

async function token(context: Context, agentId: string | undefined, options: TokenOptions): Promise<void> {
  const gateway = context.api();
  const answer = await gateway.post<IssuedToken>('/api/agents/tokens', {
    ...(agentId === undefined ? {} : { agentId }),
    ...(options.pool && { pools: options.pool }),
    labels: Object.fromEntries((options.label ?? []).map(labelOf)),
    ...(options.ttl !== undefined && { ttlMs: ttlOf(options.ttl) }),
    ...(options.permanent && { permanent: true }),
  });
  const url = answer.gatewayUrl === undefined || isLoopback(answer.gatewayUrl) ? gateway.url : answer.gatewayUrl;
  // Nothing but the line or the token, so that it can go into a file or a variable.
  context.show(answer, () => answer.agentToken ?? `errand agent join ${url} ${answer.joinToken}`);
  if (answer.joinToken === undefined || context.json) return;
  context.io.err(`errand: the line works once, until ${localTime(answer.expiresAt!)}\n`);
  if (isLoopback(url)) context.io.err(`errand: ${url} is reached from this machine only; set ERRAND_PUBLIC_URL\n`);
}

function ttlOf(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined)
    throw new AppError('invalid_request', `--ttl: must be a duration such as 10m or 1h but is '${text}'`, {
      field: '--ttl',
    });
  return ms;
}

async function revoke({ api, show }: Context, agentId: string): Promise<void> {
  const answer = await api().post<{ agentId: string; revoked: number }>(path`/api/agents/${agentId}/revoke`);
  show(answer, () =>
    answer.revoked === 0
      ? `Agent ${agentId} had no valid token.`
      : `Agent ${agentId} is shut out: its calls are refused from now on; what it runs is given to others when its leases end.`,
  );
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
