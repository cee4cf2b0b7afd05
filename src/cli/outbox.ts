import { type Command, Option } from 'commander';
import { path } from './api.ts';
import type { Act, Context } from './context.ts';
import { localTime, table } from './table.ts';
import { nextPage } from './tasks.ts';

interface Message {
  id: string;
  channel: string;
  chat: string;
  kind: string;
  text: string;
  state: string;
  attempts: number;
  error?: string;
  createdAt: number;
}

/** `errand outbox …` */
export function outboxCommands(program: Command, act: Act): void {
  const outbox = program.command('outbox').description('outgoing messages');
  outbox
    .command('list')
    .description('list outgoing messages, the newest first')
    .addOption(
      new Option('--state <state>', 'only in this state').choices([
        'pending',
        'sending',
        'sent',
        'unknown',
        'dead',
        'superseded',
        'expired',
      ]),
    )
    .option('--session <key>', 'only to this conversation')
    .option('--limit <n>', 'at most so many (1 to 200, default 50)')
    .option('--cursor <cursor>', 'the next page, as the last one told')
    .addHelpText('after', '\nExample:\n  errand outbox list --state dead')
    .action(act(list));
  outbox
    .command('resend <message>')
    .description('send a message again that is unknown, dead or expired')
    .addHelpText('after', '\nExample:\n  errand outbox resend p2cd')
    .action(act(resend));
}

async function list(
  { api, show }: Context,
  options: { state?: string; session?: string; limit?: string; cursor?: string },
): Promise<void> {
  const page = await api().get<{ messages: Message[]; next?: string }>('/api/outbox', { ...options });
  show(page, () => {
    const rows = page.messages.map((message) => [
      message.id,
      message.state,
      message.kind,
      `${message.channel}:${message.chat}`,
      String(message.attempts),
      localTime(message.createdAt),
      message.error ?? message.text,
    ]);
    return [
      table(['MESSAGE', 'STATE', 'KIND', 'TO', 'TRIES', 'CREATED', 'ERROR OR TEXT'], rows, 'No messages.'),
      ...nextPage(page.next),
    ].join('\n');
  });
}

async function resend({ api, show }: Context, id: string): Promise<void> {
  const answer = await api().post<{ id: string; state: string }>(path`/api/outbox/${id}/resend`);
  show(answer, () => `Message ${id} is ${answer.state} again.`);
}
