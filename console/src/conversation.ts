import { signal } from '@preact/signals';
import {
  type ChatMessage,
  eventsUrl,
  lastMessages,
  type Me,
  PAGE_SIZE,
  Refusal,
  sendMessage,
  signOut,
  whoAmI,
} from './api.ts';

/** What was typed here and is not among the stored messages yet. */
export interface Draft {
  readonly messageId: string;
  readonly text: string;
  readonly state: 'sending' | 'failed';
  /** The id it got; it comes back with the events. */
  readonly storedAs?: string;
  /** Why it failed, in the gateway's words; empty where it could not be reached. */
  readonly reason: string;
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

export const phase = signal<'loading' | 'ready' | 'signed_out'>('loading');
export const isConnected = signal(false);
export const me = signal<Me | undefined>(undefined);
export const messages = signal<readonly ChatMessage[]>([]);
export const drafts = signal<readonly Draft[]>([]);
export const hasEarlier = signal(false);

let source: EventSource | undefined;
let pauseMs = FIRST_PAUSE_MS;

/** Loads the conversation and follows it; tries again until the gateway answers. */
export async function open(): Promise<void> {
  try {
    me.value = await whoAmI();
    if (messages.value.length === 0) {
      const last = await lastMessages();
      hasEarlier.value = last.length === PAGE_SIZE;
      add(last);
    }
    phase.value = 'ready';
    follow();
  } catch (error) {
    isConnected.value = false;
    if (isSignedOut(error)) phase.value = 'signed_out';
    else later();
  }
}

export async function loadEarlier(): Promise<void> {
  const page = await lastMessages(messages.value[0]?.id).catch(() => undefined);
  if (!page) return;
  hasEarlier.value = page.length === PAGE_SIZE;
  const known = new Set(messages.value.map((message) => message.id));
  messages.value = [...page.filter((message) => !known.has(message.id)), ...messages.value];
}

export function say(text: string): void {
  const draft: Draft = { messageId: randomId(), text, state: 'sending', reason: '' };
  drafts.value = [...drafts.value, draft];
  void deliver(draft);
}

/** The same message once more: had it arrived, it is not stored twice. */
export function retry(draft: Draft): void {
  change(draft, { state: 'sending', reason: '' });
  void deliver(draft);
}

export async function leave(): Promise<void> {
  if (!me.value) return;
  try {
    await signOut(me.value);
  } catch (error) {
    if (!isSignedOut(error)) return;
  }
  source?.close();
  messages.value = [];
  drafts.value = [];
  phase.value = 'signed_out';
}

/** The browser itself connects again, and resumes after the last message it has seen; only a refusal ends a source. */
function follow(): void {
  source?.close();
  const current = new EventSource(eventsUrl(messages.value.at(-1)?.id));
  source = current;
  current.onopen = () => {
    isConnected.value = true;
    pauseMs = FIRST_PAUSE_MS;
  };
  current.onmessage = (event: MessageEvent<string>) => add([JSON.parse(event.data) as ChatMessage]);
  current.addEventListener('edit', (event: MessageEvent<string>) => replace(JSON.parse(event.data) as ChatMessage));
  current.onerror = () => {
    isConnected.value = false;
    if (current.readyState === EventSource.CLOSED && source === current) later();
  };
}

function later(): void {
  setTimeout(() => void open(), pauseMs);
  pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
}

async function deliver(draft: Draft): Promise<void> {
  try {
    const storedAs = await sendMessage(me.value!, draft.text, draft.messageId);
    if (messages.value.some((message) => message.id === storedAs)) drop(draft);
    else change(draft, { storedAs });
  } catch (error) {
    if (isSignedOut(error)) phase.value = 'signed_out';
    change(draft, { state: 'failed', reason: error instanceof Refusal ? error.message : '' });
  }
}

/**
 * Stored messages come in their order, from the history and then from the events: the order of arrival is the order to show, and
 * the last one is the place to go on from. What was typed here therefore stays a draft until it comes back.
 */
function add(stored: readonly ChatMessage[]): void {
  const known = new Set(messages.value.map((message) => message.id));
  const fresh = stored.filter((message) => !known.has(message.id));
  if (fresh.length === 0) return;
  messages.value = [...messages.value, ...fresh];
  for (const message of fresh) {
    const draft = message.from === 'user' && drafts.value.find((candidate) => isSame(candidate, message));
    if (draft) drop(draft);
  }
}

/** A message that was changed keeps its place. */
function replace(changed: ChatMessage): void {
  messages.value = messages.value.map((message) => (message.id === changed.id ? changed : message));
}

/** By its id, or by its text while the answer that brings the id is on its way. */
function isSame(draft: Draft, message: ChatMessage): boolean {
  if (draft.storedAs !== undefined) return draft.storedAs === message.id;
  return draft.state === 'sending' && draft.text === message.text;
}

function drop(draft: Draft): void {
  drafts.value = drafts.value.filter((other) => other.messageId !== draft.messageId);
}

function change(draft: Draft, changes: Partial<Draft>): void {
  drafts.value = drafts.value.map((other) => (other.messageId === draft.messageId ? { ...other, ...changes } : other));
}

function isSignedOut(error: unknown): boolean {
  return error instanceof Refusal && error.status === 401;
}

/** Not `randomUUID`, which browsers offer on encrypted pages only. */
function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
