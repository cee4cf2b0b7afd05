import cookiePlugin from '@fastify/cookie';
import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { randomToken } from '../../ids.ts';
import { getPerson } from '../../sessions/access.ts';
import { admit, createLoginLink, endLogin, loginOf, webchatPerson } from '../../sessions/logins.ts';
import type { Store } from '../../store/store.ts';
import { ChatStreams, HEARTBEAT_MS } from './chat-events.ts';
import { chatMessageSchema, chatMessages, lastCursor } from './chat-history.ts';
import {
  type ChatCaller,
  type ChatRooms,
  COOKIE,
  type Conversation,
  CSRF_HEADER,
  callerOf,
  conversationFor,
  csrfToken,
  userSchema,
} from './chat-identity.ts';
import { chatPage, cookieOptions, linkBase } from './chat-page.ts';
import { webchatMessage } from './chat-queries.ts';
import { epochMs, MAX_PAGE, publicId, refusals } from './shapes.ts';

/** Characters of one message; the intake's own limit. */
const TEXT_LIMIT = 8_000;
const BODY_LIMIT = 64 * 1024;

const sessionKeySchema = z.string().min(1).max(512);
const nameSchema = z.string().regex(/^[^\p{C}]{1,100}$/u, 'must be 1 to 100 visible characters');
const saySchema = z.strictObject({
  text: z
    .string()
    .min(1)
    .max(TEXT_LIMIT)
    .refine((text) => text.trim() !== '', 'must not be blank'),
  messageId: z
    .string()
    .regex(/^[^\p{C}]{1,128}$/u, 'must be 1 to 128 visible characters')
    .optional(),
  sessionKey: sessionKeySchema.optional(),
  user: userSchema.optional(),
});
const whoseSchema = z.object({ sessionKey: sessionKeySchema.optional(), user: userSchema.optional() });
const cursorSchema = z.string().max(16).describe('the id of a message; 0: the beginning');
const historySchema = whoseSchema.extend({
  after: cursorSchema.optional(),
  before: cursorSchema.optional(),
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(100),
});

const tags = ['web chat'];
const meSchema = z.object({
  user: z.string(),
  name: z.string(),
  role: z.string().nullable(),
  sessionKey: z.string(),
  csrf: z.string().optional().describe(`with the cookie: what state-changing calls carry in ${CSRF_HEADER}`),
});

/** What the routes take and answer; also the document's text. All need the cookie of a login link, or the admin token. */
const DOCS = {
  logins: {
    tags,
    summary: 'Make a one-time login link for a user (admin token only)',
    body: z.strictObject({ user: userSchema, name: nameSchema.optional() }),
    response: { 201: z.object({ url: z.string(), expiresAt: epochMs }), ...refusals },
  },
  me: { tags, summary: 'Who is signed in', querystring: whoseSchema, response: { 200: meSchema, ...refusals } },
  logout: { tags, summary: 'Sign this browser out', response: { 204: z.undefined(), ...refusals } },
  say: {
    tags,
    summary: 'Send a message; the same messageId of the same user is stored once',
    body: saySchema,
    response: {
      202: z.object({ sessionKey: z.string(), inboxId: publicId, duplicate: z.literal(true).optional() }),
      ...refusals,
    },
  },
  history: {
    tags,
    summary: 'Messages of a conversation, oldest first: after a cursor, else the last ones (before a cursor)',
    querystring: historySchema,
    response: { 200: z.object({ messages: z.array(chatMessageSchema) }), ...refusals },
  },
  events: {
    tags,
    summary: 'The same messages as server-sent events, resumable by Last-Event-ID; without a cursor from now on',
    querystring: whoseSchema.extend({ after: cursorSchema.optional() }),
  },
};

declare module 'fastify' {
  interface FastifyRequest {
    chatCaller: ChatCaller | undefined;
  }
}

export interface ChatOptions {
  /** The built page; default: dist/console of this package. */
  readonly pageDir?: string;
  /** Pause between signs of life of an event stream; default 15 s. */
  readonly heartbeatMs?: number;
}

/**
 * The web chat: its page and login under /chat, its API under /api/chat.
 */
export async function chatRoutes(app: FastifyInstance, rooms: ChatRooms, options: ChatOptions = {}): Promise<void> {
  const { pageDir, heartbeatMs = HEARTBEAT_MS } = options;
  const streams = new ChatStreams({ store: rooms.store, log: rooms.log, clock: rooms.clock, heartbeatMs });
  const stopListening = rooms.onChatChange((sessionKey) => streams.wake(sessionKey));
  app.addHook('preClose', async () => {
    stopListening();
    await streams.stop();
  });
  await app.register(async (scope) => {
    if (!scope.hasRequestDecorator('cookies')) await scope.register(cookiePlugin);
    await scope.register(async (page) => chatPage(page, rooms, pageDir));
    await scope.register(async (api) => chatApi(api, rooms, streams));
  });
}

/** Strangers are sent away before their body is read. */
function chatApi(api: FastifyInstance, rooms: ChatRooms, streams: ChatStreams): void {
  api.decorateRequest('chatCaller', undefined);
  api.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' });
    request.chatCaller = await callerOf(request, rooms);
  });
  addLogins(api, rooms);
  addMessages(api, rooms, streams);
  addEvents(api, rooms, streams);
}

function addLogins(api: FastifyInstance, rooms: ChatRooms): void {
  const typed = api.withTypeProvider<ZodTypeProvider>();
  typed.post('/api/chat/logins', { bodyLimit: BODY_LIMIT, schema: DOCS.logins }, async (request, reply) => {
    if (request.chatCaller!.kind !== 'admin')
      throw new AppError('forbidden', 'login links are made with the admin token');
    const { user, name } = request.body;
    const { path, expiresAt } = await createLoginLink(rooms.store, { userId: user, name });
    return reply
      .code(201)
      .send({ url: `${linkBase(rooms.settings.publicUrl, api.server.address())}${path}`, expiresAt });
  });
  typed.get('/api/chat/me', { schema: DOCS.me }, async (request) => {
    const caller = request.chatCaller!;
    const { user, sessionKey } = conversationFor(caller, request.query);
    if (caller.kind === 'person')
      return { user, name: caller.name, role: caller.role, sessionKey, csrf: csrfToken(caller.cookie) };
    const person = await getPerson(rooms.store, webchatPerson(user));
    return {
      user,
      name: person?.name ?? user,
      role: person && person.revokedAt === null ? person.role : null,
      sessionKey,
    };
  });
  typed.post('/api/chat/logout', { bodyLimit: BODY_LIMIT, schema: DOCS.logout }, async (request, reply) => {
    const caller = request.chatCaller!;
    if (caller.kind === 'person') await endLogin(rooms.store, caller.cookie);
    return reply.clearCookie(COOKIE, cookieOptions(rooms.settings.publicUrl)).code(204).send();
  });
}

function addMessages(api: FastifyInstance, rooms: ChatRooms, streams: ChatStreams): void {
  const typed = api.withTypeProvider<ZodTypeProvider>();
  typed.post('/api/chat/messages', { bodyLimit: BODY_LIMIT, schema: DOCS.say }, async (request, reply) => {
    const caller = request.chatCaller!;
    const conversation = conversationFor(caller, request.body);
    if (caller.kind === 'admin') await vouchFor(rooms.store, conversation.user);
    const name = caller.kind === 'person' ? caller.name : undefined;
    const answer = await say(rooms, conversation, { ...request.body, name });
    streams.wake(conversation.sessionKey);
    return reply.code(202).send(answer);
  });
  typed.get('/api/chat/messages', { schema: DOCS.history }, async (request) => {
    const { after, before, limit, ...whose } = request.query;
    if (after !== undefined && before !== undefined) {
      throw new AppError('invalid_request', 'before: not together with after', { field: 'before' });
    }
    return {
      messages: await chatMessages(rooms.store, conversationFor(request.chatCaller!, whose), { after, before, limit }),
    };
  });
}

function addEvents(api: FastifyInstance, rooms: ChatRooms, streams: ChatStreams): void {
  api.withTypeProvider<ZodTypeProvider>().get('/api/chat/events', { schema: DOCS.events }, async (request, reply) => {
    const caller = request.chatCaller!;
    const { after, ...whose } = request.query;
    const conversation = conversationFor(caller, whose);
    const resumed = request.headers['last-event-id'] ?? after;
    const cursor =
      typeof resumed === 'string' && resumed !== '' ? resumed : await lastCursor(rooms.store, conversation);
    // A cursor that is none is told here, where it can still be an answer.
    await chatMessages(rooms.store, conversation, { after: cursor, limit: 1 });
    streams.check(conversation);
    const isAllowed = async () =>
      caller.kind === 'admin' || (await loginOf(rooms.store, caller.cookie, rooms.clock.now())) !== undefined;
    reply.hijack();
    streams.open(reply.raw, { conversation, after: cursor, isAllowed });
  });
}

/** The administrator may speak as a user, who is let in by that. @throws AppError forbidden for a person whose access was revoked */
async function vouchFor(store: Store, userId: string): Promise<void> {
  const by = 'admin token';
  const known = await getPerson(store, webchatPerson(userId));
  const person = known ?? (await store.transact('chat.admit', (tx) => admit(tx, { userId, by })));
  if (person.revokedAt !== null) throw new AppError('forbidden', `access of ${userId} was revoked`, { field: 'user' });
}

interface Saying {
  readonly text: string;
  readonly messageId?: string | undefined;
  readonly name: string | undefined;
}

/** Stores the message; when this resolves it is on disk. The same `messageId` of the same user is the same row. */
async function say(rooms: ChatRooms, conversation: Conversation, said: Saying) {
  const { user, sessionKey } = conversation;
  const { text, messageId = randomToken(), name } = said;
  const identity = JSON.stringify([user, messageId]);
  const route = { ...conversation.route, messageId };
  const sender = { id: user, ...(name === undefined ? {} : { name }) };
  const [result] = await rooms.webchatPort.accept([{ identity, kind: 'text', route, sender, text, addressed: true }]);
  const [row] = await rooms.store.all(webchatMessage, { identity });
  if (!row) throw new AppError('internal', 'the message was accepted but is not there');
  return {
    sessionKey,
    inboxId: rooms.store.ids.encode(row.id),
    ...(result === 'duplicate' ? { duplicate: true as const } : {}),
  };
}
