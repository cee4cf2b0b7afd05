import type { Command } from 'commander';
import type { Explanation } from '../tasks/explain.ts';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { langOf } from './lang.ts';
import { oneLine } from './table.ts';

/** `errand tasks why` */
export function whyCommand(tasks: Command, act: Act): void {
  tasks
    .command('why <task>')
    .description('say why a task has not finished and what would change that, or how it ended and why')
    .addHelpText('after', '\nExample:\n  errand tasks why k3f9')
    .action(act(why));
}

/** Longer than any sentence there is. */
const SENTENCE_COLUMNS = 1_000;

async function why({ api, env, show }: Context, id: string): Promise<void> {
  const explained = await api().get<Explanation & { taskId: string }>(path`/api/tasks/${id}/why`);
  const lang = langOf(env);
  show(explained, () =>
    [explained.text, explained.next]
      .filter((text) => text !== undefined)
      .map((text) => oneLine(text[lang], SENTENCE_COLUMNS))
      .join('\n'),
  );
}
