import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CookieSerializeOptions } from '@fastify/cookie';
import staticPlugin from '@fastify/static';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { COOKIE_MS, isLinkOpen, redeemLoginLink } from '../../sessions/logins.ts';
import { type ChatRooms, COOKIE } from './chat-identity.ts';
import { type LoginScreen, loginHtml, loginLang } from './chat-login-html.ts';
import { isSameOrigin } from './chat-origin.ts';

/** Nothing but our own files: no inline scripts or styles, no other host, no frames around us. */
const PAGE_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
    "base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  // Not `no-referrer`: with it browsers send `Origin: null` with the login form.
  'referrer-policy': 'same-origin',
};

/** Cookies over plain HTTP only where the public URL is: on this machine or behind a proxy that the settings do not know. */
export function cookieOptions(publicUrl: string): CookieSerializeOptions {
  return { httpOnly: true, sameSite: 'strict', path: '/', secure: publicUrl.startsWith('https:') };
}

/** What links start with: the public URL, with the real port where any free one was asked for. */
export function linkBase(publicUrl: string, address: AddressInfo | string | null): string {
  const url = new URL(publicUrl);
  if (url.port === '0' && address !== null && typeof address === 'object') url.port = String(address.port);
  return url.href.replace(/\/+$/, '');
}

/** The page, its files, and the login. */
export async function chatPage(page: FastifyInstance, rooms: ChatRooms, pageDir = builtPageDir()): Promise<void> {
  page.addHook('onRequest', async (_request, reply) => {
    reply.headers(PAGE_HEADERS);
  });
  page.get('/chat', { schema: { hide: true } as object }, async (_request, reply) => {
    if (pageDir === undefined)
      throw new AppError('unavailable', 'the page is not built: run "npm run build" and start again');
    const html = await readFile(join(pageDir, 'index.html'), 'utf8');
    return reply.type('text/html; charset=utf-8').header('cache-control', 'no-cache').send(html);
  });
  if (pageDir !== undefined) {
    const options = { root: pageDir, prefix: '/chat/assets/', index: false as const, decorateReply: false };
    await page.register(staticPlugin, { ...options, cacheControl: false, setHeaders: keepHashed });
  }
  await page.register(async (login) => addLogin(login, rooms));
}

/** Names under `hashed/` change with their content, so that browsers may keep them for good. */
function keepHashed(reply: FastifyReply, path: string): void {
  reply.header(
    'cache-control',
    path.includes(`${sep}hashed${sep}`) ? 'public, max-age=31536000, immutable' : 'no-cache',
  );
}

/**
 * The link opens a page with one button: previews and scanners fetch links, and only pressing the button uses it up.
 */
function addLogin(login: FastifyInstance, rooms: ChatRooms): void {
  login.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string', bodyLimit: 4_096 },
    (_request, body, done) => done(null, Object.fromEntries(new URLSearchParams(String(body)))),
  );
  const typed = login.withTypeProvider<ZodTypeProvider>();
  const tokenSchema = z.object({ token: z.string().max(200).default('') });
  typed.get('/chat/login', { schema: { querystring: tokenSchema, hide: true } }, async (request, reply) => {
    const { token } = request.query;
    const open = await isLinkOpen(rooms.store, token, rooms.clock.now());
    return show(reply, open ? { screen: 'button', token } : { screen: 'closed' });
  });
  typed.post('/chat/login', { schema: { body: tokenSchema, hide: true } }, async (request, reply) => {
    if (!isSameOrigin(request.headers, rooms.settings.publicUrl)) {
      throw new AppError('forbidden', 'the request comes from another site (Origin or Host is not ours)');
    }
    const answer = await redeemLoginLink(rooms.store, request.body.token);
    if (answer.outcome !== 'signed_in') return show(reply, { screen: answer.outcome });
    const options = { ...cookieOptions(rooms.settings.publicUrl), maxAge: COOKIE_MS / 1_000 };
    return reply.setCookie(COOKIE, answer.cookie, options).header('cache-control', 'no-store').redirect('/chat', 303);
  });
}

function show(reply: FastifyReply, screen: LoginScreen): FastifyReply {
  const html = loginHtml(loginLang(reply.request.headers['accept-language']), screen);
  reply.code(screen.screen === 'button' ? 200 : 403).header('cache-control', 'no-store');
  return reply.type('text/html; charset=utf-8').send(html);
}

/** `dist/console` of this package, wherever in it this file runs; undefined where it is not built. */
function builtPageDir(): string | undefined {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const candidate = join(folder, 'dist', 'console');
    if (existsSync(join(candidate, 'index.html'))) return candidate;
    if (folder === dirname(folder)) return undefined;
  }
}
