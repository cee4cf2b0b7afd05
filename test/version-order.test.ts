import { expect, it } from 'vitest';
import { isNewerVersion } from '../src/version.ts';

it('versions are ordered as semver.org orders them', () => {
  const inOrder = [
    'test',
    '0.9.10',
    '1.0.0-alpha',
    '1.0.0-alpha.1',
    '1.0.0-alpha.beta',
    '1.0.0-beta',
    '1.0.0-beta.2',
    '1.0.0-beta.11',
    '1.0.0-rc.1',
    '1.0.0',
    '1.2.0',
    '1.10.0',
    '2.0.0',
  ];
  for (const [i, a] of inOrder.entries())
    for (const [j, b] of inOrder.entries()) expect([a, b, isNewerVersion(a, b)]).toEqual([a, b, i > j]);
});
