import { type AddressInfo, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { Route } from '../../../src/channels/channel.ts';
import { sha256 } from '../../../src/ids.ts';
import { until } from '../../support/until.ts';
import { outgoing, startRig, USER, type WecomRig } from './rig.ts';

let rig: WecomRig;
afterEach(() => rig.stop());

describe('sending', () => {
  it('one text is one call that turns the duplicate check on', async () => {
    rig = await startRig();
    expect(await rig.send('hello')).toEqual({ outcome: 'sent', platformId: 'msgid-1' });
    expect(rig.fake.calls.map((call) => call.path)).toEqual(['/cgi-bin/gettoken', '/cgi-bin/message/send']);
    expect(rig.fake.calls[1]!.body).toEqual({
      touser: USER,
      msgtype: 'text',
      agentid: 1_000_002,
      text: { content: 'hello' },
      enable_duplicate_check: 1,
      duplicate_check_interval: 1_800,
    });
    expect(rig.channel.health()).toEqual({ ok: true, lastOkAt: rig.clock.now(), problem: undefined });
  });

  it('case 63: no part exceeds 2048 bytes and nothing is cut', async () => {
    rig = await startRig();
    const text = '汉'.repeat(700);
    const parts = rig.channel.split({ text }).map((part) => part.text);
    expect(parts).toHaveLength(2);
    for (const part of parts) expect(await rig.send(part)).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.violations).toEqual([]);
    expect(rig.fake.history(USER)).toEqual(parts);
    expect(rig.fake.history(USER).join('').replace(/[^汉]/g, '')).toBe(text);
  });

  it('case 63: an uncut text is refused here, because WeCom would cut it silently', async () => {
    rig = await startRig();
    expect(await rig.send('a'.repeat(2_048))).toMatchObject({ outcome: 'sent' });
    expect(await rig.send('a'.repeat(2_049))).toMatchObject({ outcome: 'permanent', unreachable: false });
    expect(rig.fake.violations).toEqual([]);
  });

  it('a recipient that is not one person is refused here', async () => {
    rig = await startRig();
    const route: Route = { channel: 'wecom', account: 'default', chat: USER, chatKind: 'direct' };
    for (const chat of ['@all', 'a|b', '']) {
      expect(await rig.send('x', { route: { ...route, chat } })).toMatchObject({ outcome: 'permanent' });
    }
    expect(await rig.send('x', { route: { ...route, chatKind: 'group' } })).toMatchObject({ outcome: 'permanent' });
    expect(rig.fake.calls).toEqual([]);
  });
});

describe('repeats', () => {
  it('the repeat of one message is dropped by the platform', async () => {
    rig = await startRig();
    rig.fake.script('message/send', 'drop after accepting');
    expect(await rig.send('report ready', { id: 'row1' })).toMatchObject({ outcome: 'unknown', safe: true });
    expect(await rig.send('report ready', { id: 'row1', mayBeRepeat: true })).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual(['report ready']);
  });

  it('the repeat after a crash before anything was noted is dropped as well', async () => {
    rig = await startRig();
    await rig.send('report ready', { id: 'row1' });
    await rig.port.state.set(`recent:${USER}`, []);
    expect(await rig.send('report ready', { id: 'row1', mayBeRepeat: true })).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual(['report ready']);
  });

  it('a message that was cut before it was accepted arrives with the repeat', async () => {
    rig = await startRig();
    rig.fake.script('message/send', 'drop before accepting');
    expect(await rig.send('report ready', { id: 'row1' })).toMatchObject({ outcome: 'unknown', safe: true });
    expect(await rig.send('report ready', { id: 'row1', mayBeRepeat: true })).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.history(USER)).toEqual(['report ready']);
  });

  it('another message with the same words arrives too, also after a restart', async () => {
    rig = await startRig();
    await rig.send('done', { id: 'row1' });
    await rig.send('done', { id: 'row2' });
    const restarted = rig.again();
    await restarted.send(outgoing('done', { id: 'row3' }), AbortSignal.timeout(30_000));
    await restarted.stop();
    expect(rig.fake.history(USER)).toEqual(['done', 'done', 'done']);
  });

  it('a long text that is sent twice arrives twice, part by part', async () => {
    rig = await startRig();
    const parts = rig.channel.split({ text: '汉'.repeat(1_500) }).map((part) => part.text);
    for (const id of ['row1', 'row2']) for (const part of parts) await rig.send(part, { id });
    expect(parts.length).toBeGreaterThan(1);
    expect(rig.fake.history(USER)).toEqual([...parts, ...parts]);
  });

  it('a lost answer is not called safe where the duplicate check had to be off', async () => {
    rig = await startRig();
    await rig.send('done', { id: 'row1' });
    rig.fake.script('message/send', 'drop after accepting');
    expect(await rig.send('done', { id: 'row2' })).toMatchObject({ outcome: 'unknown', safe: false });
  });

  it('same words after the interval are checked again', async () => {
    rig = await startRig();
    await rig.send('done', { id: 'row1' });
    rig.clock.advance(2_100_000);
    await rig.send('done', { id: 'row2' });
    expect(rig.fake.calls.at(-1)!.body!.enable_duplicate_check).toBe(1);
    expect(rig.fake.history(USER)).toEqual(['done', 'done']);
  });
});

describe('what an errcode means', () => {
  const RETRY = [-1, 45033, 45009, 12_345];
  const SETUP = [40013, 40091, 40056, 48002, 301002, 60020];
  const UNREACHABLE = [40003, 60111, 81013, 50002, 60011];
  const REFUSED = [40008, 40058, 44004, 45002, 82001];

  it.each(RETRY)('%i: not delivered, try again', async (errcode) => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', error: expect.stringContaining(String(errcode)) });
    expect(rig.channel.health().ok).toBe(true);
  });

  it('45009: the account waits a minute', async () => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode: 45009 });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', afterMs: 60_000, scope: 'channel' });
  });

  it.each(SETUP)('%i: nothing is lost, the operator is told, it is tried again slowly', async (errcode) => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel', afterMs: expect.any(Number) });
    expect(rig.channel.health()).toMatchObject({ ok: false, problem: expect.stringContaining(String(errcode)) });
    expect(await rig.send('y')).toMatchObject({ outcome: 'sent' });
    expect(rig.channel.health().ok).toBe(true);
  });

  it.each(UNREACHABLE)('%i: this person is out of reach', async (errcode) => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode });
    expect(await rig.send('x')).toMatchObject({ outcome: 'permanent', unreachable: true });
  });

  it.each(REFUSED)('%i: this message will never be taken', async (errcode) => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode });
    expect(await rig.send('x')).toMatchObject({ outcome: 'permanent', unreachable: false });
  });

  it('case 62: an untrusted IP is named with the place to enter it', async () => {
    rig = await startRig();
    const errmsg =
      'not allow to access from your ip, hint: [1], from ip: 203.0.113.7, more info at https://open.work.weixin.qq.com';
    rig.fake.script('message/send', { errcode: 60020, errmsg });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel' });
    const { problem } = rig.channel.health();
    expect(problem).toContain('203.0.113.7');
    expect(problem).toContain('企业可信IP');
  });

  it('an accepted call that names the recipient as invalid or unlicensed did not reach anybody', async () => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode: 0, fields: { invaliduser: 'lisi|ZhangSan', msgid: 'm' } });
    expect(await rig.send('x')).toMatchObject({ outcome: 'permanent', unreachable: true });
    rig.fake.script('message/send', { errcode: 0, fields: { unlicenseduser: USER, msgid: 'm' } });
    expect(await rig.send('x')).toMatchObject({ outcome: 'permanent', unreachable: true });
    rig.fake.script('message/send', { errcode: 0, fields: { invaliduser: 'zhangsan2', msgid: 'm' } });
    expect(await rig.send('x')).toEqual({ outcome: 'sent', platformId: 'm' });
  });

  it('somebody who is not a member is out of reach', async () => {
    rig = await startRig({ fake: { members: ['lisi'] } });
    expect(await rig.send('x')).toMatchObject({ outcome: 'permanent', unreachable: true });
    expect(await rig.send('x', { user: 'lisi' })).toMatchObject({ outcome: 'sent' });
  });

  it('what WeCom says is masked: a credential in errmsg does not show', async () => {
    rig = await startRig();
    await rig.send('first');
    const errmsg = `bad ${rig.fake.accessToken} https://qyapi/x?access_token=abcdef123 ${rig.fake.secret}`;
    for (const errcode of [12_345, 40056, 81013]) {
      rig.fake.script('message/send', { errcode, errmsg });
      const shown = JSON.stringify([await rig.send(`text ${errcode}`), rig.channel.health()]) + rig.logText();
      for (const secret of [rig.fake.accessToken!, rig.fake.secret, 'abcdef123']) expect(shown).not.toContain(secret);
    }
  });
});

describe('when the network fails', () => {
  it('a call that gets no answer in time may have arrived', async () => {
    rig = await startRig();
    await rig.send('first');
    rig.fake.script('message/send', 'hang');
    const impatient = rig.again({ requestTimeoutMs: 1_500 });
    expect(await impatient.send(outgoing('x'), AbortSignal.timeout(30_000))).toMatchObject({
      outcome: 'unknown',
      safe: true,
    });
    expect(rig.fake.count('message/send')).toBe(2);
    await impatient.stop();
  });

  it('a call that is aborted while WeCom works on it may have arrived', async () => {
    rig = await startRig();
    rig.fake.script('message/send', 'hang');
    const abort = new AbortController();
    const outcome = rig.send('x', { signal: abort.signal });
    await until(() => rig.fake.count('message/send') === 1, 'the call to arrive');
    abort.abort();
    expect(await outcome).toMatchObject({ outcome: 'unknown', safe: true });
  });

  it('a call that is aborted while it waits for a token was not sent, and the token is still fetched for others', async () => {
    rig = await startRig();
    rig.fake.script('gettoken', 'hang');
    const abort = new AbortController();
    const outcome = rig.send('x', { signal: abort.signal });
    await until(() => rig.fake.count('gettoken') === 1, 'the call to arrive');
    abort.abort();
    expect(await outcome).toMatchObject({ outcome: 'retry' });
    expect(await rig.send('y', { signal: abort.signal })).toMatchObject({ outcome: 'retry' });
    expect(rig.fake.count('message/send')).toBe(0);
  });

  it.each([500, 502, 503])('HTTP %i says nothing about the message', async (http) => {
    rig = await startRig();
    rig.fake.script('message/send', { http });
    expect(await rig.send('x')).toMatchObject({ outcome: 'unknown', safe: true });
  });

  it.each([403, 407, 302])('HTTP %i comes from something in between, which did not let it through', async (http) => {
    rig = await startRig();
    rig.fake.script('message/send', { http });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel' });
    expect(rig.channel.health()).toMatchObject({ ok: false, problem: expect.stringContaining(String(http)) });
  });

  it.each(['', 'not json', '[]', '{"errcode":"0"}', '{}', 'null'])('an answer of %j says nothing', async (body) => {
    rig = await startRig();
    rig.fake.script('message/send', { http: 200, body });
    expect(await rig.send('x')).toMatchObject({ outcome: 'unknown', safe: true });
  });

  it('an endless answer is cut off', async () => {
    rig = await startRig();
    rig.fake.script('message/send', { http: 200, body: 'x'.repeat(3_000_000) });
    expect(await rig.send('x')).toMatchObject({ outcome: 'unknown', safe: true });
  });

  it('a connection that breaks before the request was written delivered nothing', async () => {
    rig = await startRig();
    await rig.send('first');
    const cutter = createServer((socket) => socket.on('error', () => undefined).destroy());
    await new Promise<void>((resolve) => cutter.listen(0, '127.0.0.1', resolve));
    const apiRoot = `https://127.0.0.1:${(cutter.address() as AddressInfo).port}`;
    // The token of the other address serves here, so that the message itself meets the broken handshake.
    const stored = rig.port.peek('access_token') as { token: string; refreshAt: number };
    const owner = sha256(JSON.stringify([apiRoot, rig.fake.corpId, rig.fake.agentId, rig.fake.secret]));
    await rig.port.state.set('access_token', { ...stored, owner });
    const away = rig.again({ apiRoot });
    const outcome = await away.send(outgoing('x'), AbortSignal.timeout(30_000));
    expect(outcome).toMatchObject({
      outcome: 'retry',
      scope: 'channel',
      error: expect.stringContaining('message/send'),
    });
    expect(away.health()).toMatchObject({ ok: false, problem: expect.stringContaining('does not answer') });
    await away.stop();
    await new Promise((resolve) => cutter.close(resolve));
  });

  it('an unreachable platform is a problem until it answers again, whatever it answers', async () => {
    rig = await startRig();
    rig.fake.script('message/send', 'drop before accepting', { errcode: 81013 });
    await rig.send('x');
    expect(rig.channel.health().ok).toBe(false);
    await rig.send('y');
    expect(rig.channel.health().ok).toBe(true);
  });

  it('an unreadable store does not keep a message from being sent', async () => {
    rig = await startRig();
    rig.port.state.get = () => Promise.reject(new Error('the store is away'));
    rig.port.state.set = () => Promise.reject(new Error('the store is away'));
    expect(await rig.send('x')).toMatchObject({ outcome: 'sent' });
  });

  it('a stopped channel can be started again', async () => {
    rig = await startRig();
    await rig.send('one');
    await rig.channel.stop();
    await rig.channel.start();
    expect(await rig.send('two')).toMatchObject({ outcome: 'sent' });
  });
});
