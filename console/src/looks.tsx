import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { ChatMessage } from './api.ts';
import { words } from './words.ts';
import './looks.css';

type Mark = NonNullable<ChatMessage['marks']>[number];

/** Characters of a message that is shown whole at once. */
const FOLDED_FROM = 6_000;

/** The text of a message with its looks; built of elements, so that no text can become markup. What is very long is folded. */
export function MessageText({ text, marks = [] }: { text: string; marks?: readonly Mark[] | undefined }) {
  const [isOpen, setOpen] = useState(false);
  const isFolded = text.length > FOLDED_FROM && !isOpen;
  return (
    <>
      <div class={isFolded ? 'text folded' : 'text'}>{stretch(text, marks, 0, text.length)}</div>
      {isFolded && (
        <button type="button" class="quiet" onClick={() => setOpen(true)}>
          {words.showAll}
        </button>
      )}
    </>
  );
}

/** From `start` to `end`: plain text and the outermost of the marks there, which lie inside of one another or apart. */
function stretch(text: string, marks: readonly Mark[], start: number, end: number): ComponentChildren[] {
  const children: ComponentChildren[] = [];
  let at = start;
  for (let index = 0; index < marks.length; ) {
    const mark = marks[index]!;
    const markEnd = mark.start + mark.length;
    let next = index + 1;
    while (next < marks.length && marks[next]!.start < markEnd) next += 1;
    if (mark.start > at) children.push(text.slice(at, mark.start));
    children.push(look(mark, stretch(text, marks.slice(index + 1, next), mark.start, markEnd)));
    at = markEnd;
    index = next;
  }
  if (at < end) children.push(text.slice(at, end));
  return children;
}

function look({ kind, url, start }: Mark, inner: ComponentChildren[]) {
  switch (kind) {
    case 'bold':
      return <strong key={start}>{inner}</strong>;
    case 'italic':
      return <em key={start}>{inner}</em>;
    case 'quote':
      return (
        <span key={start} class="quote">
          {inner}
        </span>
      );
    case 'link':
      // The server lets no other address through; the page does not rely on it.
      return url !== undefined && /^(?:https?:|mailto:)/i.test(url) ? (
        <a key={start} href={url} target="_blank" rel="noopener noreferrer">
          {inner}
        </a>
      ) : (
        <span key={start}>{inner}</span>
      );
    default:
      return <code key={start}>{inner}</code>;
  }
}
