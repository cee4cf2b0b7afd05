import { BlockList, isIP } from 'node:net';

/** An entry of AGENT_HTTP_ALLOW: networks, or a host with or without a port. */
export interface Allowed {
  networks?: BlockList;
  /** Lower case, without brackets; `*.example.com` for every name below it. */
  host?: string;
  port?: number;
}

/**
 * What may be written there: an address, a network `10.0.0.0/8`, a name, or `*.example.com`; all but networks with `:port` or without.
 * Undefined for anything else.
 */
export function parseAllowed(entry: string): Allowed | undefined {
  const network = /^([0-9a-f.:]+)\/(\d{1,3})$/i.exec(entry);
  if (network) {
    const family = isIP(network[1]!);
    const isGood = family !== 0 && Number(network[2]) <= (family === 4 ? 32 : 128);
    return isGood ? { networks: networksOf([[network[1]!, Number(network[2])]]) } : undefined;
  }
  if (isIP(entry) === 6) return { host: entry.toLowerCase() };
  const match = /^(\[[0-9a-f:.]+\]|(?:\*\.)?[\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)*)(?::(\d{1,5}))?$/iu.exec(entry);
  if (!match) return undefined;
  const host = bare(match[1]!).toLowerCase();
  return { host, ...(match[2] !== undefined && { port: Number(match[2]) }) };
}

/** Whether the address lies in one of the networks; false for what is no address. */
export function contains(list: BlockList, address: string): boolean {
  const plain = address.replace(/%.*$/, '');
  const family = isIP(plain);
  return family !== 0 && list.check(plain, family === 6 ? 'ipv6' : 'ipv4');
}

export function networksOf(networks: readonly (readonly [network: string, bits: number])[]): BlockList {
  const list = new BlockList();
  for (const [network, bits] of networks) list.addSubnet(network, bits, isIP(network) === 6 ? 'ipv6' : 'ipv4');
  return list;
}

function bare(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}
