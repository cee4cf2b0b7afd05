import { sentenceOf, shortened } from '../text.ts';
import type { ArgValue } from './run-words.ts';

const SAID_CHARS = 160;
const BLANK = '…';

/**
 * One sentence of what a program said, for people who are not to see what it was asked to do: values of its arguments are left out,
 * wherever they stand as a word of their own (in writing without blanks: wherever they stand).
 */
export function saidBy(text: string | null, args: Readonly<Record<string, ArgValue>>): string {
  if (text === null) return '';
  const values = Object.values(args)
    .filter((value) => typeof value !== 'boolean')
    .map(String)
    .filter((value) => value.trim() !== '')
    // The longest first: one may be a part of another.
    .sort((a, b) => b.length - a.length);
  return shortened(sentenceOf(values.reduce(withoutValue, text)), SAID_CHARS);
}

function withoutValue(text: string, value: string): string {
  const literal = value.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  const before = /^[a-z0-9]/i.test(value) ? '(?<![a-z0-9])' : '';
  const after = /[a-z0-9]$/i.test(value) ? '(?![a-z0-9])' : '';
  return text.replace(new RegExp(`${before}${literal}${after}`, 'gi'), BLANK);
}
