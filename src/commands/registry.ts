import { nearest } from '../flows/arg-nearest.ts';
import { accessCommands } from './access.ts';
import type { Command } from './command.ts';
import { confirmCommands } from './confirm.ts';
import { controlCommands } from './control.ts';
import { deadCommands } from './dead.ts';
import { helpCommands } from './help.ts';
import { logCommands } from './logs.ts';
import { pairCommands } from './pair.ts';
import { runCommands } from './run.ts';
import { taskCommands } from './tasks.ts';
import { whyCommands } from './why.ts';

/** Every command there is, in the order of /help. docs/commands.md is checked against this list. */
export const COMMANDS: readonly Command[] = [
  ...helpCommands,
  ...runCommands,
  ...taskCommands,
  ...logCommands,
  ...whyCommands,
  ...controlCommands,
  ...confirmCommands,
  ...deadCommands,
  ...pairCommands,
  ...accessCommands,
];

const BY_NAME = new Map(
  COMMANDS.flatMap((command) => [command.name, ...command.aliases].map((name) => [name, command])),
);

/** @param name as `parseCommand` gives it */
export function findCommand(name: string): Command | undefined {
  return BY_NAME.get(name);
}

/** The command that was probably meant. */
export function suggestCommand(name: string): string | undefined {
  return nearest(name, [...BY_NAME.keys()]);
}
