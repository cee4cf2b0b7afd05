import type { Texts } from './template-model.ts';

/** What can be wrong with an argument, for people; `name` is the argument's. */
export const argSentences = {
  unknown: (name: string, template: string, hint: string | undefined, names: readonly string[]): Texts => {
    const known = names.join(', ');
    const en = hint ? `did you mean ${hint}?` : known ? `it takes ${known}` : 'it takes none';
    const zh = hint ? `是不是 ${hint}？` : known ? `可用的参数：${known}` : '它没有参数';
    return { en: `${template} has no argument ${name}; ${en}`, zh: `${template} 没有参数 ${name}，${zh}` };
  },
  missing: (name: string): Texts => ({ en: `${name} is required`, zh: `缺少参数 ${name}` }),
  notText: (name: string): Texts => ({ en: `${name} must be text`, zh: `${name} 必须是文字` }),
  path: { en: 'a value is no part of a path (. or ..)', zh: '参数值不能作为路径的一部分（. 或 ..）' } satisfies Texts,
  nul: (name: string): Texts => ({ en: `${name} contains a NUL character`, zh: `${name} 含有 NUL 字符` }),
  broken: (name: string): Texts => ({ en: `${name} contains half a character`, zh: `${name} 含有不完整的字符` }),
  notNumber: (name: string): Texts => ({ en: `${name} must be a number`, zh: `${name} 必须是数字` }),
  notInteger: (name: string): Texts => ({ en: `${name} must be a whole number`, zh: `${name} 必须是整数` }),
  notBoolean: (name: string): Texts => ({
    en: `${name} must be true or false`,
    zh: `${name} 必须是 true 或 false（是或否）`,
  }),
  notDate: (name: string): Texts => ({
    en: `${name} must be a day such as 2026-03-01, or today`,
    zh: `${name} 必须是日期，例如 2026-03-01 或“今天”`,
  }),
  notOneOf: (name: string, values: readonly string[]): Texts => ({
    en: `${name} must be one of ${values.join(', ')}`,
    zh: `${name} 必须是以下之一：${values.join('、')}`,
  }),
  tooShort: (name: string, min: number): Texts => ({
    en: `${name} must have at least ${min} characters`,
    zh: `${name} 至少要有 ${min} 个字`,
  }),
  tooLong: (name: string, max: number): Texts => ({
    en: `${name} must have at most ${max} characters`,
    zh: `${name} 最多 ${max} 个字`,
  }),
  tooSmall: (name: string, min: number | string): Texts => ({
    en: `${name} must be at least ${min}`,
    zh: `${name} 不能小于 ${min}`,
  }),
  tooLarge: (name: string, max: number | string): Texts => ({
    en: `${name} must be at most ${max}`,
    zh: `${name} 不能大于 ${max}`,
  }),
  noMatch: (name: string, pattern: string): Texts => ({
    en: `${name} does not have the right form (${pattern})`,
    zh: `${name} 的格式不对（${pattern}）`,
  }),
  dash: (name: string): Texts => ({
    en: `${name} must not begin with a dash, or it could be taken for an option`,
    zh: `${name} 不能以 - 开头，否则可能被当作选项`,
  }),
} as const;
