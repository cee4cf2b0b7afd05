import { badRequest, type Json } from './answers.ts';

const KNOWN = new Set([
  'bold',
  'italic',
  'code',
  'pre',
  'text_link',
  'blockquote',
  'underline',
  'strikethrough',
  'spoiler',
]);

/** Refuses what the Bot API refuses in a list of entities; places are UTF-16 units. */
export function checkEntities(text: string, entities: unknown): void {
  if (entities === undefined) return;
  if (!Array.isArray(entities)) throw badRequest("can't parse entities: expected an Array of MessageEntity");
  for (const entity of entities as Json[]) checkEntity(text, entity);
}

function checkEntity(text: string, { type, offset, length, url }: Json): void {
  if (!KNOWN.has(String(type))) throw badRequest("can't parse entities: unsupported MessageEntity type");
  const [from, size] = [Number(offset), Number(length)];
  if (!Number.isInteger(from) || !Number.isInteger(size) || from < 0 || size <= 0 || from + size > text.length)
    throw badRequest("can't parse entities: receive an entity with incorrect offset or length");
  for (const [at, word] of [
    [from, 'begins'],
    [from + size, 'ends'],
  ] as const) {
    const code = text.charCodeAt(at);
    if (code >= 0xdc00 && code <= 0xdfff)
      throw badRequest(
        `entity ${word} in a middle of a UTF-16 symbol at byte offset ${Buffer.byteLength(text.slice(0, at))}`,
      );
  }
  if (type === 'text_link' && !/^(https?|tg):\/\//i.test(String(url))) throw badRequest('wrong HTTP URL specified');
}
