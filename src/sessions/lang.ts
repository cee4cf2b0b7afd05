export type Lang = 'en' | 'zh';

/**
 * The language to answer in: what the person chose, else the setting, else Chinese where the text holds Chinese characters, else
 * English.
 */
export function langOf(
  session: { readonly lang: Lang | null } | undefined,
  text: string,
  setting: 'auto' | Lang,
): Lang {
  if (session?.lang) return session.lang;
  if (setting !== 'auto') return setting;
  return /\p{Script=Han}/u.test(text) ? 'zh' : 'en';
}
