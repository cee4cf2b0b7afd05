import { type SettingProblem, SettingsError } from '../../config/values.ts';
import { aesKeyOf, keyWorks } from './crypto.ts';

/** The settings of one self-built app (自建应用), as the operator copied them from WeCom's console. */
export interface WecomSettings {
  /** 企业ID; the receiveid of every callback. */
  readonly corpId: string;
  /** AgentId of the app, digits. */
  readonly agentId: string;
  /** Secret of the app. */
  readonly secret: string;
  /** Token of the app's 接收消息 settings: signs callbacks. */
  readonly token: string;
  /** 43 characters, the same place: encrypts callbacks. */
  readonly encodingAesKey: string;
  /** Where the API lives; no slash at the end. */
  readonly apiRoot: string;
}

export const WECOM_API_ROOT = 'https://qyapi.weixin.qq.com';

/** Trimmed settings with the decoded key. */
export type CheckedWecomSettings = WecomSettings & { readonly aesKey: Buffer };

/**
 * Trims and checks; a key of the right shape is tried out. Values of another app cannot be told here: the callback says it.
 * @throws SettingsError naming every variable that is wrong
 */
export function checkWecomSettings(given: Omit<WecomSettings, 'apiRoot'> & { apiRoot?: string }): CheckedWecomSettings {
  const settings = {
    corpId: given.corpId.trim(),
    agentId: given.agentId.trim(),
    secret: given.secret.trim(),
    token: given.token.trim(),
    encodingAesKey: given.encodingAesKey.trim(),
    apiRoot: (given.apiRoot?.trim() || WECOM_API_ROOT).replace(/\/+$/, ''),
  };
  const aesKey = aesKeyOf(settings.encodingAesKey);
  const problems = problemsOf(settings);
  if (problems.length > 0 || !aesKey) throw new SettingsError(problems);
  return { ...settings, aesKey };
}

function problemsOf(settings: WecomSettings): SettingProblem[] {
  const rules: readonly [name: string, good: boolean, message: string][] = [
    [
      'WECOM_CORP_ID',
      /^[A-Za-z0-9_-]{1,64}$/.test(settings.corpId),
      'must be the corp id (企业ID), such as ww1234567890abcdef',
    ],
    ['WECOM_AGENT_ID', /^\d{1,15}$/.test(settings.agentId), 'must be the AgentId of the app, digits only'],
    ['WECOM_SECRET', /^\S+$/.test(settings.secret), 'must be the Secret of the app'],
    [
      'WECOM_TOKEN',
      /^[A-Za-z0-9]{1,32}$/.test(settings.token),
      'must be the Token of the callback settings, 1 to 32 letters and digits',
    ],
    ['WECOM_API_ROOT', URL.canParse(settings.apiRoot), 'must be an http or https URL'],
    [
      'WECOM_ENCODING_AES_KEY',
      goodKey(settings),
      'must be the EncodingAESKey of the callback settings, 43 letters and digits',
    ],
  ];
  return rules.filter(([, good]) => !good).map(([name, , message]) => ({ name, message }));
}

function goodKey(settings: WecomSettings): boolean {
  return keyWorks(settings.encodingAesKey, settings.corpId);
}
