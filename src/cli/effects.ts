import { Argument, type Command, Option } from 'commander';
import type { EffectRecord } from '../tasks/effect-read.ts';
import { EFFECT_RESOLUTIONS, EFFECT_STATES } from '../tasks/effect-words.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { langOf, type Say, sayIn } from './lang.ts';
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

async function list({ api, env, show: print }: Context, options: ListOptions): Promise<void> {
  const page = await api().get<{ effects: EffectRecord[]; next?: string }>('/api/effects', { ...options });
  const say = sayIn(langOf(env));
  print(page, () => {
    const rows = page.effects.map((effect) => [
      effect.type,
      effect.key,
      stateOf(effect, say),
      effect.taskId,
      String(effect.begins),
      localTime(effect.updatedAt),
      effect.result ?? effect.error ?? '',
    ]);
    return [table(headings(say), rows, say('No effects.', '没有副作用。')), ...nextPage(page.next)].join('\n');
  });
}

async function show({ api, env, show: print }: Context, type: string, key: string): Promise<void> {
  const effect = await api().get<EffectRecord>(path`/api/effects/${type}/${key}`);
  print(effect, () => describe(effect, sayIn(langOf(env))));
}

async function resolve(
  { api, env, show: print }: Context,
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
  const say = sayIn(langOf(env));
  print(after, () => {
    const said = after.changed
      ? say(
          `Effect ${type} ${key} is ${stateOf(after, say)} now.`,
          `副作用 ${type} ${key} 现为 ${stateOf(after, say)}。`,
        )
      : say(`Effect ${type} ${key} was like that before.`, `副作用 ${type} ${key} 之前就是这样。`);
    const released = after.released.join(', ');
    return released === '' ? said : said + say(` Tasks that go on: ${released}.`, `继续的任务：${released}。`);
  });
}

const headings = (say: Say) => [
  say('TYPE', '类型'),
  say('KEY', '键'),
  say('STATE', '状态'),
  say('TASK', '任务'),
  say('BEGUN', '开始次数'),
  say('UPDATED', '更新时间'),
  say('RESULT OR ERROR', '结果或错误'),
];

/** The stored word, which is what commands take, and what it means where it does not say so. */
function stateOf(effect: EffectRecord, say: Say): string {
  if (effect.state !== 'INIT') return effect.state;
  if (effect.runId === undefined) return say('INIT (may be begun again)', 'INIT（可以再次开始）');
  return effect.uncertain ? say('INIT (uncertain)', 'INIT（结果不明）') : say('INIT (under way)', 'INIT（进行中）');
}

function describe(effect: EffectRecord, say: Say): string {
  const begun = (task: string, run: string | undefined) =>
    say(`task ${task}`, `任务 ${task}`) + (run === undefined ? '' : say(`, run ${run}`, `，运行 ${run}`));
  return fields([
    [say('effect', '副作用'), `${effect.type} ${effect.key}`],
    [say('state', '状态'), stateOf(effect, say)],
    [say('policy', '策略'), effect.policy],
    [say('digest', '摘要'), effect.digest],
    [say('result', '结果'), effect.result],
    [say('error', '错误'), effect.error],
    [
      say('first begun', '首次开始'),
      `${begun(effect.firstTaskId, effect.firstRunId)}${say(', ', '，')}${localTime(effect.createdAt)}`,
    ],
    [
      say('last begun', '最近开始'),
      begun(effect.taskId, effect.runId) + say(` (${effect.begins} in all)`, `（共 ${effect.begins} 次）`),
    ],
    [say('updated', '更新时间'), localTime(effect.updatedAt)],
    [say('late word', '迟到的消息'), effect.late && `${effect.late.outcome}, ${localTime(effect.late.at)}`],
    [say('waiting', '等待中的任务'), effect.waiting.join(', ')],
    [say('resolved', '裁定'), effect.resolvedBy && `${effect.resolvedBy}, ${localTime(effect.resolvedAt)}`],
    [say('reason', '理由'), effect.reason],
  ]);
}
