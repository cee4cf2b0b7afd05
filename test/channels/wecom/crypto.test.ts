import { randomBytes } from 'node:crypto';
import { decrypt, encrypt, getSignature } from '@wecom/crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { aesKeyOf, keyWorks, openEnvelope, signatureMatches } from '../../../src/channels/wecom/crypto.ts';
import { encryptBlocks, sealBytes, sealText, signQuery } from '../../support/fake-wecom-callback.ts';
import { vector, vectors } from './vectors.ts';

const KEY = 'jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C';
const ID = 'wx5823bf96d3bd56c7';
const keys = { corpId: ID, token: 'QDG6eK', encodingAesKey: KEY };
const key = aesKeyOf(KEY)!;
const open = (encrypted: string, id = ID) => openEnvelope(key, encrypted, id);

describe('published vectors', () => {
  it('are all there', () => expect(vectors).toHaveLength(19));

  it.each(vectors)('$id opens to the published text', (item) => {
    const opened = openEnvelope(aesKeyOf(item.encodingAESKey)!, item.encrypt, item.verified.decryptedId);
    expect(opened).toEqual({ ok: true, text: item.verified.message });
  });

  it.each(vectors.filter((item) => item.msg_signature))('$id carries the signature we compute', (item) => {
    const signed = {
      signature: item.msg_signature!,
      timestamp: item.timestamp,
      nonce: item.nonce,
      encrypted: item.encrypt,
    };
    expect(signatureMatches(item.token, signed)).toBe(true);
    for (const wrong of [
      { nonce: `${item.nonce}0` },
      { timestamp: '1' },
      { encrypted: `A${item.encrypt.slice(1)}x` },
    ]) {
      expect(signatureMatches(item.token, { ...signed, ...wrong })).toBe(false);
    }
  });

  it.each(vectors)('$id: the fake of the tests seals the same bytes', (item) => {
    const random = Buffer.from(item.verified.decryptedRandomHex, 'hex');
    const { decryptedId, message } = item.verified;
    const itemKeys = { corpId: decryptedId, token: item.token, encodingAesKey: item.encodingAESKey };
    expect(sealText(itemKeys, message, { random })).toBe(item.encrypt);
  });
});

describe('opening an envelope', () => {
  it('gives back any text that the library or the fake has sealed, and the library opens what the fake seals', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), fc.stringMatching(/^[a-z0-9]{0,40}$/), (text, id) => {
        const ours = sealText(keys, text, { receiveId: id });
        expect(open(encrypt(KEY, text, id), id)).toEqual({ ok: true, text });
        expect(open(ours, id)).toEqual({ ok: true, text });
        expect(decrypt(KEY, ours)).toMatchObject({ message: text, id });
      }),
      { numRuns: 300 },
    );
  });

  it('agrees with the library on signatures', () => {
    fc.assert(
      fc.property(fc.stringMatching(/^\d{1,12}$/), fc.stringMatching(/^[A-Za-z0-9]{1,16}$/), (timestamp, nonce) => {
        const query = signQuery('QDG6eK', 'abc=', { timestamp, nonce });
        expect(query.msg_signature).toBe(getSignature('QDG6eK', timestamp, nonce, 'abc='));
      }),
    );
  });

  it('a byte order mark and line ends stay as they are', () => {
    expect(open(sealText(keys, '\ufeffa\r\nb\n'))).toEqual({ ok: true, text: '\ufeffa\r\nb\n' });
  });

  it('refuses every key but the right one', () => {
    const encrypted = vector('official-post-text-QDG6eK').encrypt;
    for (let n = 0; n < 2_000; n += 1) {
      expect(openEnvelope(randomBytes(32), encrypted, ID).ok).toBe(false);
    }
  });

  it('refuses what is not canonical base64 of whole 32-byte blocks', () => {
    const good = sealText(keys, 'hello');
    const bytes = Buffer.from(good, 'base64');
    const cut = (length: number) => bytes.subarray(0, length).toString('base64');
    for (const bad of [
      '',
      '=',
      '====',
      'AAAA',
      ` ${good}`,
      `${good}\n`,
      good.replace(/=*$/, ''),
      cut(16),
      cut(bytes.length - 1),
      cut(48),
    ]) {
      expect(open(bad)).toEqual({ ok: false, check: 'ciphertext' });
    }
  });

  it('checks every byte of the padding', () => {
    const content = Buffer.concat([Buffer.alloc(16), Buffer.from([0, 0, 0, 2]), Buffer.from('hi'), Buffer.from(ID)]);
    const pad = 32 - (content.length % 32);
    for (let at = 0; at < pad; at += 1) {
      const padding = Buffer.alloc(pad, pad);
      padding[at] = pad - 1;
      expect(open(encryptBlocks(KEY, Buffer.concat([content, padding]))).ok).toBe(false);
    }
    for (const last of [0, 33, 255]) {
      const blocks = Buffer.concat([content, Buffer.alloc(pad, last)]);
      expect(open(encryptBlocks(KEY, blocks))).toEqual({ ok: false, check: 'padding' });
    }
  });

  it('refuses a length that leaves the content, also a negative or huge one', () => {
    const withLength = (length: number) => {
      const head = Buffer.alloc(20);
      head.writeUInt32BE(length, 16);
      return sealBytes(KEY, Buffer.concat([head, Buffer.from(`hi${ID}`)]));
    };
    expect(open(withLength(2))).toEqual({ ok: true, text: 'hi' });
    for (const length of [21, 1_000, 0x7fffffff, 0x80000000, 0xffffffff]) {
      expect(open(withLength(length))).toEqual({ ok: false, check: 'length' });
    }
    for (const length of [0, 1, 3, 20]) expect(open(withLength(length))).toEqual({ ok: false, check: 'receiveid' });
    for (const size of [0, 1, 16, 19])
      expect(open(sealBytes(KEY, Buffer.alloc(size)))).toEqual({ ok: false, check: 'length' });
  });

  it('refuses another receiveid, a longer and a shorter one', () => {
    for (const receiveId of ['ww_other', `${ID}7`, ID.slice(0, -1), ID.toUpperCase(), '']) {
      expect(open(sealText(keys, 'hello', { receiveId }))).toEqual({ ok: false, check: 'receiveid' });
    }
  });

  it('refuses bytes that are no UTF-8', () => {
    expect(open(sealText(keys, Buffer.from([0x61, 0xff, 0x62])))).toEqual({ ok: false, check: 'encoding' });
  });
});

describe('an EncodingAESKey', () => {
  it('has 43 letters and digits', () => {
    for (const bad of [
      '',
      KEY.slice(1),
      `${KEY}A`,
      `${KEY}=`,
      `${KEY.slice(1)}$`,
      `${KEY.slice(1)} `,
      `${KEY.slice(1)}+`,
    ]) {
      expect(aesKeyOf(bad)).toBeUndefined();
      expect(keyWorks(bad, ID)).toBe(false);
    }
    expect(key).toHaveLength(32);
    expect(keyWorks(KEY, ID)).toBe(true);
  });
});
