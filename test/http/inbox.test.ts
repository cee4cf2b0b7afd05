import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestGateway } from '../support/gateway.ts';
import { until } from '../support/until.ts';

interface Page {
  messages: { inboxId: string; text: string; error: string; chat?: string }[];
  next?: string;
}

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await TestGateway.start();
  const { store } = gateway.gateway.rooms;
  await store.transact('test.park', async (tx) => {
    const first = await tx.ids(3);
    for (let n = 0; n < 3; n += 1)
      await tx.exec(
        tx.dialect.build.insertInto('inbox').values({
          ...{ id: first + n, channel: 'telegram', account: 'default', identity: `p${n}`, kind: 'text' },
          route: n === 0 ? '{' : '{"channel":"telegram","account":"default","chat":"42","chatKind":"direct"}',
          ...{ sender_id: '42', sender_name: null, text: `m${n}`, addressed: 1, sent_at: null, received_at: tx.now },
          ...{ status: 'failed', attempts: 3, session_key: null, reason: 'poison', done_at: tx.now },
        }),
      );
  });
});
afterAll(() => gateway?.stop());

const list = async (query = '') => (await gateway.api<Page>('GET', `/api/inbox${query}`)).body;

test('messages that were put aside are listed, the newest first and page by page', async () => {
  const page = await list('?limit=2');
  expect(page.messages.map(({ text }) => text)).toEqual(['m2', 'm1']);
  expect(page.messages[0]).toMatchObject({ chat: '42', error: 'poison', userId: '42', attempts: 3 });
  const rest = await list(`?limit=2&cursor=${page.next}`);
  expect(rest).toEqual({ messages: [expect.objectContaining({ text: 'm0' })] });
  expect(rest.messages[0]).not.toHaveProperty('chat');
});

test('one is tried again once, and it is written down who did', async () => {
  const { inboxId } = (await list()).messages.find(({ text }) => text === 'm2')!;
  const retry = (id: string) => gateway.api<{ code?: string }>('POST', `/api/inbox/${id}/retry`);
  expect((await retry(inboxId)).status).toBe(202);
  await until(async () => {
    const { status } = (await gateway.api<{ status: string }>('GET', `/api/inbox/${inboxId}`)).body;
    return status === 'refused';
  }, 'the message of a stranger to be worked off');
  expect((await retry(inboxId)).body).toMatchObject({ code: 'conflict' });
  expect((await retry('zzzz')).status).toBe(404);
  const { entries } = (await gateway.api<{ entries: { action: string; target: string }[] }>('GET', '/api/audit')).body;
  expect(entries.filter(({ action }) => action === 'inbox.retried')).toEqual([
    expect.objectContaining({ target: `inbox/${inboxId}` }),
  ]);
});
