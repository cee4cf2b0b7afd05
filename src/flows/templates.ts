import { existsSync } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { messageOf } from '../errors.ts';
import { type Log, silentLog } from '../log.ts';
import { Poller, type Service } from '../service.ts';
import { breakerConflicts } from './template-breakers.ts';
import { fileProblem, MAX_FILE_BYTES, readTemplate } from './template-file.ts';
import { problemText, type Template, type TemplateProblem } from './template-model.ts';

export { problemText, type Template, type TemplateProblem };

/** The templates of a folder. What `get` and `list` answer changes only as a whole, at the end of a reload. */
export interface TemplateRegistry {
  get(id: string): Template | undefined;
  /** Sorted by id. */
  list(): readonly Template[];
  /** What is wrong at the moment, sorted by file and line; see `problemText`. */
  problems(): readonly TemplateProblem[];
  /**
   * Reads the folder again. A file that has become bad keeps its last good version; a file that is gone takes its template along.
   * Never throws: what cannot be read is a problem.
   */
  reload(): Promise<void>;
  /** Looks every `pollMs` (default 2,000) milliseconds whether a file has changed, and reloads then. */
  watch(options?: { pollMs?: number }): Service;
}

/** Reads every `*.yaml` and `*.yml` of the folder, not of folders in it; names that begin with a dot are left alone. */
export async function loadTemplates(dir: string, options: { log?: Log } = {}): Promise<TemplateRegistry> {
  const registry = new FolderTemplates(dir, options.log ?? silentLog);
  await registry.reload();
  return registry;
}

/** The examples that come with the package, wherever this module was built to. */
export function packagedTemplatesDir(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const candidate = join(folder, 'templates');
    if (existsSync(join(candidate, 'hello.yaml'))) return candidate;
    const parent = dirname(folder);
    if (parent === folder) throw new Error('the packaged templates are missing');
    folder = parent;
  }
}

const POLL_MS = 2_000;

/** What is known of one file. */
interface Known {
  /** The version in the file now, if it is good. */
  current?: Template;
  /** The last good one; the same as `current` while the file is good. */
  lastGood?: Template;
  problems: readonly TemplateProblem[];
}

class FolderTemplates implements TemplateRegistry {
  readonly #dir: string;
  readonly #log: Log;
  #known = new Map<string, Known>();
  #byId: ReadonlyMap<string, Template> = new Map();
  #list: readonly Template[] = [];
  #problems: readonly TemplateProblem[] = [];
  /** State of the folder before it was read last. */
  #seen: string | undefined;
  #reloading: Promise<void> = Promise.resolve();

  constructor(dir: string, log: Log) {
    this.#dir = dir;
    this.#log = log;
  }

  get(id: string): Template | undefined {
    return this.#byId.get(id);
  }

  list(): readonly Template[] {
    return this.#list;
  }

  problems(): readonly TemplateProblem[] {
    return this.#problems;
  }

  /** One after the other, so that an older reading never replaces a newer one. */
  reload(): Promise<void> {
    this.#reloading = this.#reloading.then(() => this.#reload());
    return this.#reloading;
  }

  watch({ pollMs = POLL_MS }: { pollMs?: number } = {}): Service {
    return new Poller({
      runOnce: async () => {
        if ((await folderState(this.#dir)) !== this.#seen) await this.reload();
        return pollMs;
      },
      onError: (error) => {
        this.#log.error('templates.watch_failed', { error: messageOf(error) });
        return pollMs;
      },
    });
  }

  async #reload(): Promise<void> {
    const seen = await folderState(this.#dir);
    const names = await templateFiles(this.#dir);
    if (typeof names === 'string') this.#publish(this.#known, [fileProblem(this.#dir, names)]);
    else {
      const known = new Map<string, Known>();
      for (const name of names) known.set(name, await readFile(join(this.#dir, name), this.#known.get(name)));
      this.#publish(known, []);
    }
    this.#seen = seen;
  }

  #publish(known: Map<string, Known>, problems: readonly TemplateProblem[]): void {
    const chosen = choose(this.#dir, known);
    const before = new Set(this.#problems.map(problemText));
    const old = this.#byId;
    this.#known = known;
    this.#byId = chosen.byId;
    this.#list = Object.freeze(sorted(chosen.byId));
    this.#problems = Object.freeze([...problems, ...chosen.problems]);
    for (const text of this.#problems.map(problemText))
      if (!before.has(text)) this.#log.warn('templates.problem', { problem: text });
    const changed = this.#list.filter(({ id, digest }) => old.get(id)?.digest !== digest).map(({ id }) => id);
    const removed = [...old.keys()].filter((id) => !chosen.byId.has(id));
    if (changed.length + removed.length > 0) this.#log.info('templates.loaded', { changed, removed });
  }
}

/**
 * Who gets an id: good files in the order of their names, then the last good versions of bad ones. So an old version never keeps a
 * new file out.
 */
function choose(
  dir: string,
  known: ReadonlyMap<string, Known>,
): { byId: Map<string, Template>; problems: TemplateProblem[] } {
  const byId = new Map<string, Template>();
  const owners = new Map<string, string>();
  const problems: TemplateProblem[] = [];
  const refused: Known[] = [];
  for (const [name, file] of known) {
    problems.push(...file.problems);
    const owner = file.current && owners.get(file.current.id);
    if (owner !== undefined)
      problems.push({ ...fileProblem(join(dir, name), `is already the id of ${owner}`), field: 'id' });
    if (!file.current || owner !== undefined) refused.push(file);
    else {
      byId.set(file.current.id, file.current);
      owners.set(file.current.id, name);
    }
  }
  for (const { lastGood } of refused) if (lastGood && !byId.has(lastGood.id)) byId.set(lastGood.id, lastGood);
  for (const { id, message } of breakerConflicts(sorted(byId)))
    if (owners.has(id)) problems.push({ ...fileProblem(join(dir, owners.get(id)!), message), field: 'breaker' });
  return { byId, problems };
}

function sorted(byId: ReadonlyMap<string, Template>): Template[] {
  return [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}

async function readFile(path: string, before: Known | undefined): Promise<Known> {
  const text = await readText(path);
  const reading = typeof text === 'string' ? readTemplate(path, text) : { problems: [fileProblem(path, text.problem)] };
  if ('template' in reading) return { current: reading.template, lastGood: reading.template, problems: [] };
  return { lastGood: before?.lastGood, problems: reading.problems };
}

/** Reads no more than a template may have, however large the file is by now. */
async function readText(path: string): Promise<string | { problem: string }> {
  try {
    const file = await open(path, 'r');
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_FILE_BYTES + 1), 0, MAX_FILE_BYTES + 1, 0);
      if (bytesRead > MAX_FILE_BYTES) return { problem: `is larger than ${MAX_FILE_BYTES / 1024} KiB` };
      return new TextDecoder('utf-8', { fatal: true }).decode(buffer.subarray(0, bytesRead));
    } finally {
      await file.close();
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return {
      problem:
        code === 'ERR_ENCODING_INVALID_ENCODED_DATA'
          ? 'is not UTF-8 text'
          : `cannot be read (${code ?? messageOf(error)})`,
    };
  }
}

/** Names of the folder's template files, sorted, or why there are none. Links are followed; folders and pipes are left alone. */
async function templateFiles(dir: string): Promise<string[] | string> {
  try {
    const names = (await readdir(dir)).filter((name) => /^[^.].*\.ya?ml$/i.test(name)).sort();
    const kinds = await Promise.all(
      names.map((name) =>
        stat(join(dir, name)).then(
          (found) => found.isFile(),
          () => true,
        ),
      ),
    );
    return names.filter((_, index) => kinds[index]);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'ENOENT'
      ? 'is the templates folder and does not exist'
      : `cannot be read (${code ?? messageOf(error)})`;
  }
}

/** Differs whenever a file was edited, added, replaced or removed. */
async function folderState(dir: string): Promise<string> {
  const names = await templateFiles(dir);
  if (typeof names === 'string') return names;
  const states = await Promise.all(
    names.map((name) =>
      stat(join(dir, name)).then(
        ({ mtimeMs, ctimeMs, size, ino }) => `${name}|${mtimeMs}|${ctimeMs}|${size}|${ino}`,
        (error: NodeJS.ErrnoException) => `${name}|${error.code}`,
      ),
    ),
  );
  return states.join('\n');
}
