import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { digestMembers, giveUpLate, lateMessages } from '../../src/outbox/digest-queries.ts';
import {
  dropPendingEdits,
  editTargets,
  forgetEdits,
  markEdits,
  postponeMessages,
  rewritePending,
  rewritePendingEdits,
  showEdits,
  shownMessages,
} from '../../src/outbox/edit-queries.ts';
import { MOVES } from '../../src/outbox/move-queries.ts';
import { leaseMessages } from '../../src/outbox/queries.ts';
import { putRates, ratesOfMessages } from '../../src/outbox/rate-queries.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import { planOf } from '../support/plans.ts';
import { Rig } from './rig.ts';

let rig: Rig;
let connection: Database.Database;
beforeEach(async () => {
  rig = await Rig.create();
  connection = new Database(rig.path, { readonly: true });
});
afterEach(async () => {
  connection.close();
  await rig.end();
});

const all = [
  ...[digestMembers, giveUpLate, lateMessages, putRates, ratesOfMessages],
  ...[dropPendingEdits, editTargets, forgetEdits, markEdits, rewritePending, showEdits],
  ...[postponeMessages, rewritePendingEdits, shownMessages],
  ...MOVES,
].map((query) => [query.name, query as unknown as HotQuery<never, unknown>] as const);

it.each(all)('%s walks through no table', (_name, query) => {
  const scans = planOf(connection, query).filter((step) => /^SCAN (?!jsonb?_each|r\b)/.test(step));
  // The list of those that nobody has read yet is short, however much has been read.
  expect(scans.filter((step) => !/USING (COVERING )?INDEX (inbox_new|followup_queued)/.test(step))).toEqual([]);
});

it('whether something goes before a message is asked of the chat’s waiting ones', () => {
  const plan = planOf(connection, leaseMessages as unknown as HotQuery<never, unknown>).join('\n');
  expect(plan).toMatch(/SEARCH older USING (COVERING )?INDEX outbox_chat \(channel=\? AND account=\? AND chat=\?/);
});
