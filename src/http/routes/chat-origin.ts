import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';

/**
 * Whether a state-changing request was caused by our own page. Browsers name the causing site in `Origin` (Fetch standard, section
 * 3.2) and tell the relation in `Sec-Fetch-Site`; programs send neither. A host name that is not ours is refused also where both
 * agree, because such a name may have been pointed at this machine (DNS rebinding); addresses and `localhost` cannot be.
 */
export function isSameOrigin(headers: IncomingHttpHeaders, publicUrl: string): boolean {
  const { origin, host } = headers;
  const ours = new URL(publicUrl);
  if (origin === ours.origin) return true;
  if (host === undefined || !isTrustedHost(host, ours)) return false;
  if (origin === undefined)
    return headers['sec-fetch-site'] === undefined || headers['sec-fetch-site'] === 'same-origin';
  return URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
}

function isTrustedHost(host: string, ours: URL): boolean {
  if (host.toLowerCase() === ours.host) return true;
  const [, name] = /^(\[[^\]]+\]|[^:]+)(?::\d+)?$/.exec(host) ?? [];
  if (name === undefined) return false;
  return name.toLowerCase() === 'localhost' || isIP(name.replace(/^\[|\]$/g, '')) > 0;
}
