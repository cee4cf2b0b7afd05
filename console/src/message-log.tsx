import { useLayoutEffect, useRef } from 'preact/hooks';
import type { ChatMessage } from './api.ts';
import { proposal } from './composer.tsx';
import { type Draft, drafts, hasEarlier, loadEarlier, messages, phase, retry } from './conversation.ts';
import './files.css';
import { MessageText } from './looks.tsx';
import { LOCALE, words } from './words.ts';

const timeOfDay = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat(LOCALE, { weekday: 'long', month: 'long', day: 'numeric' });

/** Pixels from the end within which the reader counts as being there, and new messages pull the view along. */
const NEAR_END = 80;

const PROPOSALS = ['/help', '/run hello name=Ada', '/status'];

export function MessageLog() {
  const view = useRef<HTMLElement>(null);
  useStickToEnd(view);
  const isEmpty = phase.value === 'ready' && messages.value.length === 0 && drafts.value.length === 0;
  return (
    <main class="view" ref={view}>
      <div class="column">
        {phase.value === 'loading' && <p class="note">{words.loading}</p>}
        {isEmpty && <Welcome />}
        {hasEarlier.value && <Earlier view={view} />}
        <div role="log" aria-live="polite" aria-label={words.log} class="log">
          {messages.value.map((message, index) => (
            <Line key={message.id} message={message} previous={messages.value[index - 1]} />
          ))}
          {drafts.value.map((draft) => (
            <DraftLine key={draft.messageId} draft={draft} />
          ))}
        </div>
      </div>
    </main>
  );
}

/** After something was added the view follows, unless the reader has scrolled back to read. */
function useStickToEnd(view: { readonly current: HTMLElement | null }): void {
  const wasAtEnd = useRef(true);
  useLayoutEffect(() => {
    const element = view.current!;
    const onScroll = () => {
      wasAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
    };
    element.addEventListener('scroll', onScroll, { passive: true });
    const toEnd = () => {
      if (wasAtEnd.current) element.scrollTop = element.scrollHeight;
    };
    const resized = new ResizeObserver(toEnd);
    resized.observe(element);
    return () => {
      element.removeEventListener('scroll', onScroll);
      resized.disconnect();
    };
  }, [view]);
  const mine = drafts.value.length;
  useLayoutEffect(() => {
    const element = view.current!;
    if (wasAtEnd.current || mine > 0) element.scrollTop = element.scrollHeight;
  }, [view, messages.value.at(-1)?.id, mine]);
}

function Welcome() {
  return (
    <section class="welcome">
      <h2>{words.emptyTitle}</h2>
      <p>{words.empty}</p>
      <ul class="proposals">
        {PROPOSALS.map((text) => (
          <li key={text}>
            <button
              type="button"
              onClick={() => {
                proposal.value = text;
              }}
            >
              {text}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Earlier({ view }: { view: { readonly current: HTMLElement | null } }) {
  const load = async () => {
    const element = view.current!;
    const fromEnd = element.scrollHeight - element.scrollTop;
    await loadEarlier();
    requestAnimationFrame(() => {
      element.scrollTop = element.scrollHeight - fromEnd;
    });
  };
  return (
    <p class="note">
      <button type="button" class="quiet" onClick={() => void load()}>
        {words.earlier}
      </button>
    </p>
  );
}

function Line({ message, previous }: { message: ChatMessage; previous: ChatMessage | undefined }) {
  const isNewDay = previous === undefined || dayOf(previous.at) !== dayOf(message.at);
  const isFirst = isNewDay || previous.from !== message.from;
  return (
    <>
      {isNewDay && <p class="day">{dayOf(message.at) === dayOf(Date.now()) ? words.today : dayOf(message.at)}</p>}
      <article class={`line ${message.from}${isFirst ? ' first' : ''}`} data-id={message.id}>
        <span class="unseen">{message.from === 'user' ? words.you : words.bot}: </span>
        <MessageText text={message.text} marks={message.marks} />
        {message.files && <Files files={message.files} />}
        <time dateTime={new Date(message.at).toISOString()}>{timeOfDay.format(message.at)}</time>
      </article>
    </>
  );
}

function Files({ files }: { files: NonNullable<ChatMessage['files']> }) {
  return (
    <ul class="files" aria-label={words.files}>
      {files.map(({ name, bytes, url }) => (
        <li key={url}>
          <a href={url} download>
            {name}
          </a>{' '}
          {sizeWords(bytes)}
        </li>
      ))}
    </ul>
  );
}

/** Of the largest unit that leaves something in front of the point. */
function sizeWords(bytes: number): string {
  const [unit, each] =
    bytes < 1_024 ? ['byte', 1] : bytes < 1_024 ** 2 ? ['kilobyte', 1_024] : ['megabyte', 1_024 ** 2];
  const format = { style: 'unit', unit, unitDisplay: 'long', maximumFractionDigits: 1 } as const;
  return new Intl.NumberFormat(LOCALE, unit === 'byte' ? format : { ...format, unitDisplay: 'short' }).format(
    bytes / each,
  );
}

function DraftLine({ draft }: { draft: Draft }) {
  const hasFailed = draft.state === 'failed';
  return (
    <article class={`line user draft${hasFailed ? ' failed' : ''}`}>
      <span class="unseen">{words.you}: </span>
      <div class="text">{draft.text}</div>
      {hasFailed ? (
        <p class="fault">
          {words.failed} {draft.reason}{' '}
          <button type="button" onClick={() => retry(draft)}>
            {words.retry}
          </button>
        </p>
      ) : (
        <span class="sending">{words.sending}</span>
      )}
    </article>
  );
}

function dayOf(at: number): string {
  return day.format(at);
}
