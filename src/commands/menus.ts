import type { Lang } from '../sessions/lang.ts';
import { may } from '../sessions/rights.ts';
import type { Command } from './command.ts';

/** Commands as the apps of a platform offer them: to whom, in which language. */
export interface CommandMenu {
  /** `admins`: the administrators of groups. */
  readonly scope: 'private' | 'group' | 'admins';
  /** Absent: for everybody for whose language there is no other. */
  readonly lang?: 'zh';
  readonly commands: readonly { readonly command: string; readonly description: string }[];
}

/**
 * The menus for these commands. What only an administrator may use is offered to administrators of groups alone: a menu is no right, and
 * what is offered to everybody and refused to most is noise.
 */
export function menusOf(commands: readonly Command[]): CommandMenu[] {
  const forAll = commands.filter(({ right }) => may('approver', right));
  const scopes = { private: forAll, group: forAll, admins: commands } as const;
  return (Object.keys(scopes) as CommandMenu['scope'][]).flatMap((scope) => [
    { scope, commands: linesOf(scopes[scope], 'en') },
    { scope, lang: 'zh' as const, commands: linesOf(scopes[scope], 'zh') },
  ]);
}

function linesOf(commands: readonly Command[], lang: Lang): CommandMenu['commands'] {
  return commands.map(({ name, help }) => ({ command: name, description: help[lang] }));
}
