/** What stands where a secret was. */
const MASK = '[secret]';

/** Replaces a run's secrets in everything that leaves the agent. */
export interface Masking {
  /** A whole text. */
  text(text: string): string;
  /** A text that comes in pieces; a secret that is cut in two is recognised. */
  stream(): MaskedStream;
}

export interface MaskedStream {
  /** The masked text that is certain by now; a piece that may be the beginning of a secret is kept back. */
  push(piece: string): string;
  /** What was kept back. */
  end(): string;
}

/**
 * Recognises each value plain, URL-encoded, JSON-escaped, in hexadecimal digits and in base64 (at any of its three alignments, so also inside a longer
 * encoded text, as in a basic authorization header).
 */
export function maskingOf(values: Iterable<string>): Masking {
  const forms = [...new Set([...values].flatMap(formsOf))].sort((a, b) => b.length - a.length);
  if (forms.length === 0) return NO_MASKING;
  const pattern = new RegExp(forms.map(escapeRegExp).join('|'), 'g');
  const mask = (text: string) => text.replace(pattern, MASK);
  return {
    text: mask,
    stream: () => maskedStream(forms, mask),
  };
}

const NO_MASKING: Masking = {
  text: (text) => text,
  stream: () => ({ push: (piece) => piece, end: () => '' }),
};

function maskedStream(forms: readonly string[], mask: (text: string) => string): MaskedStream {
  let kept = '';
  return {
    push(piece) {
      const text = mask(kept + piece);
      const from = text.length - openEnd(text, forms);
      kept = text.slice(from);
      return text.slice(0, from);
    },
    end() {
      const rest = kept;
      kept = '';
      return rest;
    },
  };
}

/** Length of the longest end of `text` that is the beginning of a form. */
function openEnd(text: string, forms: readonly string[]): number {
  const longest = Math.min(text.length, (forms[0]?.length ?? 1) - 1);
  for (let length = longest; length > 0; length -= 1) {
    const end = text.slice(-length);
    if (forms.some((form) => form.length > length && form.startsWith(end))) return length;
  }
  return 0;
}

function formsOf(value: string): string[] {
  const url = encodeURIComponent(value);
  const lower = url.replace(/%[0-9A-F]{2}/g, (escaped) => escaped.toLowerCase());
  const urls = [url, lower].flatMap((form) => [form, form.replaceAll('%20', '+')]);
  const hex = Buffer.from(value).toString('hex');
  return [value, ...urls, JSON.stringify(value).slice(1, -1), hex, hex.toUpperCase(), ...base64Forms(value)];
}

/** The characters of the encoded value that do not depend on what stands before and after it. */
function base64Forms(value: string): string[] {
  const bytes = Buffer.from(value);
  const forms: string[] = [];
  for (const before of [0, 1, 2]) {
    const encoded = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    const from = Math.ceil((before * 8) / 6);
    const to = Math.floor(((before + bytes.length) * 8) / 6);
    const core = encoded.slice(from, to);
    forms.push(core, core.replaceAll('+', '-').replaceAll('/', '_'));
  }
  return forms;
}

function escapeRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
}
