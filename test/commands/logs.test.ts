import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as queries from '../../src/commands/log-follow-queries.ts';
import { ChatLogFollows, FOLLOW_LIMIT_MS, MAX_MESSAGES, MESSAGE_PAUSE_MS } from '../../src/commands/logs-follow.ts';
import { silentLog } from '../../src/log.ts';
import { editSent } from '../../src/outbox/edit-queries.ts';
import type { OutboxEvent } from '../../src/outbox/message.ts';
import type { HotQuery } from '../../src/store/dialect.ts';
import type { Grant } from '../../src/tasks/claim.ts';
import { Core } from '../support/core.ts';
import { planOf } from '../support/plans.ts';
import { direct, Rooms } from '../support/rooms.ts';

const HELLO = 'id: hello\ncommand: [node, hello.mjs]\n';

let rooms: Rooms;
let follows: ChatLogFollows;
let edited: OutboxEvent[];
beforeEach(async () => {
  rooms = await Rooms.open({ templates: { 'hello.yaml': HELLO }, lang: 'en' });
  await rooms.pair('7');
  await rooms.pair('ada', 'operator', { channel: 'webchat' });
  edited = [];
  follows = service();
});
afterEach(() => rooms.close());

function service(): ChatLogFollows {
  const { store, clock, outbox } = rooms;
  return new ChatLogFollows({
    store,
    clock,
    log: silentLog,
    outbox,
    emit: (_tx, events) => void edited.push(...events),
  });
}

const inWebchat = { route: direct('ada', 'webchat'), sender: { id: 'ada' } };

/** An errand of this person, under way. */
async function running(userId: string, more: object = {}): Promise<{ id: string; grant: Grant }> {
  await rooms.say(userId, '/run hello', more);
  const grant = await rooms.claim();
  await rooms.report(grant, { type: 'started' });
  return { id: await rooms.lastTaskId(), grant };
}

const prints = (grant: Grant, text: string) => rooms.report(grant, { type: 'log', stream: 'stdout', text, offset: 0 });

async function look(ms: number): Promise<void> {
  rooms.clock.advance(ms);
  await follows.lookOnce();
}

/** Texts of the messages of follows. */
const shown = async (chat: string) =>
  (await rooms.sent()).filter((row) => row.chat === chat && row.kind === 'update').map(({ text }) => text);
const rowsLeft = async () =>
  (await rooms.store.all(queries.dueLogFollows, { now: Number.MAX_SAFE_INTEGER, limit: 99 })).length;

describe('/logs follow', () => {
  it('changes one message of the web chat as lines come, and says how the errand ended', async () => {
    const { id, grant } = await running('ada', inWebchat);
    await prints(grant, 'one\n');
    await rooms.say('ada', `/logs ${id} follow`, inWebchat);
    await look(0);
    expect(await shown('ada')).toEqual([`one\n▶️ ${id} goes on …`]);
    await prints(grant, 'two\u001b[31m\n');
    await look(1_000);
    expect(await shown('ada')).toEqual([`one\ntwo\n▶️ ${id} goes on …`]);
    expect(edited).toHaveLength(1);
    await rooms.report(grant, { type: 'succeeded', summary: 'ok' });
    await look(1_000);
    expect(await shown('ada')).toEqual([`one\ntwo\n■ ${id}: done`]);
    expect(await rowsLeft()).toBe(0);
  });

  it('sends a message every ten seconds at most where none can be changed, and no line twice', async () => {
    const { id, grant } = await running('7');
    await prints(grant, 'before\n');
    const [answer] = await rooms.say('7', `/logs ${id} follow`);
    expect(answer!.text).toBe(`before\nI show here what ${id} prints until it is over.`);
    for (let n = 0; n < 30; n += 1) {
      await prints(grant, `${n}\n`);
      await look(1_000);
    }
    const sent = await shown('7');
    expect(sent.length).toBeLessThanOrEqual(4);
    await rooms.report(grant, { type: 'succeeded', summary: 'ok' });
    await look(MESSAGE_PAUSE_MS);
    expect((await shown('7')).join('\n').split('\n')).toEqual(Array.from({ length: 30 }, (_, n) => String(n)));
    expect(await rowsLeft()).toBe(0);
  });

  it('stops after ten messages there and says how to see more', async () => {
    const { id, grant } = await running('7');
    await rooms.say('7', `/logs ${id} follow`);
    for (let n = 0; n < MAX_MESSAGES + 3; n += 1) {
      await prints(grant, `${n}\n`);
      await look(MESSAGE_PAUSE_MS);
    }
    const sent = await shown('7');
    expect(sent).toHaveLength(MAX_MESSAGES);
    expect(sent.at(-1)).toBe(`9\n… I stop here; /logs ${id} shows the end.`);
    expect(await rowsLeft()).toBe(0);
  });

  it('goes on after a restart where it was', async () => {
    const { id, grant } = await running('7');
    await rooms.say('7', `/logs ${id} follow`);
    await prints(grant, 'one\n');
    await look(0);
    await rooms.reopen();
    follows = service();
    await prints(grant, 'two\n');
    await look(MESSAGE_PAUSE_MS);
    expect(await shown('7')).toEqual(['one', 'two']);
  });

  it('two looks at the same time tell nothing twice', async () => {
    const { id, grant } = await running('7');
    await rooms.say('7', `/logs ${id} follow`);
    await prints(grant, 'one\n');
    await Promise.all([follows.lookOnce(), service().lookOnce(), follows.lookOnce()]);
    expect(await shown('7')).toEqual(['one']);
  });

  it('is given up after an hour', async () => {
    const { id } = await running('ada', inWebchat);
    await rooms.say('ada', `/logs ${id} follow`, inWebchat);
    await look(FOLLOW_LIMIT_MS);
    expect((await shown('ada')).at(-1)).toMatch(/I stop here/);
    expect(await rowsLeft()).toBe(0);
  });

  it('follows an errand once, five at most, and shows what is over at once', async () => {
    const { id, grant } = await running('7');
    await rooms.say('7', `/logs ${id} follow`);
    expect(await rooms.reply('7', `/logs ${id} follow`)).toMatch(/already/);
    expect(await rooms.reply('7', `/logs ${id} sideways`)).toMatch(/I do not understand/);
    for (let n = 0; n < 4; n += 1) await rooms.reply('7', `/logs ${(await running('7')).id} follow`);
    expect(await rooms.reply('7', `/logs ${(await running('7')).id} follow`)).toMatch(/follow 5 errands/);
    await prints(grant, 'all\n');
    await rooms.report(grant, { type: 'succeeded', summary: 'ok' });
    expect(await rooms.reply('7', `/logs ${id} 跟踪`)).toBe('all');
  });

  it('does not reach into another conversation', async () => {
    const { id } = await running('7');
    await rooms.pair('8');
    expect(await rooms.reply('8', `/logs ${id} follow`)).toMatch(/no errand/);
    expect(await rowsLeft()).toBe(0);
  });
});

it('no statement walks a table that grows', async () => {
  const core = await Core.open();
  const connection = new Database(core.path, { readonly: true });
  try {
    for (const query of [...Object.values(queries), editSent] as HotQuery<never, unknown>[]) {
      // Of follows there are as many as run.
      const steps = planOf(connection, query).filter((step) => /SCAN (?!jsonb_each|r\b|log_follow\b)/.test(step));
      expect({ name: query.name, steps }).toEqual({ name: query.name, steps: [] });
    }
  } finally {
    connection.close();
    await core.close();
  }
});
