import { type LookupAddress, lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { type Allowed, contains, networksOf, parseAllowed } from '../../../config/http-allow.ts';

/**
 * Where the http runtime may go (contract, section 9): public addresses, and what the agent's owner permits by AGENT_HTTP_ALLOW. What
 * a name means is looked up once, checked, and that very address is connected to: a name that changes its meaning in between gains
 * nothing.
 */
export interface AddressRules {
  /**
   * `named`: the owner permits it by name, whatever its addresses are; `checked`: it has to be connected to through `lookup`; else why it
   * may not be called.
   */
  verdictOn(url: URL): 'named' | 'checked' | { refusal: string };
  /** For the socket: answers permitted addresses, or an error with the code `ADDRESS_REFUSED`. */
  lookup: LookupFunction;
}

/** The code of the error where a name leads to an address that is not permitted. */
export const ADDRESS_REFUSED = 'ERR_ADDRESS_REFUSED';

const RESERVED: readonly [network: string, bits: number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['168.63.129.16', 32],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  ['::', 96],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['100::', 64],
  ['2001::', 32],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['fc00::', 7],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
];

const reserved = networksOf(RESERVED);

/** Loopback, private, link-local, metadata, carrier and other addresses that are nobody's on the internet. */
export function isReserved(address: string): boolean {
  return contains(reserved, address);
}

/**
 * @param allowed entries that `parseAllowed` accepts; others are ignored
 * @param resolve the system's resolver; another one in tests
 */
export function addressRules(allowed: readonly string[], resolve: typeof lookup = lookup): AddressRules {
  const entries = allowed.flatMap((entry) => parseAllowed(entry) ?? []);
  const isPermitted = (address: string) =>
    !isReserved(address) || entries.some(({ networks }) => networks !== undefined && contains(networks, address));
  return {
    verdictOn(url) {
      const host = bare(url.hostname).toLowerCase();
      const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
      if (entries.some((entry) => isNamed(entry, host, port))) return 'named';
      return isIP(host) === 0 || isPermitted(host) ? 'checked' : { refusal: refusal(host) };
    },
    lookup: (hostname, options, callback) => {
      resolve(hostname, { ...options, all: true }, (error, addresses) => {
        if (error) return callback(error, '', 0);
        const found = addresses as LookupAddress[];
        const good = found.filter(({ address }) => isPermitted(address));
        if (good.length === 0) return callback(refusedError(hostname), '', 0);
        if (options.all) return callback(null, good);
        return callback(null, good[0]!.address, good[0]!.family);
      });
    },
  };
}

function isNamed(entry: Allowed, host: string, port: number): boolean {
  if (entry.host === undefined || (entry.port !== undefined && entry.port !== port)) return false;
  return matchesHost(entry.host, host);
}

function matchesHost(pattern: string, host: string): boolean {
  return pattern.startsWith('*.') ? host.endsWith(pattern.slice(1)) : pattern === host;
}

function refusedError(hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(refusal(hostname)), { code: ADDRESS_REFUSED });
}

function refusal(host: string): string {
  return `${host} is an address of this machine or its own network; the agent's owner may permit it (AGENT_HTTP_ALLOW)`;
}

function bare(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}
