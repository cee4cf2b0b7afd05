import type { Mark, RichText } from '../channel.ts';

/** What WeCom's subset of Markdown has signs for (document 90236, markdown message); the rest of the kinds it cannot show. */
const SIGNS = {
  bold: (inner: string) => `**${inner}**`,
  code: (inner: string) => `\`${inner}\``,
  link: (inner: string, { url }: Mark) => `[${inner}](${url})`,
  italic: undefined,
  quote: undefined,
  pre: undefined,
} as const;

/** What WeCom could take for signs: there is no way to escape them, so a text that has them is sent as it is. */
const AMBIGUOUS = /[*`_<>[\]\\~|]|^ {0,3}(?:#|[-+] |\d+[.)] |={2,}|-{2,})/m;

/**
 * The text in WeCom's Markdown; undefined where it has no look that WeCom shows, or where a piece of it could be read as Markdown and
 * would then not be shown as it is.
 */
export function wecomMarkdown({ text, marks = [] }: RichText): string | undefined {
  if (marks.length === 0 || AMBIGUOUS.test(text)) return undefined;
  // Markdown would fold the columns of what a program has printed.
  if (marks.some(({ kind }) => kind === 'pre')) return undefined;
  let markdown = '';
  let at = 0;
  for (const mark of marks) {
    const sign = SIGNS[mark.kind];
    const inner = text.slice(mark.start, mark.start + mark.length);
    // One look inside of another is more than the subset can say: the outer one is shown.
    if (!sign || mark.start < at || !isOneStretch(inner) || /[()]/.test(mark.url ?? '')) continue;
    markdown += text.slice(at, mark.start) + sign(inner, mark);
    at = mark.start + mark.length;
  }
  return at === 0 ? undefined : markdown + text.slice(at);
}

/** Signs only count around words, and on one line. */
function isOneStretch(text: string): boolean {
  return text.trim() === text && !text.includes('\n');
}
