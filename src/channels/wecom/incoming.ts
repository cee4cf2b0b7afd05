import { sha256 } from '../../ids.ts';
import type { IncomingMessage } from '../channel.ts';
import { parseInnerXml, type XmlFields } from './xml.ts';

/** The message of a callback, or one line that says why it is none of ours. */
type Incoming =
  | { readonly ok: true; readonly message: IncomingMessage }
  | { readonly ok: false; readonly status: 400 | 403; readonly reason: string };

/**
 * Maps the decrypted XML (documents 90239 and 90240). Messages are known by MsgId; events have none, and FromUserName with
 * CreateTime would merge two events of one second, so they are known by the hash of their text, which a redelivery repeats.
 */
export function readIncoming(xml: string, account: string, agentId: string): Incoming {
  const fields = parseInnerXml(xml);
  if (!fields) return { ok: false, status: 400, reason: 'the decrypted body is not the XML of a message' };
  const user = fields.text('FromUserName')?.toLowerCase();
  const type = fields.text('MsgType');
  if (!user || !type) return { ok: false, status: 400, reason: 'the message lacks FromUserName or MsgType' };
  const agent = fields.text('AgentID');
  if (agent && agent !== agentId) return { ok: false, status: 403, reason: 'the message is for another AgentID' };
  const messageId = fields.text('MsgId') || undefined;
  return {
    ok: true,
    message: {
      identity: messageId ? `msg:${messageId}` : `event:${sha256(xml)}`,
      ...contentOf(fields, type),
      route: { channel: 'wecom', account, chat: user, chatKind: 'direct', messageId },
      sender: { id: user },
      addressed: true,
      sentAt: epochMs(fields.text('CreateTime')),
    },
  };
}

function contentOf(fields: XmlFields, type: string): Pick<IncomingMessage, 'kind' | 'text'> {
  if (type === 'text') return { kind: 'text', text: fields.text('Content') ?? '' };
  if (type === 'event' && fields.text('Event') === 'template_card_event') {
    return { kind: 'button', text: fields.text('EventKey') ?? '' };
  }
  return { kind: 'other', text: '' };
}

function epochMs(seconds: string | undefined): number | undefined {
  return seconds && /^\d{1,12}$/.test(seconds) ? Number(seconds) * 1_000 : undefined;
}
