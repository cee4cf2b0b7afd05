import type { FastifyRequest } from 'fastify';
import type { Rooms } from '../rooms.ts';

/** Hook: only the administrator, before anything of the body is read. */
export function adminOnly({ admin }: Pick<Rooms, 'admin'>) {
  return async (request: FastifyRequest): Promise<void> => admin.check(request.headers);
}

/** Hook: callers on this machine, and the administrator from anywhere. */
export function localOrAdmin({ admin }: Pick<Rooms, 'admin'>) {
  return async (request: FastifyRequest): Promise<void> => {
    if (!isLocal(request)) admin.check(request.headers);
  };
}

const LOCAL_NAMES = new Set(['localhost', '127.0.0.1', '[::1]']);
const FORWARDING = ['forwarded', 'x-forwarded-for', 'x-real-ip', 'via'] as const;

/**
 * On this machine itself: not a stranger behind a proxy that runs here, and not a web page in a browser here that reaches us under
 * a name of its own (DNS rebinding).
 */
export function isLocal({
  socket,
  headers,
}: Pick<FastifyRequest, 'headers'> & { socket: { remoteAddress?: string | undefined } }): boolean {
  const address = (socket.remoteAddress ?? '').replace(/^::ffff:/, '');
  if (address !== '::1' && !address.startsWith('127.')) return false;
  if (FORWARDING.some((name) => headers[name] !== undefined)) return false;
  return LOCAL_NAMES.has((headers.host ?? '').replace(/:\d+$/, '').toLowerCase());
}
