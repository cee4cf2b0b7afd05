import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { OutboxTable } from '../../src/store/outbox-tables.ts';
import type { RunNews } from '../../src/tasks/report.ts';
import { ERRANDS } from '../support/errands.ts';
import { Rooms } from '../support/rooms.ts';

let rooms: Rooms;
beforeEach(async () => {
  rooms = await Rooms.open({ templates: ERRANDS });
  await rooms.pair('7');
});
afterEach(() => rooms.close());

const done: RunNews = { type: 'succeeded', summary: 'Hello, Ada!' };
const finals = async () => (await rooms.sent()).filter(({ kind }) => kind === 'final');
/** As the delivery leaves it once the platform has accepted it. */
async function sent(row: OutboxTable): Promise<void> {
  await rooms.store.transact('test.sent', (tx) =>
    tx.exec(tx.dialect.build.updateTable('outbox').set({ status: 'sent', sent_at: tx.now }).where('id', '=', row.id)),
  );
  const { id, session_key, task_id, flow_id, dedupe_key } = row;
  await rooms.letters({
    ...{ type: 'outbox.sent', channel: 'telegram', account: 'default', chat: '7', kind: 'final' },
    ...{ id, sessionKey: session_key, taskId: task_id, flowId: flow_id, dedupeKey: dedupe_key },
  });
}
const task = async () => (await rooms.tasks())[0]!;

describe('A31: the notify policy is the one at the time of sending', () => {
  it('silent before the end: nothing is told of it', async () => {
    await rooms.say('7', 'greet Ada');
    const grant = await rooms.claim();
    await rooms.say('7', `/notify silent ${await rooms.lastTaskId()}`);
    expect(await task()).toMatchObject({ notify_policy: 'silent', delivery_status: 'not_applicable' });
    await rooms.report(grant, done);
    expect(await finals()).toEqual([]);
    expect(await task()).toMatchObject({ status: 'succeeded', delivery_status: 'not_applicable' });
  });

  it('silent after the end and before it is sent: the result is taken back', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), done);
    expect(await finals()).toMatchObject([{ status: 'pending' }]);
    expect(await task()).toMatchObject({ delivery_status: 'session_queued' });
    await rooms.say('7', `/notify silent ${await rooms.lastTaskId()}`);
    expect(await finals()).toMatchObject([{ status: 'superseded' }]);
    expect(await task()).toMatchObject({ delivery_status: 'not_applicable' });
  });

  it('silent after it is sent, or while it is being sent: no effect on it', async () => {
    await rooms.say('7', 'greet Ada');
    await rooms.report(await rooms.claim(), done);
    const [row] = await finals();
    await sent(row!);
    await rooms.say('7', `/notify silent ${await rooms.lastTaskId()}`);
    expect(await finals()).toMatchObject([{ status: 'sent', id: row!.id }]);
    expect(await task()).toMatchObject({ delivery_status: 'delivered' });
  });

  it('less than every change: the end is told, what waits of the way to it is not', async () => {
    await rooms.say('7', '/report 302 Ada');
    const grant = await rooms.claim();
    await rooms.report(grant, { type: 'started' }, { type: 'progress', percent: 50, message: 'half' });
    expect((await rooms.sent()).filter(({ kind, status }) => kind === 'update' && status === 'pending')).not.toEqual(
      [],
    );
    await rooms.say('7', `/notify done_only ${await rooms.lastTaskId()}`);
    await rooms.report(grant, done);
    const waiting = (await rooms.sent()).filter(({ kind, status }) => kind !== 'reply' && status === 'pending');
    expect(waiting.map(({ kind }) => kind)).toEqual(['final']);
  });

  it('from silent to the end: the result comes home', async () => {
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    await rooms.say('7', `/notify silent ${id}`);
    await rooms.say('7', `/notify done_only ${id}`);
    expect(await task()).toMatchObject({ delivery_status: 'pending' });
    await rooms.report(await rooms.claim(), done);
    expect(await finals()).toMatchObject([{ status: 'pending' }]);
    expect(await task()).toMatchObject({ delivery_status: 'session_queued' });
  });

  it('is kept in the audit, and what is no policy or nobody’s errand changes nothing', async () => {
    await rooms.say('7', 'greet Ada');
    const id = await rooms.lastTaskId();
    for (const text of ['/notify', `/notify loud ${id}`, '/notify silent', '/notify silent zzzz'])
      await rooms.say('7', text);
    expect(await task()).toMatchObject({ notify_policy: 'done_only' });
    await rooms.say('7', `/notify silent ${id}`);
    await rooms.say('7', `/notify silent ${id}`);
    const { store } = rooms;
    const audit = await store.fetch(
      store.dialect.build.selectFrom('audit').select('data').where('action', '=', 'task.notify'),
    );
    expect(audit.map(({ data }) => JSON.parse(data!))).toEqual([{ from: 'done_only', to: 'silent' }]);
  });
});
