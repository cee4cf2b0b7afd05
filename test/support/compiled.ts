import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SOURCES = join(ROOT, 'src');
const CACHE = join(ROOT, 'node_modules', '.cache');
const PREFIX = 'errand-test-';
const KEEP_MS = 6 * 3_600_000;

/**
 * The folder of today's `src` as JavaScript that plain Node can run in a child process: `join(await compiledSrc(), 'cli', 'main.js')`.
 * Types are stripped, not checked. The folder's name is a digest of the sources, so it is made once per state of the code, by
 * whichever test process comes first; two at the same time make it twice and one wins.
 */
export async function compiledSrc(): Promise<string> {
  const files = await readTree(SOURCES);
  const hash = createHash('sha256');
  for (const file of files) hash.update(`${file.path}\0${file.text}\0`);
  const target = join(CACHE, `${PREFIX}${hash.digest('hex').slice(0, 16)}`);
  if (!(await exists(target))) await build(files, target);
  return target;
}

interface SourceFile {
  /** Relative to `src`. */
  path: string;
  text: string;
}

async function readTree(folder: string): Promise<SourceFile[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  paths.sort();
  return Promise.all(
    paths.map(async (path) => ({ path: path.slice(folder.length + 1), text: await readFile(path, 'utf8') })),
  );
}

async function build(files: readonly SourceFile[], target: string): Promise<void> {
  const draft = `${target}.${randomBytes(6).toString('hex')}`;
  await mkdir(draft, { recursive: true });
  await writeFile(join(draft, 'package.json'), '{"type":"module"}');
  for (const file of files) {
    const isScript = file.path.endsWith('.ts');
    const to = join(draft, isScript ? file.path.replace(/\.ts$/, '.js') : file.path);
    await mkdir(dirname(to), { recursive: true });
    await writeFile(to, isScript ? transpile(file) : file.text);
  }
  try {
    await rename(draft, target);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    if (!(await exists(target))) throw error;
  }
  await removeOld(target);
}

function transpile(file: SourceFile): string {
  const { outputText } = ts.transpileModule(file.text, {
    fileName: file.path,
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
      rewriteRelativeImportExtensions: true,
      inlineSourceMap: true,
    },
  });
  return outputText;
}

/** Other test processes may still run what they compiled a moment ago, so only what is hours old goes. */
async function removeOld(current: string): Promise<void> {
  for (const name of await readdir(CACHE)) {
    const path = join(CACHE, name);
    if (!name.startsWith(PREFIX) || path === current) continue;
    const found = await stat(path).catch(() => undefined);
    if (found && Date.now() - found.mtimeMs > KEEP_MS) await rm(path, { recursive: true, force: true });
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
