import { afterEach, describe, expect, it } from 'vitest';
import { outgoing, startRig, USER, type WecomRig } from './rig.ts';

let rig: WecomRig;
afterEach(() => rig.stop());

describe('the access token', () => {
  it('is fetched once for many messages at a time', async () => {
    rig = await startRig();
    const outcomes = await Promise.all(Array.from({ length: 20 }, (_, n) => rig.send(`m${n}`)));
    expect(outcomes.every((outcome) => outcome.outcome === 'sent')).toBe(true);
    expect(rig.fake.count('gettoken')).toBe(1);
  });

  it('survives a restart', async () => {
    rig = await startRig();
    await rig.send('before');
    const restarted = rig.again();
    expect(await restarted.send(outgoing('after'), AbortSignal.timeout(30_000))).toMatchObject({ outcome: 'sent' });
    await restarted.stop();
    expect(rig.fake.count('gettoken')).toBe(1);
  });

  it('of other settings is not used', async () => {
    rig = await startRig();
    await rig.port.state.set('access_token', {
      token: 'of-another-app',
      refreshAt: rig.clock.now() + 1e9,
      owner: 'somebody else',
    });
    expect(await rig.send('x')).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.count('gettoken')).toBe(1);
    expect(rig.fake.count('message/send')).toBe(1);
  });

  it('is renewed five minutes before it expires, by the clock', async () => {
    rig = await startRig();
    await rig.send('one');
    rig.clock.advance(6_900_000 - 1);
    await rig.send('two');
    expect(rig.fake.count('gettoken')).toBe(1);
    rig.clock.advance(1);
    await rig.send('three');
    expect(rig.fake.count('gettoken')).toBe(2);
    expect(rig.fake.history(USER)).toEqual(['one', 'two', 'three']);
  });

  it('that lives shorter than five minutes is still used', async () => {
    rig = await startRig({ fake: { expiresIn: 120 } });
    await rig.send('one');
    await rig.send('two');
    expect(rig.fake.count('gettoken')).toBe(1);
    rig.clock.advance(61_000);
    await rig.send('three');
    expect(rig.fake.count('gettoken')).toBe(2);
  });

  it.each([40014, 42001, 40001, 41001])(
    'case 60: withdrawn with %i, it is renewed once and the message sent once',
    async (errcode) => {
      rig = await startRig();
      await rig.send('first');
      rig.fake.script('message/send', { errcode });
      expect(await rig.send('second')).toMatchObject({ outcome: 'sent' });
      expect(rig.fake.count('gettoken')).toBe(2);
      expect(rig.fake.count('message/send')).toBe(3);
      expect(rig.fake.history(USER)).toEqual(['first', 'second']);
    },
  );

  it('case 60: withdrawn for real, it is renewed once for all who were refused', async () => {
    rig = await startRig();
    await rig.send('first');
    rig.fake.withdrawToken();
    const outcomes = await Promise.all(Array.from({ length: 8 }, (_, n) => rig.send(`m${n}`)));
    expect(outcomes.every((outcome) => outcome.outcome === 'sent')).toBe(true);
    expect(rig.fake.count('gettoken')).toBe(2);
  });

  it('that another replica has renewed is taken from the store', async () => {
    rig = await startRig();
    await rig.send('first');
    const replica = rig.again();
    rig.fake.withdrawToken();
    expect(await replica.send(outgoing('by the replica'), AbortSignal.timeout(30_000))).toMatchObject({
      outcome: 'sent',
    });
    await replica.stop();
    expect(await rig.send('second')).toMatchObject({ outcome: 'sent' });
    expect(rig.fake.count('gettoken')).toBe(2);
  });

  it('that stays refused after a renewal is not renewed in circles', async () => {
    rig = await startRig();
    rig.fake.script('message/send', { errcode: 40014 }, { errcode: 40014 });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel' });
    expect(rig.fake.count('message/send')).toBe(2);
    expect(rig.fake.count('gettoken')).toBe(2);
    expect(rig.channel.health().ok).toBe(false);
  });

  it.each([
    ['WECOM_SECRET', { secret: 'not-the-secret' }],
    ['WECOM_CORP_ID', { corpId: 'ww_somebody_else' }],
  ])('cannot be had with a wrong %s: the operator is told, and WeCom is asked slowly', async (name, wrong) => {
    rig = await startRig({ channel: wrong });
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel', afterMs: 300_000 });
    expect(rig.channel.health()).toMatchObject({ ok: false, problem: expect.stringContaining(name) });
    rig.clock.advance(100_000);
    expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel', afterMs: 200_000 });
    expect(rig.fake.count('gettoken')).toBe(1);
    rig.clock.advance(200_000);
    await rig.send('x');
    expect(rig.fake.count('gettoken')).toBe(2);
    expect(JSON.stringify([rig.channel.health()]) + rig.logText()).not.toContain('not-the-secret');
  });

  it('is not asked for while WeCom throttles it', async () => {
    rig = await startRig({ fake: { tokenCallsPerMinute: 0 } });
    for (let n = 0; n < 5; n += 1) {
      expect(await rig.send('x')).toMatchObject({ outcome: 'retry', scope: 'channel', afterMs: 60_000 });
    }
    expect(rig.fake.count('gettoken')).toBe(1);
  });

  it.each([
    'hang',
    'drop after accepting',
    'drop before accepting',
    { http: 500 },
    { http: 200, body: '{"errcode":0}' },
  ] as const)('that cannot be fetched (%j) leaves the message unsent, and the next attempt works', async (script) => {
    rig = await startRig();
    rig.fake.script('gettoken', script);
    const impatient = rig.again({ requestTimeoutMs: 1_500 });
    expect(await impatient.send(outgoing('x'), AbortSignal.timeout(30_000))).toMatchObject({
      outcome: 'retry',
      scope: 'channel',
    });
    expect(rig.fake.count('message/send')).toBe(0);
    await impatient.stop();
    expect(await rig.send('x')).toMatchObject({ outcome: 'sent' });
  });

  it('never shows in the log', async () => {
    rig = await startRig();
    await rig.send('x');
    rig.fake.script('message/send', 'drop after accepting');
    const outcome = await rig.send('y');
    const shown = JSON.stringify([outcome, rig.channel.health()]) + rig.logText();
    expect(shown).toContain('wecom.token_fetched');
    for (const secret of [rig.fake.accessToken!, rig.fake.secret]) expect(shown).not.toContain(secret);
  });
});
