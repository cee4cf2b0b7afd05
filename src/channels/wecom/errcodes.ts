import { redact } from '../../log.ts';
import type { SendOutcome } from '../channel.ts';

/** What an errcode other than 0 means for a message, and for the health of the channel. */
interface Judgement {
  readonly outcome: SendOutcome;
  /** One sentence for the operator, when only a person can end this. */
  readonly problem?: string;
}

type Rule =
  /** Not delivered; the whole account waits. */
  | { readonly act: 'wait'; readonly afterMs?: number }
  /** A setting or a permission is wrong: nothing is lost, a person must act, try again slowly. */
  | { readonly act: 'setup'; readonly say: string }
  /** This person cannot get messages of this app. */
  | { readonly act: 'unreachable'; readonly say: string }
  /** The message itself is not acceptable. */
  | { readonly act: 'refuse'; readonly say: string };

/** Minute limits block for a minute (document 90454). */
const RATE_WAIT_MS = 60_000;
/** A person needs minutes in a console; a call a minute is far below every limit. */
const SETUP_WAIT_MS = 60_000;
/** Wrong credentials end with a restart; until then there is no point in asking often. */
const CREDENTIAL_WAIT_MS = 300_000;
const ERRMSG_CHARS = 200;

/** Codes of document 90313 that mean: the access token is no longer good. 40001 means it only from calls that carry one. */
export const TOKEN_ERRCODES: ReadonlySet<number> = new Set([40001, 40014, 41001, 42001]);

const RULES: Readonly<Record<number, Rule>> = {
  [-1]: { act: 'wait' },
  45009: { act: 'wait', afterMs: RATE_WAIT_MS },
  45033: { act: 'wait' },
  40001: { act: 'setup', say: 'WeCom rejects the credential, check WECOM_SECRET' },
  40013: { act: 'setup', say: 'WeCom rejects WECOM_CORP_ID' },
  40091: { act: 'setup', say: 'WECOM_SECRET belongs to another company than WECOM_CORP_ID' },
  40056: { act: 'setup', say: 'WeCom rejects WECOM_AGENT_ID' },
  40014: { act: 'setup', say: 'WeCom rejects a fresh access token' },
  41001: { act: 'setup', say: 'WeCom rejects a fresh access token' },
  42001: { act: 'setup', say: 'WeCom rejects a fresh access token' },
  48002: { act: 'setup', say: 'the app may not call this API: check its permissions in the WeCom console' },
  301002: { act: 'setup', say: 'WECOM_SECRET belongs to another app than WECOM_AGENT_ID' },
  60020: { act: 'setup', say: 'WeCom does not trust the IP address of this machine' },
  40003: { act: 'unreachable', say: 'WeCom does not know this userid' },
  60111: { act: 'unreachable', say: 'WeCom does not know this userid' },
  81013: { act: 'unreachable', say: 'the person is not in the visible range of the app' },
  50002: { act: 'unreachable', say: 'the person is outside the range of the app' },
  60011: { act: 'unreachable', say: 'the app has no permission for this person' },
  40008: { act: 'refuse', say: 'the type of the message is not accepted' },
  40058: { act: 'refuse', say: 'a parameter is not accepted' },
  44004: { act: 'refuse', say: 'the text is empty' },
  45002: { act: 'refuse', say: 'the text is too long' },
  82001: { act: 'refuse', say: 'no recipient was named' },
};

/**
 * Decides by the table; an unknown code means "not delivered, try this chat again", and the outbox's patience ends it.
 * @param secrets masked in what WeCom says
 */
export function judge(errcode: number, errmsg: string, secrets: readonly string[]): Judgement {
  const rule = RULES[errcode];
  const said = redact(
    errmsg,
    secrets.filter((secret) => secret !== ''),
  ).slice(0, ERRMSG_CHARS);
  const error = `errcode ${errcode}${rule && 'say' in rule ? `, ${rule.say}` : ''}${said ? ` (${said})` : ''}`;
  switch (rule?.act) {
    case undefined:
      return { outcome: { outcome: 'retry', error, scope: 'chat' } };
    case 'wait':
      return { outcome: { outcome: 'retry', error, afterMs: rule.afterMs, scope: 'channel' } };
    case 'setup':
      return {
        outcome: { outcome: 'retry', error, afterMs: waitFor(errcode), scope: 'channel' },
        problem: problemOf(errcode, rule.say, errmsg),
      };
    case 'unreachable':
      return { outcome: { outcome: 'permanent', error, unreachable: true } };
    case 'refuse':
      return { outcome: { outcome: 'permanent', error, unreachable: false } };
  }
}

function waitFor(errcode: number): number {
  return errcode === 40001 || errcode === 40013 || errcode === 40091 ? CREDENTIAL_WAIT_MS : SETUP_WAIT_MS;
}

function problemOf(errcode: number, say: string, errmsg: string): string {
  if (errcode !== 60020) return `${say} (errcode ${errcode}).`;
  const ip = /from ip:\s*([0-9a-fA-F.:]+)/.exec(errmsg)?.[1];
  return `WeCom does not trust the IP address ${ip ?? 'of this machine'} (errcode 60020): add it in the console under 应用管理 → the app → 企业可信IP.`;
}
