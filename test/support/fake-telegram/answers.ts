/** What a scripted call does instead of, or after, its normal work. */
export type Behaviour =
  /** An answer of the Bot API that says no. */
  | { kind: 'refuse'; code: number; description: string; parameters?: Record<string, number> }
  /** Any HTTP answer, of the Bot API or not. */
  | { kind: 'raw'; status: number; body: string }
  /** The call is carried out as usual, but not before this. */
  | { kind: 'wait'; for: Promise<unknown> }
  /** No answer, ever; the socket stays open. */
  | { kind: 'hang' }
  /** The call is carried out, then the socket is destroyed without an answer. */
  | { kind: 'dropAfter' }
  /** The socket is destroyed and nothing is carried out. */
  | { kind: 'dropBefore' };

export const refuse = (code: number, description: string, parameters?: Record<string, number>): Behaviour => ({
  kind: 'refuse',
  code,
  description,
  ...(parameters && { parameters }),
});
export const busy = (retryAfterSec: number): Behaviour =>
  refuse(429, `Too Many Requests: retry after ${retryAfterSec}`, { retry_after: retryAfterSec });
export const serverError = (): Behaviour => refuse(500, 'Internal Server Error');
export const wait = (moment: Promise<unknown>): Behaviour => ({ kind: 'wait', for: moment });
export const hang = (): Behaviour => ({ kind: 'hang' });
export const dropAfter = (): Behaviour => ({ kind: 'dropAfter' });
export const dropBefore = (): Behaviour => ({ kind: 'dropBefore' });
export const raw = (status: number, body: string): Behaviour => ({ kind: 'raw', status, body });

/** A refusal thrown by a method. */
export class Refusal extends Error {
  readonly code: number;
  readonly parameters: Record<string, number> | undefined;

  constructor(code: number, description: string, parameters?: Record<string, number>) {
    super(description);
    this.code = code;
    this.parameters = parameters;
  }
}
export const badRequest = (why: string, parameters?: Record<string, number>) =>
  new Refusal(400, `Bad Request: ${why}`, parameters);

export type Json = Record<string, unknown>;

/** One message as the chat shows it. */
export interface ShownMessage {
  message_id: number;
  from: 'bot' | number;
  text: string;
  thread?: number;
  replyTo?: number;
  document?: { name: string; content: string };
  /** The parameters of the call that sent it. */
  sentWith?: Json;
}
