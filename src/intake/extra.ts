import type { IncomingMessage } from '../channels/channel.ts';

/** What few messages have; kept as JSON beside the message. */
export type Extra = Pick<IncomingMessage, 'edited' | 'album' | 'joined' | 'limitedView'>;

/** Null for most. */
export function extraText({ edited, album, joined, limitedView }: IncomingMessage): string | null {
  const extra: Extra = {
    ...(edited && { edited }),
    ...(album !== undefined && { album }),
    ...(joined && { joined }),
    ...(limitedView && { limitedView }),
  };
  return Object.keys(extra).length === 0 ? null : JSON.stringify(extra);
}

export function extraOf({ extra }: { readonly extra: string | null }): Extra {
  return extra === null ? {} : (JSON.parse(extra) as Extra);
}
