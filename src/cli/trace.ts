import type { Command } from 'commander';
import type { Act, Context } from './context.ts';
import { localTime, oneLine } from './table.ts';

interface Trace {
  key: string;
  entries: { at: number; kind: string; id: string; text: string }[];
  truncated: boolean;
}

/** `errand tasks trace` */
export function traceCommand(tasks: Command, act: Act): void {
  tasks
    .command('trace <key>')
    .description('tell all that a business key, an effect key or an id touched, from the message to the receipt')
    .addHelpText('after', '\nExamples:\n  errand tasks trace hotel-checkin:302:2026-05-04\n  errand tasks trace k3f9')
    .action(act(trace));
}

async function trace({ api, show }: Context, key: string): Promise<void> {
  const found = await api().get<Trace>('/api/trace', { key });
  show(found, () =>
    [...found.entries.map(lineOf), ...(found.truncated ? ['… there are more tasks with this key'] : [])].join('\n'),
  );
}

/** Wide enough for the longest kind. */
const KIND_COLUMNS = 8;
const TEXT_COLUMNS = 240;

function lineOf({ at, kind, text }: Trace['entries'][number]): string {
  return `${localTime(at)}  ${kind.padEnd(KIND_COLUMNS)}  ${oneLine(text, TEXT_COLUMNS)}`;
}
