import type { Environment } from '../config/values.ts';

export type Lang = 'en' | 'zh';

/** The language of what the command line says: `ERRAND_LANG=zh`, else English. What `--json` prints has both. */
export function langOf(env: Environment): Lang {
  return env.ERRAND_LANG?.trim() === 'zh' ? 'zh' : 'en';
}

/** Picks the text of a language. */
export type Say = (en: string, zh: string) => string;

export function sayIn(lang: Lang): Say {
  return (en, zh) => (lang === 'zh' ? zh : en);
}
