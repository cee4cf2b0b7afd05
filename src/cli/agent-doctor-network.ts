import { lookup } from 'node:dns/promises';
import { connect, isIP, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { type WhoAmIAnswer, whoAmIAnswerSchema } from '../agents/join-protocol.ts';
import { CallFailed, causeOf, GatewayClient, trust } from '../agents/worker/client.ts';
import type { AgentSettings } from '../config/agent.ts';
import { messageOf } from '../errors.ts';
import type { Finding } from './agent-doctor.ts';

const TIMEOUT_MS = 10_000;
/** Leases and schedules are the gateway's clock's; a machine that is further off than this misleads whoever reads its logs. */
const CLOCK_WARN_MS = 5_000;
const CERTIFICATE_WARN_MS = 14 * 86_400_000;

type Target = { name: 'gateway' | 'proxy'; host: string; port: number; isTls: boolean };

/** The way to the gateway, step by step, up to whether it takes the token; the first step that fails ends it. */
export async function gatewayFindings(settings: AgentSettings): Promise<Finding[]> {
  const target = targetOf(settings);
  const findings: Finding[] = [await dnsFinding(target)];
  const steps = [() => tcpFinding(target), ...(target.isTls ? [() => tlsFinding(target, settings.ca)] : [])];
  for (const step of steps) if (findings.at(-1)!.status !== 'fail') findings.push(await step());
  if (findings.at(-1)!.status === 'fail') return findings;
  return [...findings, ...(await tokenFindings(settings))];
}

/** What this machine connects to first. */
function targetOf({ gatewayUrl, proxy }: AgentSettings): Target {
  const url = new URL(proxy ?? gatewayUrl);
  const isTls = url.protocol === 'https:';
  return {
    name: proxy === undefined ? 'gateway' : 'proxy',
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: Number(url.port) || (isTls ? 443 : 80),
    isTls,
  };
}

async function dnsFinding({ name, host }: Target): Promise<Finding> {
  const check = 'dns';
  if (isIP(host) !== 0) return { check, status: 'ok', detail: `the ${name} is named by its address, ${host}` };
  try {
    const addresses = await lookup(host, { all: true });
    return { check, status: 'ok', detail: `${host} is ${addresses.map(({ address }) => address).join(', ')}` };
  } catch (error) {
    const advice = `check ${name === 'proxy' ? 'AGENT_PROXY' : 'AGENT_GATEWAY_URL'} and the name servers of this machine`;
    return { check, status: 'fail', detail: `the ${name} ${host} is not found (${codeOf(error)})`, advice };
  }
}

async function tcpFinding({ name, host, port }: Target): Promise<Finding> {
  const check = 'tcp';
  try {
    const socket = connect({ host, port });
    await opened(socket, 'connect');
    socket.destroy();
    return { check, status: 'ok', detail: `the ${name} listens on port ${port}` };
  } catch (error) {
    return {
      check,
      status: 'fail',
      detail: `no connection to the ${name} ${host}:${port} (${codeOf(error)})`,
      advice:
        name === 'proxy'
          ? 'check AGENT_PROXY'
          : 'is it running, and may this machine reach it (firewall, AGENT_PROXY)?',
    };
  }
}

async function tlsFinding({ name, host, port }: Target, ca: string | undefined): Promise<Finding> {
  const check = 'tls';
  const socket: TLSSocket = connectTls({ host, port, ...(isIP(host) === 0 && { servername: host }), ...trust(ca) });
  try {
    await opened(socket, 'secureConnect');
    const until = Date.parse(socket.getPeerCertificate().valid_to);
    const detail = `${socket.getProtocol()}, the ${name}'s certificate is good until ${new Date(until).toISOString().slice(0, 10)}`;
    const isShort = until - Date.now() < CERTIFICATE_WARN_MS;
    return { check, status: isShort ? 'warn' : 'ok', detail, ...(isShort && { advice: 'have it renewed' }) };
  } catch (error) {
    return { check, status: 'fail', detail: `no TLS with the ${name} (${causeOf(error)})`, advice: tlsAdvice(error) };
  } finally {
    socket.destroy();
  }
}

function tlsAdvice(error: unknown): string | undefined {
  switch (codeOf(error)) {
    case 'CERT_HAS_EXPIRED':
    case 'CERT_NOT_YET_VALID':
      return 'check the clock of this machine, then the certificate';
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `the certificate is for another name: ${messageOf(error)}`;
    case 'EPROTO':
      return 'does that port speak TLS at all?';
    default:
      return undefined;
  }
}

/** Resolves when the socket says so. @throws what it says otherwise, or that it says nothing */
function opened(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once(event, resolve);
    socket.once('error', reject);
    socket.setTimeout(TIMEOUT_MS, () => {
      socket.destroy(Object.assign(new Error(`no answer within ${TIMEOUT_MS / 1_000} s`), { code: 'ETIMEDOUT' }));
    });
  });
}

async function tokenFindings(settings: AgentSettings): Promise<Finding[]> {
  const client = new GatewayClient({ ...settings, timeoutMs: TIMEOUT_MS });
  const askedAt = Date.now();
  try {
    const answer = whoAmIAnswerSchema.safeParse(await client.post('/api/agent/whoami', '{}'));
    const tookMs = Date.now() - askedAt;
    if (answer.success)
      return [
        identityFinding(settings, answer.data),
        clockFinding(answer.data, askedAt, tookMs),
        ...twins(answer.data),
      ];
    return [
      { check: 'gateway', status: 'fail', detail: 'what answers is not a gateway', advice: 'check AGENT_GATEWAY_URL' },
    ];
  } catch (error) {
    if (!(error instanceof CallFailed)) throw error;
    return [callFinding(error, settings)];
  } finally {
    await client.close();
  }
}

function callFinding(error: CallFailed, { proxy }: AgentSettings): Finding {
  const detail = error.message;
  if (error.code === 'unauthorized')
    return {
      check: 'token',
      status: 'fail',
      detail,
      advice: 'join again: `errand agents token <id>` at the gateway makes the line',
    };
  if (error.code === 'not_found')
    return {
      check: 'gateway',
      status: 'fail',
      detail,
      advice: 'check the path of AGENT_GATEWAY_URL, or upgrade the gateway',
    };
  const isProxy = error.code === 'unreachable' && proxy !== undefined;
  return {
    check: 'gateway',
    status: 'fail',
    detail,
    ...(isProxy && { advice: 'may the proxy open a tunnel to that port, and does it want a password?' }),
  };
}

function identityFinding({ agentId }: AgentSettings, who: WhoAmIAnswer): Finding {
  const check = 'token';
  if (who.agentId === agentId)
    return { check, status: 'ok', detail: `accepted: agent ${who.agentId}, pools ${who.pools.join(', ')}` };
  return {
    check,
    status: 'fail',
    detail: `the token is that of agent ${who.agentId}, but AGENT_ID is ${agentId}`,
    advice: `set AGENT_ID=${who.agentId}, or join again`,
  };
}

function clockFinding({ serverTime }: WhoAmIAnswer, askedAt: number, tookMs: number): Finding {
  const check = 'clock';
  // The answer was written at some moment of the call.
  const offMs = Math.max(0, Math.abs(serverTime - (askedAt + tookMs / 2)) - tookMs / 2);
  if (offMs <= CLOCK_WARN_MS)
    return { check, status: 'ok', detail: `as the gateway's, within ${Math.ceil((offMs + tookMs) / 1_000)} s` };
  const way = serverTime > askedAt ? 'behind' : 'ahead of';
  return {
    check,
    status: 'warn',
    detail: `${Math.round(offMs / 1_000)} s ${way} the gateway's`,
    advice: 'synchronise it (NTP); tasks run all the same, the gateway decides by its own clock',
  };
}

/** A copy of this machine: only one of them can be the agent. */
function twins({ agentId, instance }: WhoAmIAnswer): Finding[] {
  if (!instance?.online || instance.host === hostname()) return [];
  return [
    {
      check: 'instance',
      status: 'warn',
      detail: `agent ${agentId} is online on another machine, ${instance.host}`,
      advice:
        'an agent that is started here replaces it; where this machine is a copy, join it under a name of its own',
    },
  ];
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? messageOf(error);
}
