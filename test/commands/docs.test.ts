import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { COMMANDS } from '../../src/commands/registry.ts';
import { COMMAND_WORDS } from '../../src/flows/template-trigger.ts';

const page = readFileSync(new URL('../../docs/commands.md', import.meta.url), 'utf8');

/** The page's table, one row per command, in the order of /help. */
const rows = COMMANDS.map(
  ({ usage, aliases, right, help }) =>
    `| \`${usage.replaceAll('|', '\\|')}\` | ${aliases.map((alias) => `\`/${alias}\``).join(' ')} | ${right} | ${help.en} | ${help.zh} |`,
);

it('docs/commands.md has a row for every command, as it is, and for no other', () => {
  expect(page.split('\n').filter((line) => line.startsWith('| `/'))).toEqual(rows);
});

it('no template can have a trigger that a command would answer', () => {
  for (const { name } of COMMANDS) expect(COMMAND_WORDS).toContain(name);
});
