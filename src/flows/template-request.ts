import { type HttpBody, type HttpRequest, secretsIn, withoutSecrets } from '../agents/run-content.ts';
import { onlyPlace, placesIn } from '../places.ts';
import type { Issue } from './template-issues.ts';
import type { TemplateContent } from './template-schema.ts';

type RequestContent = NonNullable<TemplateContent['request']>;

/** The checked call with its defaults; null for a program. */
export function requestOf({ request }: TemplateContent): HttpRequest | null {
  if (!request) return null;
  const { method, url, headers, body, expect, maxResponse: maxResponseBytes } = request;
  return { method, url, headers, body: body === undefined ? null : bodyKind(body, request), expect, maxResponseBytes };
}

/** Can a value of this argument be a whole part of the address's path? */
export function isPathSegment(name: string, url: string | undefined): boolean {
  const [path = ''] = (url ?? '').split(/[?#]/, 1);
  return path.split('/').some((segment) => onlyPlace(segment) === name);
}

/** What belongs to one runtime only, and rules of the call itself. */
export function requestIssues(content: TemplateContent): Issue[] {
  const { runtime, request } = content;
  if (runtime === 'shell') {
    const issues: Issue[] = content.command ? [] : [{ path: ['command'], message: 'is required' }];
    return request ? [...issues, { path: ['request'], message: 'belongs to runtime: http', atKey: true }] : issues;
  }
  const strays = ONLY_SHELL.filter((path) => isGiven(content, path)).map(
    (path): Issue => ({ path, message: 'belongs to runtime: shell', atKey: true }),
  );
  if (!request) return [...strays, { path: ['request'], message: 'is required' }];
  return [
    ...strays,
    ...urlMessages(request.url, content).map((message) => ({ path: ['request', 'url'], message })),
    ...headerIssues(request, content),
    ...bodyMessages(request, content).map((message) => ({ path: ['request', 'body'], message })),
    ...secretIssues(request, content),
  ];
}

const ONLY_SHELL: readonly string[][] = [
  ['command'],
  ['env'],
  ['limits', 'memory'],
  ['limits', 'cpu'],
  ['limits', 'cpuTime'],
];

function isGiven(content: TemplateContent, path: readonly string[]): boolean {
  const value = path.reduce<unknown>((inner, step) => (inner as Record<string, unknown> | undefined)?.[step], content);
  return typeof value === 'object' && value !== null ? Object.keys(value).length > 0 : value !== undefined;
}

/** Scheme, host and port are the template's alone: no argument decides who is called. */
function urlMessages(url: string, content: TemplateContent): string[] {
  const fixed = /^https?:\/\/(\[[0-9a-f:.]+\]|[^/?#{}@\s\\[\]]+)(?=[/?#]|$)/i.exec(url)?.[0];
  if (fixed === undefined) return ['must begin with http:// or https:// and a fixed host, without a user name'];
  if (/[#\s\\]/.test(withoutPlaces(url))) return ['must have no #, backslash or blank'];
  if (!URL.canParse(withoutPlaces(url))) return ['is no address'];
  return placeMessages(url, content);
}

/** What the connection or the runtime sets. */
const RESERVED_HEADER =
  /^(host|content-length|transfer-encoding|connection|keep-alive|upgrade|te|trailer|expect|accept-encoding|idempotency-key|proxy-.*)$/i;

function headerIssues({ headers }: RequestContent, content: TemplateContent): Issue[] {
  const names = Object.keys(headers).map((name) => name.toLowerCase());
  return Object.entries(headers).flatMap(([name, value], index): Issue[] => {
    const path = ['request', 'headers', name];
    if (RESERVED_HEADER.test(name)) return [{ path, message: 'is set by the runtime itself', atKey: true }];
    if (names.indexOf(name.toLowerCase()) !== index) return [{ path, message: 'is there twice', atKey: true }];
    const messages = /^[\x20-\x7e]*$/.test(value)
      ? [...placeMessages(withoutSecrets(value), content), ...unnamedSecrets(value, content)]
      : ['must be printable ASCII; arguments are URL-encoded'];
    return messages.map((message) => ({ path, message }));
  });
}

function unnamedSecrets(value: string, { secrets }: TemplateContent): string[] {
  const unnamed = secretsIn(value).filter((name) => !secrets.includes(name));
  return unnamed.map((name) => `has {{secret ${name}}}, which secrets does not name`);
}

function secretIssues({ headers }: RequestContent, { secrets }: TemplateContent): Issue[] {
  const used = new Set(Object.values(headers).flatMap(secretsIn));
  return secrets.flatMap((name, index) =>
    used.has(name)
      ? []
      : [{ path: ['secrets', index], message: `${name} is in no header; write {{secret ${name}}} there` }],
  );
}

function bodyMessages(request: RequestContent, content: TemplateContent): string[] {
  const { method, body } = request;
  if (body === undefined) return [];
  if (method === 'GET' || method === 'HEAD') return [`has no meaning for ${method}`];
  if (typeof body !== 'string') return textsIn(body).flatMap((text) => placeMessages(text, content));
  const messages = placeMessages(body, content);
  const isRaw = messages.length === 0 && (placesIn(body) as unknown[]).length > 0 && /json|xml/i.test(typeOf(request));
  return isRaw ? ['would put arguments into code as they are; write the body as a mapping'] : messages;
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsIn) : [];
}

function placeMessages(text: string, { args }: TemplateContent): string[] {
  const places = placesIn(text);
  if (typeof places === 'string') return [places];
  return places.flatMap(({ name, hash }) => {
    if (!Object.hasOwn(args, name)) return [`has {{${name}}}, which is no argument of this template`];
    return hash ? [`has {{hash ${name}}}, which only idempotencyKey and serialKey may use`] : [];
  });
}

function withoutPlaces(text: string): string {
  return text.replace(/\{\{[^}]*\}\}/g, 'x');
}

function bodyKind(body: NonNullable<RequestContent['body']>, request: RequestContent): HttpBody {
  if (typeof body !== 'string') return { kind: 'json', value: body };
  return { kind: /x-www-form-urlencoded/i.test(typeOf(request)) ? 'form' : 'text', text: body };
}

function typeOf({ headers }: RequestContent): string {
  return Object.entries(headers).find(([name]) => name.toLowerCase() === 'content-type')?.[1] ?? '';
}
