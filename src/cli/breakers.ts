import type { Command } from 'commander';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { fields, localTime, table } from './table.ts';

interface Breaker {
  name: string;
  state: string;
  reason?: string;
  calls: number;
  failures: number;
  openedAt?: number;
  untilAt?: number;
  probe?: { taskId?: string; untilAt: number };
  lastError?: string;
  lastFailureAt?: number;
  settings: { threshold: number; windowMs: number; minimum: number; cooldownMs: number };
  templates: { id: string; onOpen: string }[];
}

/** `errand breakers …` */
export function breakersCommands(program: Command, act: Act): void {
  const breakers = program.command('breakers').description('circuit breakers: services that tasks are kept away from');
  breakers
    .command('list')
    .description('list circuit breakers by name')
    .addHelpText('after', '\nExample:\n  errand breakers list')
    .action(act(list));
  breakers
    .command('show <breaker>')
    .description('show one circuit breaker')
    .addHelpText('after', '\nExample:\n  errand breakers show psb')
    .action(act(show));
  breakers
    .command('reset <breaker>')
    .description('close it, with nothing counted: what waits behind it goes on')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExample:\n  errand breakers reset psb --why "their outage is over"')
    .action(act(reset));
  breakers
    .command('open <breaker>')
    .description('keep tasks away from the service behind it; afterwards one run may try')
    .option('--for <duration>', 'for so long, 1s to 365d (default: 1h)')
    .option('--why <text>', 'kept in the audit')
    .addHelpText('after', '\nExample:\n  errand breakers open psb --for 2h --why "maintenance"')
    .action(act(open));
}

async function list({ api, show: print }: Context): Promise<void> {
  const answer = await api().get<{ breakers: Breaker[] }>('/api/breakers');
  print(answer, () => {
    const rows = answer.breakers.map((breaker) => [
      breaker.name,
      breaker.state,
      callsText(breaker),
      localTime(breaker.untilAt),
      breaker.templates.map(({ id }) => id).join(' '),
      breaker.lastError ?? '',
    ]);
    return table(
      ['BREAKER', 'STATE', 'FAILED', 'UNTIL', 'TEMPLATES', 'LAST ERROR'],
      rows,
      'No template has a breaker.',
    );
  });
}

async function show({ api, show: print }: Context, name: string): Promise<void> {
  const breaker = await api().get<Breaker>(path`/api/breakers/${name}`);
  print(breaker, () => details(breaker));
}

async function reset({ api, show: print }: Context, name: string, options: { why?: string }): Promise<void> {
  const breaker = await api().post<Breaker>(path`/api/breakers/${name}/reset`, { ...options });
  print(breaker, () => `Breaker ${name} is closed; nothing is counted.`);
}

async function open(
  { api, show: print }: Context,
  name: string,
  options: { for?: string; why?: string },
): Promise<void> {
  const breaker = await api().post<Breaker>(path`/api/breakers/${name}/open`, { ...options });
  print(breaker, () => `Breaker ${name} is open until ${localTime(breaker.untilAt)}.`);
}

function callsText({ state, calls, failures }: Breaker): string {
  return state === 'closed' ? `${failures} of ${calls}` : '';
}

function details(breaker: Breaker): string {
  const { settings, probe } = breaker;
  const seconds = (ms: number) => `${ms / 1_000} s`;
  return fields([
    ['breaker', breaker.name],
    ['state', breaker.reason === undefined ? breaker.state : `${breaker.state} (${breaker.reason})`],
    ['failed', callsText(breaker)],
    ['opened', localTime(breaker.openedAt)],
    ['until', localTime(breaker.untilAt)],
    ['probe', probe && `task ${probe.taskId ?? '?'}, at most until ${localTime(probe.untilAt)}`],
    ['last error', breaker.lastError],
    ['last failure', localTime(breaker.lastFailureAt)],
    [
      'opens',
      `at ${settings.threshold * 100} % of at least ${settings.minimum} calls within ${seconds(settings.windowMs)}`,
    ],
    ['cooldown', seconds(settings.cooldownMs)],
    ['templates', breaker.templates.map(({ id, onOpen }) => `${id} (${onOpen})`).join(', ')],
  ]);
}
