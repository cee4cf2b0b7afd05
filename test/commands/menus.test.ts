import { describe, expect, it } from 'vitest';
import { menusOf } from '../../src/commands/menus.ts';
import { COMMANDS } from '../../src/commands/registry.ts';

const menus = menusOf(COMMANDS);
const namesOf = (scope: string, lang?: string) =>
  menus.find((menu) => menu.scope === scope && menu.lang === lang)?.commands.map(({ command }) => command);

describe('command menus', () => {
  it('are there for each kind of chat, in English for all and in Chinese', () => {
    expect(menus.map(({ scope, lang }) => [scope, lang])).toEqual([
      ['private', undefined],
      ['private', 'zh'],
      ['group', undefined],
      ['group', 'zh'],
      ['admins', undefined],
      ['admins', 'zh'],
    ]);
    expect(namesOf('private', 'zh')).toEqual(namesOf('private'));
    expect(menus[1]!.commands[0]!.description).toBe('查看用法');
  });

  it('offer what administrators use to administrators of groups alone', () => {
    expect(namesOf('admins')).toEqual(COMMANDS.map(({ name }) => name));
    for (const scope of ['private', 'group'])
      expect(namesOf(scope)).toEqual(COMMANDS.filter(({ right }) => right !== 'administer').map(({ name }) => name));
  });

  it('are within the limits of Bot API, setMyCommands', () => {
    for (const { commands } of menus) {
      expect(commands.length).toBeLessThanOrEqual(100);
      for (const { command, description } of commands) {
        expect(command).toMatch(/^[a-z0-9_]{1,32}$/);
        expect(description.length).toBeGreaterThan(0);
        expect(description.length).toBeLessThanOrEqual(256);
      }
    }
  });
});
