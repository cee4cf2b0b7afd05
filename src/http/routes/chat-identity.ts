import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Route } from '../../channels/channel.ts';
import { AppError } from '../../errors.ts';
import { sameSecret, sha256 } from '../../ids.ts';
import { sessionKeyOf } from '../../sessions/keys.ts';
import { type Login, loginOf } from '../../sessions/logins.ts';
import type { Rooms } from '../rooms.ts';
import { isSameOrigin } from './chat-origin.ts';

/** What the chat's routes use of the house. */
export type ChatRooms = Pick<Rooms, 'settings' | 'clock' | 'log' | 'store' | 'admin' | 'webchatPort' | 'onChatChange'>;

/** The cookie that a login link is exchanged for. */
export const COOKIE = 'errand_login';
/** State-changing calls with the cookie carry the token of GET /api/chat/me here. */
export const CSRF_HEADER = 'x-errand-csrf';
/** Whom the administrator speaks as, where nobody is named. */
export const ADMIN_USER = 'admin';

/** Who calls: proven by the credential, never told by the body. */
export type ChatCaller = { readonly kind: 'admin' } | ({ readonly kind: 'person'; readonly cookie: string } & Login);

/** A person of the web chat has one conversation, which is theirs alone. */
export interface Conversation {
  readonly user: string;
  readonly sessionKey: string;
  readonly route: Route;
}

/** Visible characters; a session key is built from it. */
export const userSchema = z
  .string()
  .regex(/^[^\p{C}\s](?:[^\p{C}]{0,62}[^\p{C}\s])?$/u, 'must be 1 to 64 visible characters');

/**
 * @throws AppError unauthorized without a valid credential; a wrong token is not made good by a cookie
 * @throws AppError forbidden for a state-changing call with the cookie that another site may have caused
 */
export async function callerOf(request: FastifyRequest, rooms: ChatRooms): Promise<ChatCaller> {
  if (request.headers.authorization !== undefined) {
    rooms.admin.check(request.headers);
    return { kind: 'admin' };
  }
  const cookie = request.cookies[COOKIE];
  const login = cookie === undefined ? undefined : await loginOf(rooms.store, cookie, rooms.clock.now());
  if (cookie === undefined || !login)
    throw new AppError('unauthorized', 'sign in with a login link, or use the admin token');
  if (request.method !== 'GET' && request.method !== 'HEAD') refuseForgery(request, cookie, rooms);
  return { kind: 'person', cookie, ...login };
}

/** What the page sends back in `CSRF_HEADER`; another site can make a browser send the cookie but cannot read this. */
export function csrfToken(cookie: string): string {
  return sha256(`errand csrf ${cookie}`);
}

/**
 * Which conversation a call is about.
 * @throws AppError forbidden where a person names somebody else's; invalid_request where the names contradict each other or the
 *   conversation is not one of the web chat
 */
export function conversationFor(
  caller: ChatCaller,
  asked: { sessionKey?: string | undefined; user?: string | undefined },
): Conversation {
  if (caller.kind === 'person') return ownConversation(caller.userId, asked);
  const { sessionKey } = asked;
  const user = sessionKey === undefined ? (asked.user ?? ADMIN_USER) : userOfKey(sessionKey);
  if (user === undefined) {
    throw new AppError('invalid_request', 'sessionKey: is not a conversation of the web chat', { field: 'sessionKey' });
  }
  if (asked.user !== undefined && asked.user !== user) {
    throw new AppError('invalid_request', 'sessionKey: belongs to another user', { field: 'sessionKey' });
  }
  return conversationOf(user);
}

export function conversationOf(user: string): Conversation {
  const route: Route = { channel: 'webchat', account: 'default', chat: user, chatKind: 'direct' };
  return { user, route, sessionKey: sessionKeyOf(route, user) };
}

function ownConversation(
  userId: string,
  asked: { sessionKey?: string | undefined; user?: string | undefined },
): Conversation {
  const own = conversationOf(userId);
  if (asked.user !== undefined) throw new AppError('forbidden', 'user: only with the admin token', { field: 'user' });
  if (asked.sessionKey !== undefined && asked.sessionKey !== own.sessionKey) {
    throw new AppError('forbidden', 'sessionKey: this conversation is not yours', { field: 'sessionKey' });
  }
  return own;
}

/** Here the person is the whole conversation, so that its key names them; what is read is proven by building the key again. */
function userOfKey(sessionKey: string): string | undefined {
  const [, encoded] = /:direct:([^:]+)$/.exec(sessionKey) ?? [];
  if (encoded === undefined) return undefined;
  try {
    const user = decodeURIComponent(encoded);
    return userSchema.safeParse(user).success && conversationOf(user).sessionKey === sessionKey ? user : undefined;
  } catch {
    return undefined;
  }
}

function refuseForgery(request: FastifyRequest, cookie: string, rooms: ChatRooms): void {
  if (!isSameOrigin(request.headers, rooms.settings.publicUrl)) {
    throw new AppError('forbidden', 'the request comes from another site (Origin or Host is not ours)');
  }
  const given = request.headers[CSRF_HEADER];
  if (typeof given !== 'string' || !sameSecret(given, csrfToken(cookie))) {
    throw new AppError('forbidden', `the header ${CSRF_HEADER} must hold the token of GET /api/chat/me`, {
      field: CSRF_HEADER,
    });
  }
}
