/** One field of a form; `fileName` where it is a file. */
export interface FormField {
  readonly name: string;
  readonly fileName?: string;
  readonly content: Buffer;
}

/** The fields of a multipart/form-data body (RFC 7578). Throws for what is none. */
export function readMultipart(contentType: string, body: Buffer): FormField[] {
  const boundary = /boundary="?([^";]+)"?/.exec(contentType)?.[1];
  if (boundary === undefined) throw new Error('a form without a boundary');
  // One byte per character, so that lengths are bytes and nothing is decoded.
  const text = body.toString('latin1');
  const [preamble, ...parts] = `\r\n${text}`.split(`\r\n--${boundary}`);
  if (preamble !== '' || !parts.at(-1)?.startsWith('--')) throw new Error('a form that is cut off');
  return parts.slice(0, -1).map(fieldOf);
}

function fieldOf(part: string): FormField {
  const headEnd = part.indexOf('\r\n\r\n');
  if (headEnd < 0) throw new Error('a field without an end of its head');
  const head = Buffer.from(part.slice(0, headEnd), 'latin1').toString('utf8');
  const content = Buffer.from(part.slice(headEnd + 4), 'latin1');
  const name = /content-disposition:[^\r]*[; ]name="([^"]*)"/i.exec(head)?.[1];
  const fileName = /content-disposition:[^\r]*filename="?([^";\r]*)"?/i.exec(head)?.[1];
  if (name === undefined) throw new Error('a field without a name');
  const length = /filelength=(\d+)/i.exec(head)?.[1];
  if (length !== undefined && Number(length) !== content.length)
    throw new Error('a file of another length than it says');
  return { name, content, ...(fileName !== undefined && { fileName }) };
}
