import { Argument, type Command, Option } from 'commander';
import type { EffectRecord } from '../tasks/effect-read.ts';
import { EFFECT_RESOLUTIONS, EFFECT_STATES } from '../tasks/effect-words.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { fields, localTime, table } from './table.ts';
import { nextPage } from './tasks.ts';

/** `errand effects …`: for the operator; programs use `errand effect`. */
export function effectsCommands(program: Command, act: Act): void {
  const effects = program
    .command('effects')
    .description('side effects of programs: look, and settle what nobody is sure of');
  effects
    .command('list')
    .description('list side effects, the newest first')
    .addOption(new Option('--state <state>', 'only in this state').choices(EFFECT_STATES))
    .option('--type <type>', 'only of this type')
    .option('--task <task>', 'only those that this task began, first or last')
    .option('--limit <n>', 'at most so many (1 to 200, default 50)')
    .option('--cursor <cursor>', 'the next page, as the last one told')
    .addHelpText('after', '\nExample:\n  errand effects list --state INIT')
    .action(act(list));
  effects
    .command('show <type> <key>')
    .description('show one side effect')
    .addHelpText('after', '\nExample:\n  errand effects show payment order-42')
    .action(act(show));
  effects
    .command('resolve <type> <key>')
    .addArgument(
      new Argument('<state>', 'AGAIN: it did not take place, whoever begins it next is the first').choices(
        EFFECT_RESOLUTIONS,
      ),
    )
    .description('say whether it took place; tasks that are blocked because of it go on')
    .requiredOption('--reason <text>', 'how you know; kept in the audit')
    .option('--result <text>', 'with SUCCESS: what a repeat is told')
    .addHelpText(
      'after',
      '\nExample:\n  errand effects resolve payment order-42 SUCCESS --result R-7001 --reason "seen in the bank account"',
    )
    .action(act(resolve));
}

interface ListOptions {
  state?: string;
  type?: string;
  task?: string;
  limit?: string;
  cursor?: string;
}

async function list({ api, show: print }: Context, options: ListOptions): Promise<void> {
  const page = await api().get<{ effects: EffectRecord[]; next?: string }>('/api/effects', { ...options });
  print(page, () => {
    const rows = page.effects.map((effect) => [
      effect.type,
      effect.key,
      stateOf(effect),
      effect.taskId,
      String(effect.begins),
      localTime(effect.updatedAt),
      effect.result ?? effect.error ?? '',
    ]);
    return [
      table(['TYPE', 'KEY', 'STATE', 'TASK', 'BEGUN', 'UPDATED', 'RESULT OR ERROR'], rows, 'No effects.'),
      ...nextPage(page.next),
    ].join('\n');
  });
}

async function show({ api, show: print }: Context, type: string, key: string): Promise<void> {
  const effect = await api().get<EffectRecord>(path`/api/effects/${type}/${key}`);
  print(effect, () => describe(effect));
}

async function resolve(
  { api, show: print }: Context,
  type: string,
  key: string,
  state: string,
  { reason, result }: { reason: string; result?: string },
): Promise<void> {
  const url = `${path`/api/effects/${type}/${key}`}/resolve`;
  const after = await api().post<EffectRecord & { changed: boolean; released: string[] }>(url, {
    state,
    reason,
    result,
  });
  print(after, () => {
    const said = after.changed
      ? `Effect ${type} ${key} is ${stateOf(after)} now.`
      : `Effect ${type} ${key} was like that before.`;
    return after.released.length === 0 ? said : `${said} Tasks that go on: ${after.released.join(', ')}.`;
  });
}

function stateOf(effect: EffectRecord): string {
  if (effect.state !== 'INIT') return effect.state;
  if (effect.runId === undefined) return 'INIT (may be begun again)';
  return effect.uncertain ? 'INIT (uncertain)' : 'INIT (under way)';
}

function describe(effect: EffectRecord): string {
  return fields([
    ['effect', `${effect.type} ${effect.key}`],
    ['state', stateOf(effect)],
    ['policy', effect.policy],
    ['digest', effect.digest],
    ['result', effect.result],
    ['error', effect.error],
    ['first begun', `task ${effect.firstTaskId}, run ${effect.firstRunId}, ${localTime(effect.createdAt)}`],
    [
      'last begun',
      `task ${effect.taskId}${effect.runId === undefined ? '' : `, run ${effect.runId}`} (${effect.begins} in all)`,
    ],
    ['updated', localTime(effect.updatedAt)],
    ['late word', effect.late && `${effect.late.outcome}, ${localTime(effect.late.at)}`],
    ['waiting', effect.waiting.join(', ')],
    ['resolved', effect.resolvedBy && `${effect.resolvedBy}, ${localTime(effect.resolvedAt)}`],
    ['reason', effect.reason],
  ]);
}
