import type { Command } from 'commander';
import type { AgentShown } from '../http/agent-shapes.ts';
import { path } from './api.ts';
import type { Act } from './context.ts';

/** `errand agents drain` and `resume`. */
export function agentDrainCommands(agents: Command, act: Act): void {
  for (const [verb, description] of [
    ['drain', 'an agent finishes what it runs and takes nothing new, until it is resumed'],
    ['resume', 'let a drained agent take work again'],
  ] as const) {
    agents
      .command(`${verb} <id>`)
      .description(description)
      .option('--why <text>', 'kept in the audit, and shown with what waits')
      .addHelpText('after', `\nExample:\n  errand agents ${verb} hotel-12`)
      .action(
        act(async ({ api, show }, agentId: string, options: { why?: string }) => {
          const agent = await api().post<AgentShown>(`${path`/api/agents/${agentId}`}/${verb}`, options);
          show(agent, () => (agent.draining ? drainedText(agent) : `Agent ${agentId} takes work again.`));
        }),
      );
  }
}

/** `online`, `draining`, `overloaded (load 3.8 of 2 cores)`, `offline`; what a person has asked for is told in every state. */
export function agentState({ online, draining, overloaded, ...machine }: AgentShown): string {
  const words = [
    ...(online ? [] : ['offline']),
    ...(draining ? ['draining'] : []),
    ...(online && overloaded ? [`overloaded (${shortageText(overloaded, machine)})`] : []),
  ];
  return words.length === 0 ? 'online' : words.join(', ');
}

function shortageText(shortage: 'load' | 'memory', { load, cores, freeMemory }: Partial<AgentShown>): string {
  if (shortage === 'memory') return `${Math.floor((freeMemory ?? 0) * 100)} % memory free`;
  if (cores === undefined) return `load ${(load ?? 0).toFixed(2)} for each core`;
  return `load ${((load ?? 0) * cores).toFixed(1)} of ${cores} ${cores === 1 ? 'core' : 'cores'}`;
}

function drainedText({ agentId, activeRuns }: AgentShown): string {
  const left = activeRuns === 0 ? 'it runs nothing' : `it finishes ${activeRuns} ${activeRuns === 1 ? 'run' : 'runs'}`;
  return `Agent ${agentId} takes nothing new; ${left}. Let it go on with: errand agents resume ${agentId}`;
}
