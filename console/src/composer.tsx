import { signal } from '@preact/signals';
import type { TargetedKeyboardEvent } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { phase, say } from './conversation.ts';
import { words } from './words.ts';

/** A text to be put into the field, from elsewhere on the page. */
export const proposal = signal('');

/** Characters; the gateway refuses longer ones. */
const MAX_LENGTH = 8_000;

export function Composer() {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState('');
  useGrowing(field, text);
  useEffect(() => {
    if (proposal.value === '') return;
    setText(proposal.value);
    proposal.value = '';
    field.current?.focus();
  }, [proposal.value]);

  const isTooLong = text.length > MAX_LENGTH;
  const send = () => {
    if (text.trim() === '' || isTooLong || phase.value !== 'ready') return;
    say(text);
    setText('');
    field.current?.focus();
  };
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLTextAreaElement>) => {
    // While an input method composes (Chinese, Japanese), Enter only chooses the word.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form
      class="composer"
      aria-label={words.field}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="column">
        <div class="box">
          <textarea
            ref={field}
            rows={1}
            value={text}
            placeholder={words.placeholder}
            aria-label={words.field}
            aria-describedby="hint"
            aria-invalid={isTooLong}
            autocomplete="off"
            enterkeyhint="send"
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={onKeyDown}
          />
          <button
            type="submit"
            aria-label={words.send}
            disabled={text.trim() === '' || isTooLong || phase.value !== 'ready'}
          >
            <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
              <path d="M12 19V5.500M5.500 12 12 5.500l6.500 6.500" />
            </svg>
          </button>
        </div>
        <p id="hint" class="hint" role={isTooLong ? 'alert' : undefined}>
          {isTooLong ? words.tooLong : words.hint}
        </p>
      </div>
    </form>
  );
}

/** The field is as high as its text; the style sheet limits it. */
function useGrowing(field: { readonly current: HTMLTextAreaElement | null }, text: string): void {
  useLayoutEffect(() => {
    const element = field.current!;
    element.style.height = 'auto';
    if (text !== '') element.style.height = `${element.scrollHeight}px`;
  }, [field, text]);
}
