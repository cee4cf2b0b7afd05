import { request } from 'node:http';
import type { EffectBeginAnswer, EffectMarkAnswer, EffectVerb } from '../agents/protocol.ts';
import type { Environment } from '../config/values.ts';
import { AppError } from '../errors.ts';
import { refusal } from './api.ts';

/** On top of the patience, in which the agent answers in any case, milliseconds. */
const MARGIN_MS = 30_000;

/**
 * A program's word to the agent that runs it, over the agent's local socket.
 * @param call what is said, with `patienceMs`: how long the agent goes on while the gateway is away or another run is at it
 * @throws AppError invalid_config outside of a task, `unreachable` without an answer, what agent or gateway refused with
 */
export async function callAgent(
  env: Environment,
  verb: EffectVerb,
  call: { patienceMs: number } & Record<string, unknown>,
): Promise<EffectBeginAnswer | EffectMarkAnswer> {
  const { ERRAND_AGENT_SOCKET: socketPath, ERRAND_RUN_ID: runId, ERRAND_RUN_KEY: key } = env;
  if (!socketPath || !runId || !key)
    throw new AppError(
      'invalid_config',
      'errand effect works inside a task that an agent runs: there is no ERRAND_AGENT_SOCKET here',
    );
  const headers = { authorization: `Bearer ${key}`, 'x-errand-run': runId, 'content-type': 'application/json' };
  const { status, text } = await exchange(
    socketPath,
    `/effects/${verb}`,
    headers,
    JSON.stringify(call),
    call.patienceMs,
  );
  const answer = parse(text);
  if (status === 200 && answer !== undefined) return answer as EffectBeginAnswer | EffectMarkAnswer;
  throw refusal(status, answer, 'the agent');
}

function exchange(
  socketPath: string,
  path: string,
  headers: Record<string, string>,
  body: string,
  patienceMs: number,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => reject(new AppError('unreachable', `the agent did not answer: ${why}`));
    const call = request({ socketPath, path, method: 'POST', headers, timeout: patienceMs + MARGIN_MS }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      response.on('error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
    });
    call.on('timeout', () => call.destroy(new Error('no answer in time')));
    call.on('error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
    call.end(body);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
