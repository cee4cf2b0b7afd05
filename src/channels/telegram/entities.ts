import type { MessageEntity } from 'grammy/types';
import type { Mark } from '../channel.ts';

/** Telegram looks at so many of a message (Bot API, formatting options); the rest stays plain. */
const MOST_ENTITIES = 100;

const TYPES = { bold: 'bold', italic: 'italic', code: 'code', quote: 'blockquote' } as const;

/**
 * Marks as Telegram takes them: their places are counted in UTF-16 units too, so nothing is escaped and no text can break them. Links
 * that Telegram does not know (mailto) stay plain.
 */
export function entitiesOf(marks: readonly Mark[]): MessageEntity[] {
  return marks.flatMap(entityOf).slice(0, MOST_ENTITIES);
}

function entityOf({ kind, start: offset, length, language, url }: Mark): MessageEntity[] {
  if (kind === 'pre') return [{ type: 'pre', offset, length, ...(language !== undefined && { language }) }];
  if (kind !== 'link') return [{ type: TYPES[kind], offset, length }];
  return url !== undefined && /^https?:/i.test(url) ? [{ type: 'text_link', offset, length, url }] : [];
}
