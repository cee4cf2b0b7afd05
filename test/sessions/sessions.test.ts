import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Route } from '../../src/channels/channel.ts';
import { sessionKeyOf } from '../../src/sessions/keys.ts';
import { langOf } from '../../src/sessions/lang.ts';
import { getSession, setSession, touchSessions } from '../../src/sessions/sessions.ts';
import { openSqlite } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';

const route = (more: Partial<Route> = {}): Route => ({
  channel: 'telegram',
  account: 'default',
  chat: '42',
  chatKind: 'direct',
  ...more,
});

describe('session keys', () => {
  it.each([
    [route(), '42', 'agent:main:telegram:direct:42'],
    [route({ channel: 'wecom', chat: 'zhangsan', messageId: '1' }), 'zhangsan', 'agent:main:wecom:direct:zhangsan'],
    [route({ account: 'ops' }), '42', 'agent:main:telegram:ops:direct:42'],
    [route({ chatKind: 'group', chat: '-100' }), '42', 'agent:main:telegram:group:-100'],
    [route({ chatKind: 'group', chat: '-100', thread: '7' }), '42', 'agent:main:telegram:group:-100:topic:7'],
    [route({ channel: 'webchat', chat: 'anna' }), undefined, 'agent:main:webchat:direct:anna'],
  ])('%o of %s is %s', (from, sender, key) => {
    expect(sessionKeyOf(from, sender)).toBe(key);
  });

  it('another profile is another conversation', () => {
    expect(sessionKeyOf(route(), '42', 'night')).toBe('agent:night:telegram:direct:42');
  });

  it('two different conversations never share a key, whatever their ids hold', () => {
    const part = fc.string({
      unit: fc.constantFrom(':', '%', 'a', 'topic', 'group', 'direct', '3A', ' '),
      minLength: 1,
      maxLength: 4,
    });
    const place = fc.record(
      { account: part, chat: part, chatKind: fc.constantFrom('direct', 'group') },
      { requiredKeys: ['account', 'chat', 'chatKind'] },
    );
    const withTopic = fc
      .tuple(place, fc.option(part, { nil: undefined }))
      .map(([at, thread]) => route({ ...at, thread } as Partial<Route>));
    fc.assert(
      fc.property(withTopic, withTopic, (a, b) => {
        const same =
          JSON.stringify([a.account, a.chat, a.chatKind, a.thread]) ===
          JSON.stringify([b.account, b.chat, b.chatKind, b.thread]);
        expect(sessionKeyOf(a, undefined) === sessionKeyOf(b, undefined)).toBe(same);
      }),
    );
  });
});

it('the language: chosen, else set, else that of the text', () => {
  expect(langOf({ lang: 'en' }, '你好', 'zh')).toBe('en');
  expect(langOf({ lang: null }, 'hello', 'zh')).toBe('zh');
  expect(langOf(undefined, '/run 上报 302', 'auto')).toBe('zh');
  expect(langOf(undefined, '/status', 'auto')).toBe('en');
});

describe('stored sessions', () => {
  let folder: string;
  let store: Store;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'errand-sessions-'));
    store = openSqlite({ path: join(folder, 'errand.db') });
  });
  afterEach(async () => {
    await store.close();
    await rm(folder, { recursive: true, force: true });
  });
  const touch = (...touches: Parameters<typeof touchSessions>[1]) =>
    store.transact('touch', (tx) => touchSessions(tx, touches));

  it('the latest message decides the route, in whatever order messages come; the beginning stays', async () => {
    await touch({ sessionKey: 's', route: route({ messageId: '1' }), at: 100 });
    await touch(
      { sessionKey: 's', route: route({ messageId: '3' }), at: 300 },
      { sessionKey: 's', route: route({ messageId: '2' }), at: 200 },
      { sessionKey: 't', route: route({ chat: '9' }), at: 50 },
    );
    await touch({ sessionKey: 's', route: route({ messageId: 'late' }), at: 250 });
    expect(await getSession(store, 's')).toEqual({
      sessionKey: 's',
      route: route({ messageId: '3' }),
      lang: null,
      notifyPolicy: null,
      createdAt: 100,
      lastMessageAt: 300,
    });
    expect((await getSession(store, 't'))?.route.chat).toBe('9');
    expect(await getSession(store, 'u')).toBeUndefined();
  });

  it('choices survive later messages and can be taken back', async () => {
    await touch({ sessionKey: 's', route: route(), at: 1 });
    expect(await store.transact('set', (tx) => setSession(tx, 's', { lang: 'zh', notifyPolicy: 'silent' }))).toBe(true);
    await touch({ sessionKey: 's', route: route(), at: 2 });
    expect(await getSession(store, 's')).toMatchObject({ lang: 'zh', notifyPolicy: 'silent', lastMessageAt: 2 });
    await store.transact('set', (tx) => setSession(tx, 's', { lang: null }));
    expect(await getSession(store, 's')).toMatchObject({ lang: null, notifyPolicy: 'silent' });
    expect(await store.transact('set', (tx) => setSession(tx, 'nobody', { lang: 'en' }))).toBe(false);
  });
});
