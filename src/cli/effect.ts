import { appendFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { EFFECT_POLICIES, type EffectBeginAnswer, type EffectMarkAnswer } from '../agents/protocol.ts';
import { durationMs } from '../config/values.ts';
import { AppError, messageOf } from '../errors.ts';
import type { Act, Context } from './context.ts';
import { callAgent } from './effect-client.ts';
import { langOf, sayIn } from './lang.ts';
import { printable } from './table.ts';

/** Exit codes that programs act on (docs/effects.md); 75 and 77 mean to the agent what they mean of any program. */
const BEGIN_EXIT = {
  first: 0,
  done: 10,
  failed: 11,
  busy: 75,
  conflict: 4,
  lease_lost: 4,
  rejected: 4,
} as const satisfies Record<Exclude<EffectBeginAnswer['answer'], 'uncertain'>, number>;
const UNCERTAIN_EXIT = { ask: 77, fail: 1 } as const;
const MARK_EXIT = {
  done: 0,
  failed: 0,
  again: 0,
  refused: 4,
  unknown: 3,
  lease_lost: 4,
  rejected: 4,
} as const satisfies Record<EffectMarkAnswer['answer'], number>;

interface Patience {
  patience: string;
}

/** `errand effect …`: for programs that an agent runs. */
export function effectCommands(program: Command, act: Act): void {
  const effect = program
    .command('effect')
    .description('inside a task: do something outside once, whatever crashes (docs/effects.md)');
  const patience = () =>
    new Option('--patience <duration>', 'how long to try while the gateway is away or another run is at it').default(
      '1m',
    );
  effect
    .command('begin <type> <key>')
    .description('say that it is about to be done, and learn whether it may')
    .option('--digest <text>', 'digest of what is to be done; another one under the same key is refused')
    .addOption(
      new Option('--policy <policy>', 'what follows when an earlier run began it and died')
        .choices(EFFECT_POLICIES)
        .default('ask'),
    )
    .addOption(patience())
    .addHelpText('after', BEGIN_HELP)
    .action(act(begin));
  effect
    .command('done <type> <key>')
    .description('say that it took place; a repeat is told the result')
    .option('--result <text>', 'what a repeat is told, for example a receipt number')
    .addOption(patience())
    .addHelpText('after', '\nExample:\n  errand effect done payment order-42 --result R-7001')
    .action(
      act((context, type: string, key: string, options: Patience & { result?: string }) =>
        mark(context, 'done', { type, key, result: options.result }, options),
      ),
    );
  effect
    .command('fail <type> <key>')
    .description('say that it failed for good; a repeat is told the error')
    .option('--error <text>', 'what a repeat is told')
    .option('--again', 'it certainly did not take place: whoever begins it next is the first')
    .addOption(patience())
    .addHelpText('after', '\nExample:\n  errand effect fail payment order-42 --error "card refused"')
    .action(
      act((context, type: string, key: string, options: Patience & { error?: string; again?: true }) =>
        mark(context, 'fail', { type, key, error: options.error, again: options.again }, options),
      ),
    );
}

const BEGIN_HELP = `
Prints one word, then the stored result or error where there is one.
Exit codes: 0 first (go), 10 done, 11 failed, 75 busy (another run is at it), 77 uncertain and a person is asked,
1 uncertain and to fail, 4 another digest or the run is over, 5 the gateway was away for too long.

Example:
  errand effect begin payment "$ERRAND_IDEMPOTENCY_KEY" && pay && errand effect done payment "$ERRAND_IDEMPOTENCY_KEY"`;

async function begin(
  context: Context,
  type: string,
  key: string,
  options: Patience & { digest?: string; policy: string },
): Promise<number> {
  const call = { type, key, digest: options.digest, policy: options.policy, patienceMs: patienceOf(options) };
  const answer = (await callAgent(context.env, 'begin', call)) as EffectBeginAnswer;
  show(context, answer);
  if (answer.answer === 'first' && answer.repeat)
    context.io.err(
      `errand: ${sayIn(langOf(context.env))('an earlier run began this and did not say how it ended', '之前的一次运行开始了它，但没有说明结果')}\n`,
    );
  if (answer.answer !== 'uncertain') return BEGIN_EXIT[answer.answer];
  const sentence = uncertainSentence(context, type, key);
  context.io.err(`errand: ${printable(sentence)}\n`);
  if (answer.policy === 'ask') summarize(context, sentence);
  return UNCERTAIN_EXIT[answer.policy];
}

async function mark(
  context: Context,
  verb: 'done' | 'fail',
  call: Record<string, unknown>,
  options: Patience,
): Promise<number> {
  const answer = (await callAgent(context.env, verb, { ...call, patienceMs: patienceOf(options) })) as EffectMarkAnswer;
  show(context, answer);
  return MARK_EXIT[answer.answer];
}

/** One word and what is stored, or the answer as it is. A refusal's reason goes to standard error. */
function show({ io, json }: Context, answer: EffectBeginAnswer | EffectMarkAnswer): void {
  if (json) {
    io.out(`${JSON.stringify(answer)}\n`);
    return;
  }
  io.out(`${answer.answer}\n`);
  const stored = 'result' in answer ? answer.result : 'error' in answer ? answer.error : null;
  // For the program, not for a terminal: as it was stored.
  if (stored) io.out(`${stored}\n`);
  if ('reason' in answer) io.err(`errand: ${answer.reason}\n`);
}

/** @throws AppError invalid_request */
function patienceOf({ patience }: Patience): number {
  const ms = durationMs(patience);
  if (ms === undefined || ms > 86_400_000)
    throw new AppError('invalid_request', '--patience: must be a duration such as 30s or 10m, at most 1d', {
      field: '--patience',
    });
  return ms;
}

function uncertainSentence({ env }: Context, type: string, key: string): string {
  const resolve = `errand effects resolve ${type} ${shellWord(key)} SUCCESS|FAIL|AGAIN --reason "…"`;
  return sayIn(langOf(env))(
    `nobody knows whether the effect ${type} ${JSON.stringify(key)} took place: an earlier run began it and died. Find out, then: ${resolve}`,
    `没有人知道副作用 ${type} ${JSON.stringify(key)} 是否已经发生：之前的一次运行开始了它，随后中断。请查明后执行：${resolve}`,
  );
}

/** As a person can paste it into a shell. */
function shellWord(text: string): string {
  return /^[A-Za-z0-9_.:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The conversation is told what the task waits for. */
function summarize({ env, io }: Context, sentence: string): void {
  if (!env.ERRAND_SUMMARY) return;
  try {
    appendFileSync(env.ERRAND_SUMMARY, `${sentence}\n`);
  } catch (error) {
    io.err(`errand: the summary could not be written: ${messageOf(error)}\n`);
  }
}
