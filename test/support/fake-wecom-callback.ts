import { createCipheriv, createHash, randomBytes, randomInt } from 'node:crypto';

/**
 * The callback side of the fake WeCom: envelopes made with node:crypto alone, after the platform's description, so that neither our
 * code nor the library proves itself.
 */
export interface CallbackKeys {
  readonly corpId: string;
  readonly token: string;
  readonly encodingAesKey: string;
}

export interface SealOptions {
  /** Seconds; default: given by the sender's clock. */
  readonly timestamp: string;
  readonly nonce?: string;
  /** 16 bytes. */
  readonly random?: Buffer;
  /** Default: the corp id. */
  readonly receiveId?: string;
}

export interface SealedCallback {
  readonly encrypted: string;
  readonly query: Record<string, string>;
}

/** Encrypts and signs one text as WeCom would. */
export function sealCallback(keys: CallbackKeys, text: string | Buffer, options: SealOptions): SealedCallback {
  const encrypted = sealText(keys, text, options);
  return { encrypted, query: signQuery(keys.token, encrypted, options) };
}

/** The ciphertext alone. */
export function sealText(
  keys: CallbackKeys,
  text: string | Buffer,
  options: Pick<SealOptions, 'random' | 'receiveId'> = {},
): string {
  const message = Buffer.from(text as string);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(message.length);
  const receiver = Buffer.from(options.receiveId ?? keys.corpId);
  return sealBytes(keys.encodingAesKey, Buffer.concat([options.random ?? randomBytes(16), length, message, receiver]));
}

/** Encrypts any bytes in WeCom's padding, also bytes that are no envelope. */
export function sealBytes(encodingAesKey: string, content: Buffer): string {
  const pad = 32 - (content.length % 32);
  return encryptBlocks(encodingAesKey, Buffer.concat([content, Buffer.alloc(pad, pad)]));
}

/** Encrypts whole blocks as they are, with whatever stands where the padding should be. */
export function encryptBlocks(encodingAesKey: string, blocks: Buffer): string {
  const key = Buffer.from(`${encodingAesKey}=`, 'base64');
  const cipher = createCipheriv('aes-256-cbc', key, key.subarray(0, 16)).setAutoPadding(false);
  return Buffer.concat([cipher.update(blocks), cipher.final()]).toString('base64');
}

/** `msg_signature`, `timestamp` and `nonce` for a ciphertext. */
export function signQuery(
  token: string,
  encrypted: string,
  options: Pick<SealOptions, 'timestamp' | 'nonce'>,
): Record<string, string> {
  const nonce = options.nonce ?? String(randomInt(1_000_000_000));
  const signature = createHash('sha1')
    .update([token, options.timestamp, nonce, encrypted].sort().join(''))
    .digest('hex');
  return { msg_signature: signature, timestamp: options.timestamp, nonce };
}

/** The body of a POST around a ciphertext. */
export function envelopeXml(corpId: string, agentId: string, encrypted: string): string {
  return (
    `<xml><ToUserName><![CDATA[${corpId}]]></ToUserName><Encrypt><![CDATA[${encrypted}]]></Encrypt>` +
    `<AgentID><![CDATA[${agentId}]]></AgentID></xml>`
  );
}

export interface MessageFields {
  readonly corpId: string;
  readonly agentId: string;
  readonly user: string;
  /** Seconds. */
  readonly createTime: number;
}

/** The plaintext of a text message. */
export function textMessageXml(fields: MessageFields, text: string, messageId: string): string {
  return (
    `<xml>${headXml(fields)}<MsgType>${cdata('text')}</MsgType><Content>${cdata(text)}</Content>` +
    `<MsgId>${messageId}</MsgId><AgentID>${fields.agentId}</AgentID></xml>`
  );
}

/** The plaintext of an event; events have no MsgId. */
export function eventXml(fields: MessageFields, event: string, more: Readonly<Record<string, string>> = {}): string {
  const extra = Object.entries(more).map(([name, value]) => `<${name}>${cdata(value)}</${name}>`);
  return (
    `<xml>${headXml(fields)}<MsgType>${cdata('event')}</MsgType><Event>${cdata(event)}</Event>${extra.join('')}` +
    `<AgentID>${fields.agentId}</AgentID></xml>`
  );
}

function headXml(fields: MessageFields): string {
  return (
    `<ToUserName>${cdata(fields.corpId)}</ToUserName><FromUserName>${cdata(fields.user)}</FromUserName>` +
    `<CreateTime>${fields.createTime}</CreateTime>`
  );
}

function cdata(text: string): string {
  return `<![CDATA[${text.replaceAll(']]>', ']]]]><![CDATA[>')}]]>`;
}
