import { afterEach, beforeEach, expect, test } from 'vitest';
import { DIAGNOSTICS_PAUSE_MS, diagnosticsOf, KEPT_DIAGNOSTICS, keepDiagnostic } from '../../src/health/diagnostics.ts';
import { Core } from '../support/core.ts';

let core: Core;
beforeEach(async () => {
  core = await Core.open();
});
afterEach(() => core.close());

test('the last twenty bundles of each agent are kept, the newest first', async () => {
  for (let n = 0; n < KEPT_DIAGNOSTICS + 5; n += 1) {
    core.pass(DIAGNOSTICS_PAUSE_MS);
    for (const agent of ['a', 'b']) await keepDiagnostic(core.store, agent, { failed: ['disk'], bundle: { n } });
  }
  const kept = await diagnosticsOf(core.store, 'a');
  expect(kept.map(({ bundle }) => (bundle as { n: number }).n)).toEqual(
    Array.from({ length: KEPT_DIAGNOSTICS }, (_, n) => KEPT_DIAGNOSTICS + 4 - n),
  );
  expect(await diagnosticsOf(core.store, 'b')).toHaveLength(KEPT_DIAGNOSTICS);
});

test('a clock that was set back shuts no agent out', async () => {
  await keepDiagnostic(core.store, 'a', { failed: ['disk'], bundle: {} });
  core.clock.advance(-3_600_000);
  await keepDiagnostic(core.store, 'a', { failed: ['spool'], bundle: {} });
  expect(await diagnosticsOf(core.store, 'a')).toHaveLength(2);
});
