import { type Command, Option } from 'commander';
import { AppError } from '../errors.ts';
import { LETTER_STATES, type LetterState } from '../tasks/states.ts';
import type { TaskRecord } from '../tasks/task.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { fields, localTime, table } from './table.ts';
import { nextPage } from './tasks.ts';

interface Letter {
  taskId: string;
  state: LetterState;
  template: string;
  label?: string;
  sessionKey?: string;
  endedAs: string;
  taskStatus: string;
  attempt: number;
  deaths: number;
  text: { en: string };
  error?: string;
  reason?: string;
  firstDiedAt: number;
  diedAt: number;
  decidedAt?: number;
  decidedBy?: string;
  note?: string;
}

interface Selection {
  all?: true;
  template?: string;
  before?: string;
}

/** `errand dead-letters …` */
export function deadLettersCommands(program: Command, act: Act): void {
  const letters = program
    .command('dead-letters')
    .description('tasks that ended without success: look, run them again or put them away');
  letters
    .command('list')
    .description('list dead letters, the last to die first')
    .addOption(new Option('--state <state>', 'only in this state').choices(LETTER_STATES))
    .option('--template <id>', 'only of this template')
    .option('--session <key>', 'only of this conversation')
    .option('--limit <n>', 'at most so many (1 to 200, default 50)')
    .option('--cursor <cursor>', 'the next page, as the last one told')
    .addHelpText('after', '\nExample:\n  errand dead-letters list --state dead --template hotel-report')
    .action(act(list));
  letters
    .command('show <task>')
    .description('show one dead letter: how its task ended, and what was decided')
    .addHelpText('after', '\nExample:\n  errand dead-letters show k3f9')
    .action(act(show));
  selecting(letters.command('replay [tasks...]'))
    .description('run the tasks of dead letters again, with other arguments where some are given')
    .option('--arg <name=value>', 'an argument that is to be different; repeatable', collect, [])
    .option('--reason <text>', 'why; kept in the audit')
    .addHelpText(
      'after',
      '\nExamples:\n  errand dead-letters replay k3f9 --arg room=303\n  errand dead-letters replay --all --template hotel-report',
    )
    .action(act(replay));
  selecting(letters.command('discard [tasks...]'))
    .description('put dead letters away')
    .requiredOption('--reason <text>', 'why; kept in the audit')
    .addHelpText(
      'after',
      '\nExamples:\n  errand dead-letters discard k3f9 --reason "the guest has left"\n  errand dead-letters discard --all --before 2026-05-01 --reason "too old"',
    )
    .action(act(discard));
}

function selecting(command: Command): Command {
  return command
    .option('--all', 'every one that waits for a decision')
    .option('--template <id>', 'with --all: only of this template')
    .option(
      '--before <time>',
      'with --all: only those that died before, for example 2026-05-01T09:30 or epoch milliseconds',
    );
}

async function list(
  { api, show: print }: Context,
  options: { state?: string; template?: string; session?: string; limit?: string; cursor?: string },
): Promise<void> {
  const page = await api().get<{ deadLetters: Letter[]; next?: string }>('/api/dead-letters', { ...options });
  print(page, () => {
    const rows = page.deadLetters.map((letter) => [
      letter.taskId,
      letter.state,
      letter.template,
      String(letter.deaths),
      localTime(letter.diedAt),
      letter.text.en,
    ]);
    return [
      table(['TASK', 'STATE', 'TEMPLATE', 'DEATHS', 'DIED', 'HOW'], rows, 'No dead letters.'),
      ...nextPage(page.next),
    ].join('\n');
  });
}

async function show({ api, show: print }: Context, id: string): Promise<void> {
  const letter = await api().get<Letter & { task: TaskRecord }>(path`/api/dead-letters/${id}`);
  print(letter, () =>
    fields([
      ['task', letter.taskId],
      ['state', letter.state],
      ['template', letter.template],
      ['arguments', JSON.stringify(letter.task.args)],
      ['label', letter.label],
      ['session', letter.sessionKey],
      ['ended', `${letter.template} ${letter.text.en}`],
      ['error', letter.error],
      ['reason', letter.reason],
      ['deaths', String(letter.deaths)],
      ['first died', localTime(letter.firstDiedAt)],
      ['last died', localTime(letter.diedAt)],
      ['decided', letter.decidedAt === undefined ? undefined : `${localTime(letter.decidedAt)} by ${letter.decidedBy}`],
      ['because', letter.note],
      ['task is', letter.taskStatus],
    ]),
  );
}

async function replay(
  context: Context,
  tasks: readonly string[],
  { arg, reason, ...selection }: Selection & { arg: string[]; reason?: string },
): Promise<number> {
  const args = arg.length === 0 ? undefined : Object.fromEntries(arg.map(pairOf));
  return decide(context, tasks, selection, 'replay', { args, reason });
}

async function discard(
  context: Context,
  tasks: readonly string[],
  { reason, ...selection }: Selection & { reason: string },
): Promise<number> {
  return decide(context, tasks, selection, 'discard', { reason });
}

interface Decision {
  decidedAt: number;
  skipped: { taskId: string; state: LetterState }[];
  more: boolean;
}

/** Call after call until nothing is left; the gateway decides on some hundred at a time. */
async function decide(
  { api, show: print }: Context,
  tasks: readonly string[],
  selection: Selection,
  verb: 'replay' | 'discard',
  wish: Record<string, unknown>,
): Promise<number> {
  const body: Record<string, unknown> & { before?: number } = { ...chosen(tasks, selection), ...wish };
  const word = verb === 'replay' ? 'replayed' : 'discarded';
  const done: string[] = [];
  const skipped: Decision['skipped'] = [];
  for (let more = true; more; ) {
    const answer = await api().post<Decision & Record<string, string[]>>(`/api/dead-letters/${verb}`, body);
    done.push(...answer[word]!);
    skipped.push(...answer.skipped);
    more = answer.more;
    // What dies again meanwhile is for another decision.
    body.before = Math.min(body.before ?? Number.POSITIVE_INFINITY, answer.decidedAt);
  }
  print({ [word]: done, skipped }, () =>
    [
      done.length === 0 ? 'There was nothing to decide on.' : `${done.length} ${word}: ${done.join(', ')}`,
      ...skipped.map(({ taskId, state }) => `${taskId} was ${state} before.`),
    ].join('\n'),
  );
  return skipped.length > 0 ? 4 : 0;
}

function chosen(
  tasks: readonly string[],
  { all, template, before }: Selection,
): Record<string, unknown> & { before?: number } {
  if (tasks.length === 0 && !all) throw usage('name tasks, or give --all', 'tasks');
  if (tasks.length > 0 && all) throw usage('--all goes without tasks', '--all');
  return {
    ...(all ? { all } : { ids: tasks }),
    ...(template === undefined ? {} : { template }),
    ...(before === undefined ? {} : { before: momentOf(before) }),
  };
}

function momentOf(text: string): number {
  const at = /^\d{12,15}$/.test(text) ? Number(text) : Date.parse(text);
  if (Number.isNaN(at))
    throw usage(`--before: ${JSON.stringify(text)} is no time such as 2026-05-01T09:30`, '--before');
  return at;
}

function pairOf(text: string): [string, string] {
  const split = text.indexOf('=');
  if (split < 1) throw usage(`--arg: ${JSON.stringify(text)} is not name=value`, '--arg');
  return [text.slice(0, split), text.slice(split + 1)];
}

const usage = (message: string, field: string) => new AppError('invalid_request', message, { field });
const collect = (text: string, before: string[]) => [...before, text];
