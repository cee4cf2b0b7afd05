import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { DEFAULT_ROLE, may, mayWith, RIGHTS, ROLES } from '../../src/sessions/rights.ts';

const page = readFileSync(new URL('../../docs/access.md', import.meta.url), 'utf8');

it('docs/access.md has the table of roles and rights as it is', () => {
  expect(page).toContain(`| role | ${RIGHTS.join(' | ')} |`);
  const rows = [...page.matchAll(/^\| (\w+) \|((?: ✓? ?\|){4})$/gm)].map(([, role, cells]) => [
    role,
    ...cells!
      .split('|')
      .slice(0, -1)
      .map((cell) => cell.trim() === '✓'),
  ]);
  expect(rows).toEqual(ROLES.map((role) => [role, ...RIGHTS.map((right) => may(role, right))]));
  expect(DEFAULT_ROLE).toBe('operator');
});

describe('what belongs to somebody', () => {
  const own = { sameConversation: true, ownerId: '7' };
  it.each([
    ['a viewer', 'viewer', own, false],
    ['who asked for it', 'operator', own, true],
    ['somebody else of the group', 'operator', { ...own, ownerId: '8' }, false],
    ['an approver of the group', 'approver', { ...own, ownerId: '8' }, false],
    ['an administrator of the group', 'admin', { ...own, ownerId: '8' }, true],
    ['another conversation', 'operator', { ...own, sameConversation: false }, false],
    ['an administrator elsewhere', 'admin', { sameConversation: false, ownerId: '8' }, true],
    ['the conversation, where nobody is known to have asked', 'operator', { sameConversation: true }, true],
    ['nobody', null, own, false],
  ] as const)('is changed by its own and by who administers: %s', (_who, role, thing, allowed) => {
    expect(mayWith(role, '7', 'run', thing)).toBe(allowed);
  });

  it('is seen and approved in its conversation, whoever asked', () => {
    const other = { sameConversation: true, ownerId: '8' };
    expect(mayWith('viewer', '7', 'talk', other)).toBe(true);
    expect(mayWith('approver', '7', 'approve', other)).toBe(true);
    expect(mayWith('operator', '7', 'approve', other)).toBe(false);
  });
});
