import { afterEach, describe, expect, it } from 'vitest';
import type { DoorAnswer } from '../../../src/channels/channel.ts';
import type { WecomChannelOptions } from '../../../src/channels/wecom/wecom-channel.ts';
import { envelopeXml, eventXml, sealCallback, signQuery, textMessageXml } from '../../support/fake-wecom-callback.ts';
import { START_AT, startRig, USER, type WecomRig } from './rig.ts';
import { queryOf, type Vector, vector } from './vectors.ts';

let rig: WecomRig;
afterEach(() => rig.stop());

const HELLO = vector('official-post-text-QDG6eK');
const ECHO = vector('official-url-verify-QDG6eK');

/** The channel of the official samples, which are years old. */
async function official(changes: Partial<WecomChannelOptions> = {}): Promise<void> {
  const keys = { corpId: HELLO.corpid!, token: HELLO.token, encodingAesKey: HELLO.encodingAESKey, agentId: '218' };
  rig = await startRig({ fake: keys, channel: { timestampWindowMs: 'off', ...changes } });
}

const post = (item: Vector, body = item.rawBody!, query = queryOf(item)) => rig.fake.knock('POST', query, body);

/** Opens the POST door without HTTP in between. */
function open(query: Record<string, string | string[]>, body: string): Promise<DoorAnswer> {
  return rig.channel.doors.find((door) => door.method === 'POST')!.open({ query, headers: {}, body });
}

/** Sends one plaintext, properly sealed. */
function sealed(plaintext: string | Buffer, timestamp = String(START_AT / 1_000)): Promise<DoorAnswer> {
  const { encrypted, query } = sealCallback(rig.fake, plaintext, { timestamp });
  return open(query, envelopeXml(rig.fake.corpId, rig.fake.agentId, encrypted));
}

const head = () => ({ corpId: rig.fake.corpId, agentId: rig.fake.agentId, user: USER, createTime: START_AT / 1_000 });

describe('the official samples', () => {
  it('case 52: the address check is answered with exactly the decrypted text', async () => {
    await official();
    const response = await fetch(`${rig.fake.callbackUrl}?${ECHO.rawQuery}`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toMatch(/^text\/plain/);
    expect(Buffer.from(await response.arrayBuffer())).toEqual(Buffer.from('1616140317555161061'));
  });

  it('"hello", delivered three times, is one row', async () => {
    await official();
    for (let n = 0; n < 3; n += 1) expect(await post(HELLO)).toEqual({ status: 200, body: '' });
    expect(rig.port.rows).toEqual([
      {
        identity: 'msg:4561255354251345929',
        kind: 'text',
        text: 'hello',
        route: {
          channel: 'wecom',
          account: 'default',
          chat: 'mycreate',
          chatKind: 'direct',
          messageId: '4561255354251345929',
        },
        sender: { id: 'mycreate' },
        addressed: true,
        sentAt: 1_409_659_813_000,
      },
    ]);
    expect(rig.port.duplicates).toBe(2);
  });

  it('neg-signature-mismatch: a signature of another body is refused', async () => {
    await official();
    const item = vector('neg-signature-mismatch');
    const answer = await post(item, envelopeXml(item.corpid!, '218', item.encrypt));
    expect(answer).toEqual({ status: 403, body: expect.stringContaining('msg_signature') });
    expect(rig.port.rows).toEqual([]);
  });

  it('neg-plus-became-space: an echostr that was decoded twice is refused', async () => {
    await official();
    const answer = await rig.fake.knock('GET', { ...queryOf(ECHO), echostr: ECHO.encrypt.replaceAll('+', ' ') });
    expect(answer).toEqual({ status: 403, body: expect.stringContaining('msg_signature') });
  });

  it('neg-wrong-receiveid: a message for another company is refused', async () => {
    await official({ corpId: 'ww_other' });
    expect(await post(HELLO)).toEqual({ status: 403, body: expect.stringContaining('receiveid') });
    expect(rig.port.rows).toEqual([]);
  });

  it('neg-wrong-key and case 55: the wrong key is refused with a hint at the setting', async () => {
    await official({ encodingAesKey: 'abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG' });
    expect(await post(HELLO)).toEqual({ status: 400, body: expect.stringContaining('WECOM_ENCODING_AES_KEY') });
    expect(rig.port.rows).toEqual([]);
  });

  it('neg-stale-timestamp: a sample of years ago is refused unless the window is off', async () => {
    await official({ timestampWindowMs: 600_000 });
    expect(await post(HELLO)).toEqual({ status: 403, body: expect.stringContaining('WECOM_TIMESTAMP_WINDOW') });
    const echo = await rig.fake.knock('GET', { ...queryOf(ECHO), echostr: ECHO.encrypt });
    expect(echo).toEqual({ status: 403, body: expect.stringContaining('WECOM_TIMESTAMP_WINDOW') });
    expect(rig.port.rows).toEqual([]);
  });

  it('a valid envelope around something else than XML is refused', async () => {
    const item = vector('official-post-json-python');
    await official({ corpId: item.verified.decryptedId, token: item.token, encodingAesKey: item.encodingAESKey });
    expect((await post(item, envelopeXml(item.corpid!, '218', item.encrypt))).status).toBe(400);
    expect(rig.port.rows).toEqual([]);
  });

  it('no flipped bit in any block, signed anew, gives another message', async () => {
    await official();
    await post(HELLO);
    const [original] = rig.port.rows;
    const bytes = Buffer.from(HELLO.encrypt, 'base64');
    for (let bit = 0; bit < bytes.length * 8; bit += 1) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3]! ^= 1 << (bit & 7);
      const encrypted = flipped.toString('base64');
      const query = signQuery(HELLO.token, encrypted, HELLO);
      const { status } = await open(query, envelopeXml(HELLO.corpid!, '218', encrypted));
      expect([status, bit]).not.toEqual([200, bit]);
    }
    expect(rig.port.rows).toEqual([original]);
  });

  it('no truncated ciphertext, signed anew, gives a message', async () => {
    await official();
    const bytes = Buffer.from(HELLO.encrypt, 'base64');
    for (let length = 0; length < bytes.length; length += 1) {
      const encrypted = bytes.subarray(0, length).toString('base64');
      const answer = await open(signQuery(HELLO.token, encrypted, HELLO), envelopeXml(HELLO.corpid!, '218', encrypted));
      expect(answer.status).not.toBe(200);
    }
    expect(rig.port.rows).toEqual([]);
  });
});

describe('case A24: what is not properly signed and sealed is refused and stores nothing', () => {
  const good = () => sealCallback(rig.fake, textMessageXml(head(), 'hi', '1'), { timestamp: String(START_AT / 1_000) });
  const xml = (encrypted: string) => envelopeXml(rig.fake.corpId, rig.fake.agentId, encrypted);

  async function refused(status: number, query: Record<string, string | string[]>, body: string): Promise<void> {
    const answer = await open(query, body);
    expect(answer.status).toBe(status);
    expect(answer.body).toMatch(/^[^\n]{5,200}$/);
    for (const secret of [rig.fake.token, rig.fake.encodingAesKey, rig.fake.secret])
      expect(answer.body).not.toContain(secret);
    expect(answer.body).not.toMatch(/\bat .*:\d+|Error/);
    expect(rig.port.rows).toEqual([]);
  }

  it('the door refuses what the rules demand, and takes the unchanged original', async () => {
    rig = await startRig();
    const { encrypted, query } = good();
    for (const name of ['msg_signature', 'timestamp', 'nonce']) {
      const { [name]: value, ...rest } = query;
      await refused(400, rest, xml(encrypted));
      await refused(400, { ...rest, [name]: '' }, xml(encrypted));
      await refused(400, { ...rest, [name]: [value!, value!] }, xml(encrypted));
    }
    await refused(403, { ...query, msg_signature: '0'.repeat(40) }, xml(encrypted));
    await refused(403, { ...query, msg_signature: query.msg_signature!.toUpperCase() }, xml(encrypted));
    await refused(403, { ...query, msg_signature: query.msg_signature!.slice(0, 20) }, xml(encrypted));
    await refused(403, { ...query, nonce: `${query.nonce}1` }, xml(encrypted));
    expect(await open(query, xml(encrypted))).toEqual({ status: 200, body: '' });
  });

  it('a plaintext body is refused, with a valid signature of something else or without one', async () => {
    rig = await startRig();
    await refused(400, good().query, textMessageXml(head(), 'hi', '1'));
    await refused(400, {}, textMessageXml(head(), 'hi', '1'));
  });

  it('bodies that are no envelope are refused', async () => {
    rig = await startRig();
    const { encrypted, query } = good();
    const one = `<Encrypt>${encrypted}</Encrypt>`;
    const bodies = [
      '',
      'hello',
      '{}',
      `{"Encrypt":"${encrypted}"}`,
      '<xml/>',
      '<xml><Encrypt/></xml>',
      `<xml>${one}${one}</xml>`,
    ];
    bodies.push(
      `<xml>${one}`,
      `<a>${one}</a>`,
      `<xml><Encrypt><b>${encrypted}</b></Encrypt></xml>`,
      `<xml>${one}</xml><xml>${one}</xml>`,
    );
    for (const body of bodies) await refused(400, query, body);
  });

  it('external entities, entity bombs, comments and deep nesting are refused before anything is decrypted', async () => {
    rig = await startRig();
    const { encrypted, query } = good();
    const laughs = '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">';
    const bodies = [
      `<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><xml><Encrypt>&e;</Encrypt></xml>`,
      `<!DOCTYPE x [${laughs}]><xml><Encrypt>&c;</Encrypt></xml>`,
      `<!doctype x><xml><Encrypt>${encrypted}</Encrypt></xml>`,
      `<!DOCTYPE x SYSTEM "http://127.0.0.1/x.dtd"><xml><Encrypt>${encrypted}</Encrypt></xml>`,
      `<xml><!-- <![CDATA[ --><Encrypt>${encrypted}</Encrypt><!-- ]]> --></xml>`,
      `<xml>${'<a>'.repeat(5_000)}${'</a>'.repeat(5_000)}<Encrypt>${encrypted}</Encrypt></xml>`,
      `<xml><__proto__>1</__proto__><Encrypt>${encrypted}</Encrypt></xml>`,
    ];
    for (const body of bodies) await refused(400, query, body);
  });

  it('a five-megabyte body is refused by the limit that the door declares', async () => {
    rig = await startRig();
    const answer = await rig.fake.knock('POST', good().query, xml('A'.repeat(5_000_000)));
    expect(rig.channel.doors.map((door) => door.bodyLimit)).toEqual([65_536, 65_536]);
    expect([413, undefined]).toContain(answer.status);
    expect(rig.port.rows).toEqual([]);
  });

  it('the signature of the address check is verified as well', async () => {
    rig = await startRig();
    expect(await rig.fake.verifyUrl('abc 123')).toMatchObject({ ok: true });
    const { encrypted, query } = good();
    expect((await rig.fake.knock('GET', { ...query, echostr: encrypted, msg_signature: 'x' })).status).toBe(403);
    expect((await rig.fake.knock('GET', query)).status).toBe(400);
  });

  it('the timestamp may be off by the window, either way, and must be a number', async () => {
    rig = await startRig({ channel: { timestampWindowMs: 600_000 } });
    const at = (seconds: number) =>
      sealed(textMessageXml(head(), 'hi', String(seconds)), String(START_AT / 1_000 + seconds));
    expect((await at(-600)).status).toBe(200);
    expect((await at(600)).status).toBe(200);
    expect((await at(-601)).status).toBe(403);
    expect((await at(601)).status).toBe(403);
    expect((await sealed(textMessageXml(head(), 'hi', '1'), '1e9')).status).toBe(400);
    expect(rig.port.rows).toHaveLength(2);
  });
});

describe('messages', () => {
  it('case 49, A23: the answer is an empty 200 at once, and three deliveries while the store is slow are one row', async () => {
    rig = await startRig();
    expect(await rig.fake.userSends({ user: USER, text: 'first' })).toEqual({ attempts: 1, status: 200, body: '' });
    const plaintext = textMessageXml(head(), 'slow', '99');
    let release: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      release = () => resolve();
    });
    const accept = rig.port.accept.bind(rig.port);
    rig.port.accept = async (batch, state) => {
      await gate;
      return accept(batch, state);
    };
    const answers = [1, 2, 3].map(() => sealed(plaintext));
    release();
    expect((await Promise.all(answers)).map((answer) => answer.status)).toEqual([200, 200, 200]);
    expect(rig.port.rows.map((row) => row.text)).toEqual(['first', 'slow']);
  });

  it('a store that cannot write makes WeCom deliver again', async () => {
    rig = await startRig();
    rig.port.failNext(2);
    expect(await rig.fake.userSends({ user: USER, text: 'stored at last' })).toMatchObject({
      attempts: 3,
      status: 200,
    });
    rig.port.failNext(3);
    expect(await rig.fake.userSends({ user: USER, text: 'lost' })).toMatchObject({ attempts: 3, status: 503 });
    expect(rig.port.rows.map((row) => row.text)).toEqual(['stored at last']);
    expect(rig.channel.health().lastOkAt).toBe(START_AT);
  });

  it('case 51, A23: events of one second are told apart, a redelivered event is recognised', async () => {
    rig = await startRig();
    const location = (latitude: string) => eventXml(head(), 'LOCATION', { Latitude: latitude, Longitude: '113.94' });
    const events = [
      location('22.54'),
      location('22.55'),
      eventXml(head(), 'enter_agent'),
      eventXml(head(), 'subscribe'),
    ];
    for (const event of [...events, ...events]) expect((await sealed(event)).status).toBe(200);
    expect(rig.port.rows).toHaveLength(4);
    expect(rig.port.rows.every((row) => row.kind === 'other' && row.text === '')).toBe(true);
    expect(rig.port.rows[0]!.identity).toMatch(/^event:[0-9a-f]{64}$/);
    expect(rig.port.duplicates).toBe(4);
  });

  it('case 57: digits stay as they were sent', async () => {
    rig = await startRig({ fake: { agentId: '0218' } });
    await rig.fake.userSends({ user: USER, text: '007', messageId: '4561255354251345929' });
    await rig.fake.userSends({ user: USER, text: '1e3', messageId: '4561255354251345930' });
    await rig.fake.userSends({ user: '0042', text: ' 0x10 ' });
    expect(rig.port.rows.map((row) => row.text)).toEqual(['007', '1e3', ' 0x10 ']);
    expect(rig.port.rows.map((row) => row.identity).slice(0, 2)).toEqual([
      'msg:4561255354251345929',
      'msg:4561255354251345930',
    ]);
    expect(rig.port.rows[2]!.route.chat).toBe('0042');
  });

  it('case 59: markup, entities, CDATA ends, declarations and emoji in a text are kept to the letter', async () => {
    rig = await startRig();
    const texts = [
      'a <b> & ]]> 👩‍👩‍👧',
      '&amp;&#65;&lt;',
      '<!DOCTYPE html>',
      '<!-- x -->',
      ']]>]]>',
      '</Content></xml>',
      'a\n\tb ',
    ];
    for (const text of texts) await rig.fake.userSends({ user: USER, text });
    expect(rig.port.rows.map((row) => row.text)).toEqual(texts);
  });

  it('entities outside CDATA are decoded once, blanks stay', async () => {
    rig = await startRig();
    const xml = textMessageXml(head(), 'X', '5').replace('<![CDATA[X]]>', ' &lt;a&gt; &amp;lt; &#x1F600;&#65; ');
    expect((await sealed(xml)).status).toBe(200);
    expect(rig.port.rows[0]!.text).toBe(' <a> &lt; 😀A ');
  });

  it('a declaration inside the sealed message is refused', async () => {
    rig = await startRig();
    const xml = textMessageXml(head(), 'hi', '5');
    expect((await sealed(`<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>${xml}`)).status).toBe(400);
    expect((await sealed(xml.replace('hi', 'h\u0001i'))).status).toBe(400);
    expect(rig.port.rows).toEqual([]);
  });

  it('a userid is lower case, whatever case it comes in', async () => {
    rig = await startRig();
    await rig.fake.userSends({ user: 'ZhangSan', text: 'hi' });
    expect(rig.port.rows[0]).toMatchObject({ route: { chat: 'zhangsan' }, sender: { id: 'zhangsan' } });
  });

  it('a pressed button of a card carries its key', async () => {
    rig = await startRig();
    await rig.fake.userTriggers({
      user: USER,
      event: 'template_card_event',
      fields: { EventKey: '/approve K7QD', TaskId: 't1' },
    });
    expect(rig.port.rows[0]).toMatchObject({ kind: 'button', text: '/approve K7QD' });
  });

  it('a picture is kept as a row that nobody acts on', async () => {
    rig = await startRig();
    const image = textMessageXml(head(), 'x', '77').replace('<![CDATA[text]]>', '<![CDATA[image]]>');
    expect((await sealed(image)).status).toBe(200);
    expect(rig.port.rows[0]).toMatchObject({ identity: 'msg:77', kind: 'other', text: '' });
  });

  it('a message for another app or without a sender is refused', async () => {
    rig = await startRig();
    expect((await sealed(textMessageXml({ ...head(), agentId: '999' }, 'hi', '1'))).status).toBe(403);
    expect((await sealed(textMessageXml({ ...head(), user: '' }, 'hi', '1'))).status).toBe(400);
    const twice = textMessageXml(head(), 'hi', '1').replace('<MsgType>', '<FromUserName>eve</FromUserName><MsgType>');
    expect((await sealed(twice)).status).toBe(400);
    expect(rig.port.rows).toEqual([]);
  });

  it('a further account has its own door and says so in the route', async () => {
    rig = await startRig({ channel: { account: 'hotel' } });
    expect(rig.channel.doors.map((door) => `${door.method} ${door.path}`)).toEqual([
      'GET /channels/wecom/callback/hotel',
      'POST /channels/wecom/callback/hotel',
    ]);
    await rig.fake.userSends({ user: USER, text: 'hi' });
    expect(rig.port.rows[0]!.route.account).toBe('hotel');
  });
});
