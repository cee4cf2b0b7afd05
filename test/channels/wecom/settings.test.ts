import { describe, expect, it } from 'vitest';
import { checkWecomSettings, WECOM_API_ROOT } from '../../../src/channels/wecom/settings.ts';
import { SettingsError } from '../../../src/config/values.ts';

const good = {
  corpId: 'wx5823bf96d3bd56c7',
  agentId: '218',
  secret: 'abcDEF-123_456',
  token: 'QDG6eK',
  encodingAesKey: 'jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C',
};

function problems(changes: Partial<typeof good> & { apiRoot?: string }): { name: string; message: string }[] {
  try {
    checkWecomSettings({ ...good, ...changes });
    return [];
  } catch (error) {
    expect(error).toBeInstanceOf(SettingsError);
    return [...(error as SettingsError).problems];
  }
}

describe('settings of a WeCom app', () => {
  it('case 56: blanks around copied values are dropped', () => {
    const padded = Object.fromEntries(
      Object.entries(good).map(([name, value]) => [name, ` ${value}\n`]),
    ) as typeof good;
    expect(checkWecomSettings(padded)).toMatchObject({ ...good, apiRoot: WECOM_API_ROOT });
  });

  it('case 56: a wrong EncodingAESKey is one problem that names the variable and does not show the value', () => {
    for (const bad of ['', 'short', `${good.encodingAesKey}x`, good.encodingAesKey.replace('j', '$')]) {
      const found = problems({ encodingAesKey: bad });
      expect(found.map((problem) => problem.name)).toEqual(['WECOM_ENCODING_AES_KEY']);
      if (bad) expect(found[0]!.message).not.toContain(bad);
    }
  });

  it('case 56: every wrong value is named at once', () => {
    const found = problems({
      corpId: '',
      agentId: 'app',
      secret: 'a b',
      token: '',
      apiRoot: 'qyapi',
      encodingAesKey: 'x',
    });
    const names = [
      'WECOM_CORP_ID',
      'WECOM_AGENT_ID',
      'WECOM_SECRET',
      'WECOM_TOKEN',
      'WECOM_API_ROOT',
      'WECOM_ENCODING_AES_KEY',
    ];
    expect(found.map((problem) => problem.name)).toEqual(names);
  });

  it('an API root may end with slashes', () => {
    expect(checkWecomSettings({ ...good, apiRoot: 'http://127.0.0.1:9000//' }).apiRoot).toBe('http://127.0.0.1:9000');
  });
});
