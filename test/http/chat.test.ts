import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { revoke } from '../../src/sessions/access.ts';
import { LINK_MS, webchatPerson } from '../../src/sessions/logins.ts';
import { ChatRig, type ChatRigOptions, EventReader, START } from '../channels/webchat/rig.ts';
import { until } from '../support/until.ts';

let rig: ChatRig | undefined;
const readers: EventReader[] = [];
afterEach(async () => {
  for (const reader of readers.splice(0)) reader.close();
  await rig?.end();
  rig = undefined;
});

async function start(options: ChatRigOptions = {}): Promise<ChatRig> {
  rig = await ChatRig.start(options);
  return rig;
}

async function follow(...args: Parameters<typeof EventReader.open>): Promise<EventReader> {
  const reader = await EventReader.open(...args);
  readers.push(reader);
  return reader;
}

const KEY_OF_ANN = 'agent:main:webchat:direct:ann';
const inbox = (chat: ChatRig) =>
  chat.store.fetch(chat.store.dialect.build.selectFrom('inbox').selectAll().orderBy('id'));
const people = (chat: ChatRig) =>
  chat.store.fetch(chat.store.dialect.build.selectFrom('person').selectAll().orderBy('id'));

describe('login', () => {
  it('the administrator makes a link that opens a page whose button signs the browser in', async () => {
    const chat = await start();
    const { status, body } = await chat.call('/api/chat/logins', { body: { user: 'ann', name: 'Ann' } });
    expect(status).toBe(201);
    expect(body).toEqual({ url: expect.stringContaining(`${chat.url}/chat/login?token=`), expiresAt: START + LINK_MS });
    const page = await fetch(body.url);
    const token = /name="token" value="([\w-]+)"/.exec(await page.text())?.[1];
    expect(new URL(body.url).searchParams.get('token')).toBe(token);
    const pressed = await chat.press(token!);
    expect(pressed.status).toBe(303);
    expect(pressed.headers.get('location')).toBe('/chat');
    const cookie = pressed.headers.get('set-cookie')!;
    for (const part of ['HttpOnly', 'SameSite=Strict', 'Path=/', 'Max-Age=2592000']) expect(cookie).toContain(part);
    expect(cookie).not.toContain('Secure');
    const as = { cookie: /errand_login=([^;]+)/.exec(cookie)![1]!, csrf: '' };
    expect((await chat.call('/api/chat/me', { as })).body).toEqual({
      user: 'ann',
      name: 'Ann',
      role: 'operator',
      sessionKey: KEY_OF_ANN,
      csrf: expect.stringMatching(/^\w{64}$/),
    });
  });

  it('link previews and the page itself do not use a link up; the button does', async () => {
    const chat = await start();
    const token = await chat.link('ann');
    for (const method of ['GET', 'HEAD', 'GET']) {
      expect((await fetch(`${chat.url}/chat/login?token=${token}`, { method })).status).toBe(200);
    }
    expect((await chat.press(token)).status).toBe(303);
    const again = await chat.press(token);
    expect(again.status).toBe(403);
    expect(await again.text()).toContain('used or is too old');
    expect(again.headers.get('set-cookie')).toBeNull();
    expect((await fetch(`${chat.url}/chat/login?token=${token}`)).status).toBe(403);
  });

  it('the cookie is for encrypted connections only where the public URL is https', async () => {
    const chat = await start({ env: { ERRAND_PUBLIC_URL: 'https://errand.example/' } });
    const { body } = await chat.call('/api/chat/logins', { body: { user: 'ann' } });
    expect(body.url).toMatch(/^https:\/\/errand\.example\/chat\/login\?token=/);
    const token = new URL(body.url).searchParams.get('token')!;
    const pressed = await chat.press(token, { origin: 'https://errand.example' });
    expect(pressed.headers.get('set-cookie')).toContain('Secure');
  });

  it('another site cannot press the button', async () => {
    const chat = await start();
    const token = await chat.link('ann');
    for (const origin of ['https://evil.example', 'null', `${chat.url}0`]) {
      expect((await chat.press(token, { origin })).status, origin).toBe(403);
    }
    expect((await chat.press(token)).status).toBe(303);
  });

  it('only the administrator makes links', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    expect(await chat.call('/api/chat/logins', { as: ann, body: { user: 'admin' } })).toMatchObject({ status: 403 });
    expect(await chat.call('/api/chat/logins', { as: 'nobody', body: { user: 'admin' } })).toMatchObject({
      status: 401,
    });
  });

  it('signing out ends the login', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    const left = await chat.call('/api/chat/logout', { as: ann, body: {} });
    expect(left.status).toBe(204);
    expect(left.headers.get('set-cookie')).toMatch(/errand_login=;.*Expires=Thu, 01 Jan 1970/);
    expect(await chat.call('/api/chat/me', { as: ann })).toMatchObject({ status: 401, body: { code: 'unauthorized' } });
  });

  it('a token in the address is shown as text', async () => {
    const chat = await start();
    const page = await fetch(`${chat.url}/chat/login?token=${encodeURIComponent('"><script>alert(1)</script>')}`);
    expect(page.status).toBe(403);
    expect(await page.text()).not.toContain('<script>');
  });
});

describe('who speaks', () => {
  it('nothing is answered without a credential, and a wrong token is not made good by a cookie', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    for (const path of ['/api/chat/me', '/api/chat/messages', '/api/chat/events']) {
      expect(await chat.call(path, { as: 'nobody' }), path).toMatchObject({
        status: 401,
        body: { code: 'unauthorized' },
      });
      expect(await chat.call(path, { as: { cookie: 'x', csrf: '' } }), path).toMatchObject({ status: 401 });
      expect(await chat.call(path, { as: ann, headers: { authorization: 'Bearer wrong' } }), path).toMatchObject({
        status: 401,
      });
    }
    expect(await chat.call('/api/chat/messages', { as: 'nobody', body: { text: 'hi' } })).toMatchObject({
      status: 401,
    });
    expect(await inbox(chat)).toEqual([]);
  });

  it('a person speaks as who they are signed in as; names in the body are refused', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann', 'Ann');
    for (const more of [{ user: 'bob' }, { user: 'ann' }, { sessionKey: 'agent:main:webchat:direct:bob' }]) {
      const answer = await chat.call('/api/chat/messages', { as: ann, body: { text: 'hi', ...more } });
      expect(answer, JSON.stringify(more)).toMatchObject({
        status: 403,
        body: { code: 'forbidden', field: Object.keys(more)[0] },
      });
    }
    expect(await inbox(chat)).toEqual([]);
    const answer = await chat.call('/api/chat/messages', { as: ann, body: { text: 'hi' } });
    expect(answer).toMatchObject({ status: 202, body: { sessionKey: KEY_OF_ANN } });
    const [row] = await inbox(chat);
    expect(row).toMatchObject({
      sender_id: 'ann',
      sender_name: 'Ann',
      text: 'hi',
      kind: 'text',
      addressed: 1,
      status: 'new',
    });
    expect(JSON.parse(row!.route)).toMatchObject({
      channel: 'webchat',
      account: 'default',
      chat: 'ann',
      chatKind: 'direct',
    });
    expect(chat.store.ids.encode(row!.id)).toBe(answer.body.inboxId);
  });

  it('a person reads their own conversation only', async () => {
    const chat = await start();
    const [ann, bob] = [await chat.signIn('ann'), await chat.signIn('bob')];
    await chat.call('/api/chat/messages', { as: bob, body: { text: 'a secret' } });
    expect((await chat.call('/api/chat/messages', { as: ann })).body.messages).toEqual([]);
    expect((await chat.call(`/api/chat/messages?sessionKey=${KEY_OF_ANN}`, { as: ann })).status).toBe(200);
    for (const query of ['sessionKey=agent:main:webchat:direct:bob', 'user=bob']) {
      for (const path of ['/api/chat/messages', '/api/chat/events', '/api/chat/me']) {
        expect(await chat.call(`${path}?${query}`, { as: ann }), `${path}?${query}`).toMatchObject({ status: 403 });
      }
    }
  });

  it('the administrator speaks as "admin" or as a named user, who is paired by that', async () => {
    const chat = await start();
    expect((await chat.call('/api/chat/messages', { body: { text: '1' } })).body.sessionKey).toBe(
      'agent:main:webchat:direct:admin',
    );
    expect((await chat.call('/api/chat/messages', { body: { text: '2', user: 'ann' } })).body.sessionKey).toBe(
      KEY_OF_ANN,
    );
    expect((await chat.call('/api/chat/messages', { body: { text: '3', sessionKey: KEY_OF_ANN } })).status).toBe(202);
    expect((await inbox(chat)).map((row) => row.sender_id)).toEqual(['admin', 'ann', 'ann']);
    expect(await people(chat)).toMatchObject([
      { user_id: 'admin', role: 'operator', paired_by: 'admin token' },
      { user_id: 'ann', role: 'operator', paired_by: 'admin token' },
    ]);
  });

  it('reading as the administrator pairs nobody', async () => {
    const chat = await start();
    expect(await chat.texts('ann')).toEqual([]);
    expect((await chat.call('/api/chat/me?user=ann')).body).toEqual({
      user: 'ann',
      name: 'ann',
      role: null,
      sessionKey: KEY_OF_ANN,
    });
    expect(await people(chat)).toEqual([]);
  });

  it('a conversation of another channel, another user or no conversation at all is refused', async () => {
    const chat = await start();
    const keys = [
      'agent:main:telegram:direct:42',
      'agent:main:webchat:group:ann',
      'agent:main:webchat:direct:',
      'ann',
      `${KEY_OF_ANN}%zz`,
    ];
    for (const sessionKey of keys) {
      const answer = await chat.call('/api/chat/messages', { body: { text: 'hi', sessionKey } });
      expect(answer, sessionKey).toMatchObject({ status: 400, body: { code: 'invalid_request', field: 'sessionKey' } });
    }
    const answer = await chat.call('/api/chat/messages', { body: { text: 'hi', sessionKey: KEY_OF_ANN, user: 'bob' } });
    expect(answer).toMatchObject({ status: 400, body: { field: 'sessionKey' } });
    expect(await inbox(chat)).toEqual([]);
    expect(await people(chat)).toEqual([]);
  });

  it('users with colons, blanks and percent signs keep apart and find their conversation by its key', async () => {
    const chat = await start();
    const users = ['a:b', 'a%3Ab', 'a b', '张 三', 'direct:ann'];
    for (const user of users) await chat.call('/api/chat/messages', { body: { text: `from ${user}`, user } });
    for (const user of users) {
      expect(await chat.texts(user)).toEqual([`from ${user}`]);
      const { sessionKey } = (await chat.call(`/api/chat/me?user=${encodeURIComponent(user)}`)).body;
      const { body } = await chat.call(`/api/chat/messages?sessionKey=${encodeURIComponent(sessionKey)}`);
      expect(body.messages).toMatchObject([{ text: `from ${user}` }]);
    }
  });

  it('a revoked person is shut out, and nobody can speak in their name', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    await chat.store.transact('revoke', (tx) => revoke(tx, webchatPerson('ann'), 'cli'));
    expect(await chat.call('/api/chat/messages', { as: ann })).toMatchObject({ status: 401 });
    expect(await chat.call('/api/chat/messages', { body: { text: 'hi', user: 'ann' } })).toMatchObject({ status: 403 });
    expect(await inbox(chat)).toEqual([]);
  });
});

describe('requests from other sites', () => {
  it('a state-changing call with the cookie needs the token of /api/chat/me; with the admin token it does not', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    const bob = await chat.signIn('bob');
    for (const csrf of ['', 'wrong', bob.csrf]) {
      const answer = await chat.call('/api/chat/messages', { as: { ...ann, csrf }, body: { text: 'hi' } });
      expect(answer).toMatchObject({ status: 403, body: { code: 'forbidden', field: 'x-errand-csrf' } });
      expect(await chat.call('/api/chat/logout', { as: { ...ann, csrf }, body: {} })).toMatchObject({ status: 403 });
    }
    expect(await inbox(chat)).toEqual([]);
    expect((await chat.call('/api/chat/messages', { as: ann, body: { text: 'hi' } })).status).toBe(202);
    expect((await chat.call('/api/chat/messages', { body: { text: 'hi' } })).status).toBe(202);
  });

  it('the origin must be ours even with the right token', async () => {
    const chat = await start({ env: { ERRAND_PUBLIC_URL: 'https://errand.example' } });
    const ann = await chat.signIn('ann');
    const say = async (headers: Record<string, string>) =>
      (await chat.call('/api/chat/messages', { as: ann, body: { text: 'hi' }, headers })).status;
    expect(await say({ origin: 'https://evil.example' })).toBe(403);
    expect(await say({ origin: 'null' })).toBe(403);
    expect(await say({ origin: 'http://errand.example' })).toBe(403);
    expect(await say({ 'sec-fetch-site': 'cross-site' })).toBe(403);
    expect(await say({ 'sec-fetch-site': 'same-origin' })).toBe(202);
    expect(await say({ origin: chat.url })).toBe(202);
    expect(await say({ origin: 'https://errand.example' })).toBe(202);
  });

  it('a strange host name is refused although the origin agrees with it (DNS rebinding)', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    const { port } = new URL(chat.url);
    const hosts = {
      [`evil.example:${port}`]: 403,
      'evil.example': 403,
      [`127.0.0.1:${port}`]: 202,
      [`localhost:${port}`]: 202,
      [`[::1]:${port}`]: 202,
    };
    for (const [host, status] of Object.entries(hosts)) {
      const headers = {
        host,
        origin: `http://${host}`,
        cookie: `errand_login=${ann.cookie}`,
        'x-errand-csrf': ann.csrf,
        'content-type': 'application/json',
      };
      expect(await rawPost(`${chat.url}/api/chat/messages`, headers, '{"text":"hi"}'), host).toBe(status);
    }
  });
});

/** `fetch` does not let a program choose its Host. */
function rawPost(url: string, headers: Record<string, string>, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method: 'POST', headers }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode!));
    });
    request.on('error', reject);
    request.end(body);
  });
}

describe('messages', () => {
  it('the same message id is one row, whoever repeats it and with whatever text', async () => {
    const chat = await start();
    const [ann, bob] = [await chat.signIn('ann'), await chat.signIn('bob')];
    const first = await chat.call('/api/chat/messages', { as: ann, body: { text: 'once', messageId: 'm1' } });
    expect(first.body).not.toHaveProperty('duplicate');
    const again = await chat.call('/api/chat/messages', { as: ann, body: { text: 'changed', messageId: 'm1' } });
    expect(again).toMatchObject({ status: 202, body: { ...first.body, duplicate: true } });
    const other = await chat.call('/api/chat/messages', { as: bob, body: { text: 'mine', messageId: 'm1' } });
    expect(other.body).not.toHaveProperty('duplicate');
    const several = await Promise.all(
      [1, 2, 3, 4].map(() => chat.call('/api/chat/messages', { as: ann, body: { text: 'at once', messageId: 'm2' } })),
    );
    expect(new Set(several.map((answer) => answer.body.inboxId)).size).toBe(1);
    expect(several.filter((answer) => answer.body.duplicate).length).toBe(3);
    expect((await inbox(chat)).map((row) => row.text)).toEqual(['once', 'mine', 'at once']);
  });

  it('without a message id every message is a new one', async () => {
    const chat = await start();
    for (let n = 0; n < 3; n += 1) await chat.call('/api/chat/messages', { body: { text: 'same' } });
    expect(await inbox(chat)).toHaveLength(3);
  });

  it('bad input is told by its field and changes nothing', async () => {
    const chat = await start();
    const bad: [string, unknown][] = [
      ['text', {}],
      ['text', { text: '' }],
      ['text', { text: ' \n ' }],
      ['text', { text: 'x'.repeat(8_001) }],
      ['text', { text: 5 }],
      ['messageId', { text: 'hi', messageId: '' }],
      ['messageId', { text: 'hi', messageId: 'a\nb' }],
      ['messageId', { text: 'hi', messageId: 'x'.repeat(129) }],
      ['user', { text: 'hi', user: ' ann' }],
      ['user', { text: 'hi', user: 'x'.repeat(65) }],
      ['body', { text: 'hi', role: 'admin' }],
    ];
    for (const [field, body] of bad) {
      const answer = await chat.call('/api/chat/messages', { body });
      expect(answer, JSON.stringify(body).slice(0, 80)).toMatchObject({
        status: 400,
        body: { code: 'invalid_request', field },
      });
    }
    for (const query of [
      'limit=0',
      'limit=201',
      'limit=x',
      'after=!!',
      'after=zzzzzzzzzzzzzzzzz',
      'after=0&before=0',
    ]) {
      expect(await chat.call(`/api/chat/messages?${query}`), query).toMatchObject({
        status: 400,
        body: { code: 'invalid_request' },
      });
    }
    expect(await inbox(chat)).toEqual([]);
    expect(await people(chat)).toEqual([]);
    const huge = await chat.call('/api/chat/messages', { body: { text: 'x'.repeat(70_000) } });
    expect(huge).toMatchObject({ status: 413, body: { code: 'too_large' } });
    expect((await chat.call('/api/chat/messages', { body: { text: 'x'.repeat(8_000) } })).status).toBe(202);
  });

  it('both directions are shown in their order, before and after the message was acted on', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    const taskId = await chat.store.transact('ids', (tx) => tx.ids(1));
    const { body } = await chat.call('/api/chat/messages', { as: ann, body: { text: 'question' } });
    chat.clock.advance(1_000);
    await chat.say('ann', 'answer', { taskId });
    await chat.say('bob', 'for somebody else');
    const question = { id: body.inboxId, from: 'user', text: 'question', at: START };
    const answer = {
      id: expect.any(String),
      from: 'bot',
      text: 'answer',
      at: START + 1_000,
      taskId: chat.store.ids.encode(taskId),
    };
    expect((await chat.call('/api/chat/messages', { as: ann })).body).toEqual({ messages: [question, answer] });
    for (const status of ['done', 'refused', 'failed']) {
      const { body: more } = await chat.call('/api/chat/messages', { as: ann, body: { text: status } });
      await chat.settle(more.inboxId, 'ann', status);
    }
    await chat.settle(body.inboxId, 'ann');
    expect(await chat.texts('ann')).toEqual(['question', 'answer', 'done', 'refused', 'failed']);
  });

  it('what is not sent is not shown', async () => {
    const chat = await start();
    const route = { channel: 'telegram', account: 'default', chat: '42', chatKind: 'direct' } as const;
    await chat.say('ann', 'on its way by another channel', { route });
    await chat.say('ann', 'sent');
    expect(await chat.texts('ann')).toEqual(['sent']);
  });

  it('pages forwards and backwards meet without a gap or a repeat', async () => {
    const chat = await start();
    const expected: string[] = [];
    for (let n = 0; n < 23; n += 1) {
      expected.push(`m${n}`);
      if (n % 3 === 0) await chat.say('ann', `m${n}`);
      else {
        const { body } = await chat.call('/api/chat/messages', { body: { text: `m${n}`, user: 'ann' } });
        if (n % 2 === 0) await chat.settle(body.inboxId, 'ann');
      }
    }
    const page = async (query: string) =>
      (await chat.call(`/api/chat/messages?user=ann&limit=5${query}`)).body.messages;
    const forwards = [];
    for (let rows = await page('&after=0'); rows.length > 0; rows = await page(`&after=${rows.at(-1).id}`))
      forwards.push(...rows);
    const backwards = [];
    for (let rows = await page(''); rows.length > 0; rows = await page(`&before=${rows[0].id}`))
      backwards.unshift(...rows);
    expect(forwards.map((message) => message.text)).toEqual(expected);
    expect(backwards).toEqual(forwards);
  });

  it('any text survives: markup, emoji, other scripts, line breaks', async () => {
    const chat = await start();
    const text = ' <script>alert("x")</script>\n汉字 👩‍👩‍👧 "quotes" \\ \u2028 & ';
    await chat.call('/api/chat/messages', { body: { text, user: 'ann' } });
    await chat.say('ann', text);
    expect(await chat.texts('ann')).toEqual([text, text]);
  });
});

describe('events', () => {
  it('both directions arrive as they are stored, with ids that can be gone on from', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    await chat.say('ann', 'before');
    const stream = await follow(chat, '/api/chat/events', { as: ann });
    expect(stream.status).toBe(200);
    await until(() => stream.comments > 0, 'the first sign of life');
    await chat.call('/api/chat/messages', { as: ann, body: { text: 'question' } });
    await until(() => stream.events.length === 1, 'the own message');
    await chat.say('ann', 'two\nlines\r\n\r\ndata: x');
    await chat.say('bob', 'for somebody else');
    await until(() => stream.events.length === 2, 'the answer');
    expect(stream.texts()).toEqual(['question', 'two\nlines\r\n\r\ndata: x']);
    expect(stream.events.map(({ id, event, data }) => [event, id === data.id])).toEqual([
      ['message', true],
      ['message', true],
    ]);
    const { body } = await chat.call('/api/chat/messages', { as: ann });
    expect(stream.events.map((event) => event.data)).toEqual(body.messages.slice(1));
  });

  it('a stream goes on after Last-Event-ID or a cursor, in the same order', async () => {
    const chat = await start();
    for (let n = 0; n < 5; n += 1) await chat.say('ann', `m${n}`);
    const { messages } = (await chat.call('/api/chat/messages?user=ann')).body;
    const header = await follow(chat, '/api/chat/events?user=ann&after=0', {
      headers: { 'last-event-id': messages[2].id },
    });
    const query = await follow(chat, `/api/chat/events?user=ann&after=${messages[1].id}`);
    const all = await follow(chat, '/api/chat/events?user=ann&after=0');
    const now = await follow(chat, '/api/chat/events?user=ann');
    await until(() => now.comments > 0, 'the last stream to follow');
    await chat.say('ann', 'm5');
    await until(() => [header, query, all, now].every((stream) => stream.texts().at(-1) === 'm5'), 'all to have m5');
    expect(header.texts()).toEqual(['m3', 'm4', 'm5']);
    expect(query.texts()).toEqual(['m2', 'm3', 'm4', 'm5']);
    expect(all.texts()).toEqual(['m0', 'm1', 'm2', 'm3', 'm4', 'm5']);
    expect(now.texts()).toEqual(['m5']);
  });

  it('nothing is lost or repeated while many write and a reader drops and resumes again and again', async () => {
    const chat = await start();
    const seen: string[] = [];
    let last = '0';
    const writing = Array.from({ length: 8 }, async (_, writer) => {
      for (let n = 0; n < 25; n += 1) {
        if (writer % 2 === 0) await chat.say('ann', `${writer}-${n}`);
        else await chat.call('/api/chat/messages', { body: { text: `${writer}-${n}`, user: 'ann' } });
      }
    });
    for (let round = 1; seen.length < 200; round += 1) {
      const stream = await follow(chat, '/api/chat/events?user=ann', { headers: { 'last-event-id': last } });
      await until(() => stream.events.length > 0, 'some events');
      if (round % 2 === 0)
        await until(() => stream.events.length >= 3 || seen.length + stream.events.length >= 200, 'some more');
      stream.close();
      await until(() => stream.ended, 'the reader to stop');
      seen.push(...stream.texts());
      last = stream.events.at(-1)!.id;
    }
    await Promise.all(writing);
    expect(seen).toEqual(await chat.texts('ann', '&after=0&limit=200'));
    expect(new Set(seen).size).toBe(200);
  });

  it('a history of several pages is replayed whole', async () => {
    const chat = await start();
    const texts = Array.from({ length: 250 }, (_, n) => `${n} ${'汉'.repeat(2_000)}`);
    for (const text of texts) await chat.say('ann', text);
    const stream = await follow(chat, '/api/chat/events?user=ann&after=0');
    await until(() => stream.events.length >= 250, 'the whole history');
    expect(stream.texts()).toEqual(texts);
  });

  it('streams end with the server, resume after its restart, and hold it up in no way', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    const stream = await follow(chat, '/api/chat/events?after=0', { as: ann });
    await chat.say('ann', 'before');
    await until(() => stream.events.length === 1, 'the first message');
    await chat.down();
    await until(() => stream.ended, 'the stream to end');
    expect(stream.wasCut).toBe(false);
    expect(chat.listeners).toBe(0);
    await chat.up();
    await chat.say('ann', 'meanwhile');
    const resumed = await follow(chat, '/api/chat/events?after=0', {
      as: ann,
      headers: { 'last-event-id': stream.events[0]!.id },
    });
    await chat.say('ann', 'after');
    await until(() => resumed.events.length === 2, 'the rest');
    expect(resumed.texts()).toEqual(['meanwhile', 'after']);
    expect(chat.logText()).not.toContain('chat.events_failed');
  });

  it('a person whose access is revoked gets nothing more', async () => {
    const chat = await start();
    const ann = await chat.signIn('ann');
    const stream = await follow(chat, '/api/chat/events', { as: ann });
    await until(() => stream.comments > 0, 'the stream to follow');
    await chat.store.transact('revoke', (tx) => revoke(tx, webchatPerson('ann'), 'cli'));
    await chat.say('ann', 'a secret');
    await until(() => stream.ended, 'the stream to end');
    expect(stream.events).toEqual([]);
  });

  it('a conversation has twenty streams at most, and closed ones are not counted', async () => {
    const chat = await start();
    const open = await Promise.all(Array.from({ length: 20 }, () => follow(chat, '/api/chat/events?user=ann')));
    const refused = await chat.call('/api/chat/events?user=ann');
    expect(refused).toMatchObject({ status: 429, body: { code: 'rate_limited' } });
    expect((await follow(chat, '/api/chat/events?user=bob')).status).toBe(200);
    open[0]!.close();
    await until(async () => (await follow(chat, '/api/chat/events?user=ann')).status === 200, 'a place to be free');
  });

  it('a stream that has nothing to tell gives signs of life, and notices by itself that access was revoked', async () => {
    const chat = await start({ heartbeatMs: 5 });
    const ann = await chat.signIn('ann');
    const stream = await follow(chat, '/api/chat/events', { as: ann });
    await until(() => stream.comments >= 3, 'three signs of life');
    expect(stream.events).toEqual([]);
    await chat.store.transact('revoke', (tx) => revoke(tx, webchatPerson('ann'), 'cli'));
    await until(() => stream.ended, 'the stream to end');
  });

  it('a cursor that is none is refused', async () => {
    const chat = await start();
    expect(await chat.call('/api/chat/events?after=!')).toMatchObject({ status: 400, body: { field: 'after' } });
    expect(await chat.call('/api/chat/events', { headers: { 'last-event-id': '!' } })).toMatchObject({ status: 400 });
  });
});

describe('the page', () => {
  async function page(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'errand-page-'));
    await mkdir(join(folder, 'hashed'));
    await writeFile(join(folder, 'index.html'), '<!doctype html><title>Errand</title>');
    await writeFile(join(folder, 'hashed', 'a-123.js'), 'export {};');
    await writeFile(join(folder, 'icon.svg'), '<svg xmlns="http://www.w3.org/2000/svg"/>');
    return folder;
  }

  it('it and its files come with a strict content security policy, hashed files for good', async () => {
    const pageDir = await page();
    const chat = await start({ pageDir });
    const types = {
      '/chat': /^text\/html/,
      '/chat/assets/hashed/a-123.js': /javascript/,
      '/chat/assets/icon.svg': /^image\/svg/,
      '/chat/login': /^text\/html/,
    };
    for (const [path, type] of Object.entries(types)) {
      const { headers } = await chat.call(path, { as: 'nobody' });
      expect(headers.get('content-type'), path).toMatch(type);
      const policy = headers.get('content-security-policy')!;
      expect(policy, path).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
      expect(policy, path).toContain("frame-ancestors 'none'");
      expect(policy, path).not.toContain('unsafe');
      expect(headers.get('x-content-type-options'), path).toBe('nosniff');
    }
    const cached = async (path: string) => (await chat.call(path, { as: 'nobody' })).headers.get('cache-control');
    expect(await cached('/chat/assets/hashed/a-123.js')).toContain('immutable');
    expect(await cached('/chat/assets/icon.svg')).toBe('no-cache');
    expect(await cached('/chat')).toBe('no-cache');
    expect(await cached('/chat/login')).toBe('no-store');
    await rm(pageDir, { recursive: true });
  });

  it('nothing outside of its folder is served', async () => {
    const pageDir = await page();
    const chat = await start({ pageDir });
    for (const path of [
      '/chat/assets/../package.json',
      '/chat/assets/%2e%2e/package.json',
      '/chat/assets/..%2fpackage.json',
      '/chat/assets/none.js',
    ]) {
      expect((await chat.call(path, { as: 'nobody' })).status, path).toBeGreaterThanOrEqual(400);
    }
    await rm(pageDir, { recursive: true });
  });
});
