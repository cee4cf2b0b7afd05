/** Whether what goes to this address stays on this machine. */
export function isLoopback(url: string): boolean {
  return /^(localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(url).hostname);
}

/** What is to be said of a gateway's address over which token, arguments and results travel for everybody on the way to read. */
export function inTheClear(gatewayUrl: string): string[] {
  if (new URL(gatewayUrl).protocol === 'https:' || isLoopback(gatewayUrl)) return [];
  return [`AGENT_GATEWAY_URL: ${gatewayUrl} is not encrypted: whoever is on the way can read the token; use https`];
}
