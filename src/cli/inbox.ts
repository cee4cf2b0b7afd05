import type { Command } from 'commander';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { localTime, printable, table } from './table.ts';
import { nextPage } from './tasks.ts';

interface Parked {
  inboxId: string;
  channel: string;
  chat?: string;
  userId?: string;
  text: string;
  error: string;
  attempts: number;
  parkedAt: number;
}

/** `errand inbox …` */
export function inboxCommands(program: Command, act: Act): void {
  const inbox = program.command('inbox').description('incoming messages that could not be worked off');
  inbox
    .command('list')
    .description('list messages that were put aside after several tries, the newest first')
    .option('--limit <n>', 'at most so many (1 to 200, default 50)')
    .option('--cursor <cursor>', 'the next page, as the last one told')
    .addHelpText('after', '\nExample:\n  errand inbox list')
    .action(act(list));
  inbox
    .command('retry <message>')
    .description('try a message again from the beginning; an old one asks its person first')
    .addHelpText('after', '\nExample:\n  errand inbox retry p2cd')
    .action(act(retry));
}

async function list({ api, show }: Context, options: { limit?: string; cursor?: string }): Promise<void> {
  const page = await api().get<{ messages: Parked[]; next?: string }>('/api/inbox', { ...options });
  show(page, () => {
    const rows = page.messages.map((message) => [
      message.inboxId,
      `${message.channel}:${message.chat ?? '?'}`,
      message.userId ?? '',
      String(message.attempts),
      localTime(message.parkedAt),
      oneLine(message.error),
      oneLine(message.text),
    ]);
    return [
      table(['MESSAGE', 'FROM', 'USER', 'TRIES', 'PUT ASIDE', 'ERROR', 'TEXT'], rows, 'No message was put aside.'),
      ...nextPage(page.next),
    ].join('\n');
  });
}

async function retry({ api, show }: Context, id: string): Promise<void> {
  const answer = await api().post<{ inboxId: string }>(path`/api/inbox/${id}/retry`);
  show(answer, () => `Message ${id} is tried again.`);
}

function oneLine(text: string): string {
  return printable(text).replaceAll('\n', ' ').slice(0, 80);
}
