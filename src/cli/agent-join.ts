import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { homedir, hostname, userInfo } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { type JoinAnswer, type JoinRequest, joinAnswerSchema } from '../agents/join-protocol.ts';
import { AGENT_ID } from '../agents/protocol.ts';
import { CallFailed, GatewayClient } from '../agents/worker/client.ts';
import { backoffMs } from '../backoff.ts';
import { idFromHostname } from '../config/agent.ts';
import { inTheClear } from '../config/gateway-url.ts';
import { AppError } from '../errors.ts';
import { type AgentFile, joinKey, makePrivateFolder, readAgentFile, withValues, writePrivately } from './agent-file.ts';
import { unitFor } from './agent-service.ts';
import type { Act, Context } from './context.ts';

export interface JoinOptions {
  id?: string;
  dir?: string;
  ca?: string;
  proxy?: string;
  force?: true;
  /** True: print the unit; a text: write it there. */
  systemd?: true | string;
}

/** `errand agent join` */
export function agentJoinCommand(agent: Command, act: Act): void {
  agent
    .command('join <url> <token>')
    .description(
      'make this machine an agent: exchanges a join token for a credential of its own and writes the settings',
    )
    .option('--id <id>', "the agent's name, where the token does not fix it (default: the name of this machine)")
    .option('--dir <folder>', `where settings, results and work go (default: ${defaultFolder()})`)
    .option('--ca <file>', 'PEM file of the CA that the gateway is certified by; copied into the folder')
    .option('--proxy <url>', 'HTTP proxy to reach the gateway through')
    .option('--force', "replace another agent's settings; they are kept beside as agent.env.old")
    .option('--systemd [file]', 'also print a systemd unit, or write it into this file')
    .addHelpText(
      'after',
      '\nExamples:\n  errand agent join https://errand.example.com join_…\n' +
        '  errand agent join https://errand.example.com join_… --systemd | sudo tee /etc/systemd/system/errand-agent.service',
    )
    .action(act(joinGateway));
}

/** Root's agents live with the system's data, a person's in the home folder. */
function defaultFolder(): string {
  return userInfo().uid === 0 ? '/var/lib/errand-agent' : join(homedir(), '.errand-agent');
}

async function joinGateway(context: Context, url: string, token: string, options: JoinOptions): Promise<void> {
  const { io, show } = context;
  const gatewayUrl = gatewayUrlOf(url);
  if (options.id !== undefined && !AGENT_ID.test(options.id)) {
    throw invalid('--id', 'must be 1 to 64 letters, digits, dots, dashes or underscores');
  }
  if (options.proxy !== undefined && !isHttp(options.proxy)) throw invalid('--proxy', 'must be an http or https URL');
  const dir = resolve(io.cwd, options.dir ?? defaultFolder());
  const settingsFile = join(dir, 'agent.env');
  const before = readAgentFile(settingsFile);
  const agentId = options.force ? options.id : claimedId(before, settingsFile, gatewayUrl, options.id);
  const ca = options.ca === undefined ? undefined : readCertificates(resolve(io.cwd, options.ca));
  for (const warning of inTheClear(gatewayUrl)) io.err(`errand: ${warning}\n`);
  await makePrivateFolder(dir);
  const { key, forget } = await joinKey(dir);
  const answer = await exchange(
    { gatewayUrl, ca, proxy: options.proxy },
    { joinToken: token, agentId, host: idFromHostname(hostname()), machineKey: key },
  );
  await writeSettings({ dir, settingsFile, before, gatewayUrl, answer, ca, proxy: options.proxy });
  await forget();
  const { agentToken: _secret, ...who } = answer;
  const unit = options.systemd === undefined ? undefined : unitFor(settingsFile);
  if (unit !== undefined && typeof options.systemd === 'string')
    await writePrivately(resolve(io.cwd, options.systemd), unit);
  const printed = options.systemd === true ? unit : undefined;
  const steps = nextSteps(answer, settingsFile, gatewayUrl, options.systemd);
  // A unit goes into a file by itself; what is said about it goes elsewhere.
  if (printed !== undefined && !context.json) io.err(steps);
  show({ ...who, gatewayUrl, settingsFile, ...(printed !== undefined && { unit: printed }) }, () => printed ?? steps);
}

function isHttp(url: string): boolean {
  return URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
}

function gatewayUrlOf(text: string): string {
  const url = isHttp(text) ? new URL(text) : undefined;
  const bare = url && `${url.origin}${url.pathname}`;
  if (bare === undefined || url?.href !== bare)
    throw invalid('url', 'must be the http or https address of the gateway, with nothing behind its path');
  return bare.replace(/\/+$/, '');
}

function invalid(field: string, what: string): AppError {
  return new AppError('invalid_request', `${field}: ${what}`, { field });
}

/**
 * Whom the folder belongs to, so that another agent's settings are not replaced by mistake: the gateway refuses a token for another.
 * @throws AppError conflict where it is somebody else's already by what we know
 */
function claimedId(
  before: AgentFile | undefined,
  path: string,
  gatewayUrl: string,
  id: string | undefined,
): string | undefined {
  const owner = before?.values.AGENT_ID;
  const gateway = before?.values.AGENT_GATEWAY_URL;
  if (owner === undefined && gateway === undefined) return id;
  if ((id !== undefined && owner !== id) || gateway?.replace(/\/+$/, '') !== gatewayUrl) {
    throw new AppError(
      'conflict',
      `${path} belongs to agent ${owner} of ${gateway}: choose another folder with --dir, or replace it with --force`,
      { field: '--dir' },
    );
  }
  return owner;
}

function readCertificates(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw invalid('--ca', `cannot read ${path} (${(error as NodeJS.ErrnoException).code})`);
  }
  try {
    new X509Certificate(text);
  } catch {
    throw invalid('--ca', `${path} holds no PEM certificate`);
  }
  return text;
}

const TRIES = 5;
const PAUSES = { baseMs: 500, factor: 2, capMs: 4_000, jitter: 0.5 };

/** The call may be repeated: whoever has the key gets the credential that its lost answer named, anew. */
async function exchange(
  connection: { gatewayUrl: string; ca?: string | undefined; proxy?: string | undefined },
  request: JoinRequest,
): Promise<JoinAnswer> {
  const client = new GatewayClient(connection);
  try {
    for (let tries = 1; ; tries += 1) {
      try {
        return answerOf(await client.post('/api/agent/join', JSON.stringify(request)));
      } catch (error) {
        if (!(error instanceof CallFailed) || error.verdict !== 'again') throw error;
        if (tries === TRIES)
          throw new AppError(error.code, `${error.message}; run the same line again later`, { cause: error });
        await sleep(Math.max(backoffMs(PAUSES, tries), error.retryAfterMs ?? 0));
      }
    }
  } finally {
    await client.close();
  }
}

function answerOf(answer: unknown): JoinAnswer {
  const parsed = joinAnswerSchema.safeParse(answer);
  if (parsed.success) return parsed.data;
  throw new AppError('unavailable', 'the answer is not that of a gateway (a proxy in between, or another program?)');
}

interface Joined {
  dir: string;
  settingsFile: string;
  before: AgentFile | undefined;
  gatewayUrl: string;
  answer: JoinAnswer;
  ca: string | undefined;
  proxy: string | undefined;
}

/** What the owner of this machine has added to the agent's settings stays; those of another agent are put aside. */
async function writeSettings({ dir, settingsFile, before, gatewayUrl, answer, ca, proxy }: Joined): Promise<void> {
  const isSame = before?.values.AGENT_ID === answer.agentId;
  if (before && !isSame) await writePrivately(`${settingsFile}.old`, before.text);
  const caFile = join(dir, 'ca.pem');
  if (ca !== undefined) await writePrivately(caFile, ca);
  const text = withValues(before && isSame ? before.text : HEAD, {
    AGENT_GATEWAY_URL: gatewayUrl,
    AGENT_ID: answer.agentId,
    AGENT_TOKEN: answer.agentToken,
    AGENT_SPOOL_DIR: (isSame && before?.values.AGENT_SPOOL_DIR) || join(dir, `agent-${answer.agentId}`),
    ...(ca !== undefined && { AGENT_CA_FILE: caFile }),
    ...(proxy !== undefined && { AGENT_PROXY: proxy }),
  });
  await writePrivately(settingsFile, text);
}

const HEAD = '# Written by `errand agent join`. Further settings: agent.env.example of this package.\n';

function nextSteps(
  { agentId, pools }: JoinAnswer,
  settingsFile: string,
  gatewayUrl: string,
  systemd: JoinOptions['systemd'],
): string {
  const settings = `--settings ${shellWord(settingsFile)}`;
  const service =
    typeof systemd === 'string'
      ? `Unit written to ${systemd}; systemctl daemon-reload, then systemctl enable --now`
      : `Or as a service: errand agent unit ${settings} | sudo tee /etc/systemd/system/errand-agent.service\n` +
        '                 sudo systemctl daemon-reload && sudo systemctl enable --now errand-agent';
  return `This machine is agent ${agentId} of ${gatewayUrl} now (pools ${pools.join(', ')}).
Check it:        errand agent doctor ${settings}
Start it:        errand agent ${settings}
${service}
`;
}

function shellWord(text: string): string {
  return /^[A-Za-z0-9_.,:/@%+=~-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
