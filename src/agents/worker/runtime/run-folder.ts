import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ArgValue, type Assignment, WIRE_LIMITS } from '../../protocol.ts';
import { clip } from './capture.ts';

/** Of a file that a program wrote, no more than this is read. */
const READ_BYTES = 1024 * 1024;
/** Far longer than any line of progress that is told. */
const TAIL_BYTES = 64 * 1024;
const MAX_OUTPUTS = 64;
/** Its name in the folder of its run. */
export const CHECKPOINT_OUT = 'checkpoint-out.json';

/** The folders and files of one run (contract, section 3). Everything lies in one folder that is removed afterwards. */
export interface RunFolder {
  root: string;
  /** Working folder of the program. */
  work: string;
  tmp: string;
  artifacts: string;
  output: string;
  progress: string;
  summary: string;
  checkpointIn: string;
  checkpointOut: string;
  retryAfter: string;
  question: string;
}

/**
 * Makes the folder of a run, fresh.
 * @throws RangeError where the run id could lead out of `workDir`; what the disk says
 */
export async function makeRunFolder(workDir: string, assignment: Assignment): Promise<RunFolder> {
  if (!/^[a-z0-9]+$/i.test(assignment.runId)) throw new RangeError('the run id is not one');
  const root = join(workDir, assignment.runId);
  const folder: RunFolder = {
    root,
    work: join(root, 'work'),
    tmp: join(root, 'tmp'),
    artifacts: join(root, 'artifacts'),
    output: join(root, 'output'),
    progress: join(root, 'progress'),
    summary: join(root, 'summary'),
    checkpointIn: join(root, 'checkpoint-in.json'),
    checkpointOut: join(root, CHECKPOINT_OUT),
    retryAfter: join(root, 'retry-after'),
    question: join(root, 'question'),
  };
  await removeRunFolder(root);
  await mkdir(root, { recursive: true, mode: 0o700 });
  await Promise.all([folder.work, folder.tmp, folder.artifacts].map((path) => mkdir(path, { mode: 0o700 })));
  if (assignment.checkpoint !== undefined) await writeFile(folder.checkpointIn, JSON.stringify(assignment.checkpoint));
  return folder;
}

/** What everything that a run starts has in its environment, and nothing else on this machine (`RunMark`). @param root of its folder */
export function runVariable(root: string): string {
  return `ERRAND_OUTPUT=${join(root, 'output')}`;
}

export async function removeRunFolder(root: string): Promise<void> {
  await rm(root, { recursive: true, force: true, maxRetries: 3 });
}

/** The environment of a program: little of the agent's own, the template's, the run variables, secrets. Later ones win. */
export function programEnvironment(
  folder: RunFolder,
  assignment: Assignment,
  templateEnv: Readonly<Record<string, string>>,
  secrets: ReadonlyMap<string, string>,
): Record<string, string> {
  return {
    ...inherited(),
    TMPDIR: folder.tmp,
    ...templateEnv,
    ...Object.fromEntries(secrets),
    ...argumentVariables(assignment.args ?? {}),
    ERRAND_TASK_ID: assignment.taskId,
    ERRAND_RUN_ID: assignment.runId,
    ERRAND_ATTEMPT: String(assignment.attempt),
    ERRAND_IDEMPOTENCY_KEY: assignment.idempotencyKey ?? '',
    ERRAND_OUTPUT: folder.output,
    ERRAND_PROGRESS: folder.progress,
    ERRAND_SUMMARY: folder.summary,
    ERRAND_CHECKPOINT_IN: folder.checkpointIn,
    ERRAND_CHECKPOINT_OUT: folder.checkpointOut,
    ERRAND_CHECKPOINT_VERSION: String(assignment.checkpointVersion ?? 0),
    ERRAND_RETRY_AFTER: folder.retryAfter,
    ERRAND_QUESTION: folder.question,
    ERRAND_ARTIFACTS: folder.artifacts,
  };
}

/**
 * The first megabyte of a file a program wrote, or undefined where there is none. Only a plain file is opened: a pipe would block, a
 * link could point anywhere.
 */
export async function readProgramFile(path: string): Promise<Buffer | undefined> {
  const file = await openPlain(path);
  if (!file) return undefined;
  try {
    return await readFrom(file, 0, Math.min((await file.stat()).size, READ_BYTES));
  } finally {
    await file.close();
  }
}

/** A plain file, opened for reading; undefined for anything else. The caller closes it. */
export async function openPlain(path: string): Promise<FileHandle | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    () => undefined,
  );
  if (!file || (await file.stat()).isFile()) return file;
  await file.close();
  return undefined;
}

async function readFrom(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  const { bytesRead } = await file.read(bytes, 0, length, from);
  return bytes.subarray(0, bytesRead);
}

/**
 * The text of the end of such a file, from the first line that begins within the last `TAIL_BYTES`: however much a program writes, no
 * more is read.
 */
export async function readProgramTail(path: string): Promise<string | undefined> {
  const file = await openPlain(path);
  if (!file) return undefined;
  try {
    const { size } = await file.stat();
    // One byte more tells whether the first line is a whole one.
    const from = Math.max(0, size - TAIL_BYTES - 1);
    const bytes = await readFrom(file, from, size - from);
    const start = from === 0 ? 0 : bytes.indexOf(0x0a) + 1;
    return from > 0 && start === 0 ? undefined : bytes.subarray(start).toString('utf8').replaceAll('\0', '');
  } finally {
    await file.close();
  }
}

/** Readable text of such a file. */
export async function readProgramText(path: string): Promise<string | undefined> {
  const bytes = await readProgramFile(path);
  return bytes?.toString('utf8').replaceAll('\0', '');
}

export interface ParsedOutputs {
  outputs: Record<string, string>;
  /** What was left out and why, one sentence each. */
  complaints: string[];
}

/** Lines `key=value`; the last of several wins; too long values are cut. */
export function parseOutputs(text: string): ParsedOutputs {
  const outputs: Record<string, string> = {};
  const complaints: string[] = [];
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (line.trim() === '') continue;
    const match = /^(?!__proto__=)([A-Za-z_][A-Za-z0-9_.-]{0,63})=(.*)$/.exec(line);
    if (!match) complaints.push(`ERRAND_OUTPUT line ${index + 1} is not key=value; it was left out`);
    else if (!(match[1]! in outputs) && Object.keys(outputs).length >= MAX_OUTPUTS) {
      complaints.push(`ERRAND_OUTPUT has more than ${MAX_OUTPUTS} keys; ${match[1]} was left out`);
    } else {
      const value = match[2]!;
      outputs[match[1]!] = clip(value, WIRE_LIMITS.output);
      if (value.length > WIRE_LIMITS.output)
        complaints.push(`ERRAND_OUTPUT ${match[1]} was cut to ${WIRE_LIMITS.output} characters`);
    }
  }
  return { outputs, complaints: complaints.slice(0, 20) };
}

export interface ParsedProgress {
  percent?: number;
  message?: string;
}

/** A line `42 message`, `42%`, or only a message; undefined for an empty one. Percentages are brought into 0 to 100. */
export function parseProgress(line: string): ParsedProgress | undefined {
  const text = line.trim();
  if (text === '') return undefined;
  const match = /^(\d{1,9}(?:\.\d{1,9})?)%?(?:\s+(.*))?$/.exec(text);
  if (!match) return { message: clip(text, WIRE_LIMITS.message) };
  return { percent: Math.min(100, Number(match[1])), message: match[2] && clip(match[2], WIRE_LIMITS.message) };
}

/** Without these, ordinary programs do not start or print garbage; the rest of the agent's environment is nobody's business. */
function inherited(): Record<string, string> {
  const names = ['PATH', 'HOME', 'LANG', 'TZ', 'TMPDIR'];
  if (process.platform === 'win32') names.push('SystemRoot', 'PATHEXT', 'COMSPEC', 'TEMP', 'TMP', 'USERPROFILE');
  const out: Record<string, string> = {};
  for (const name of names) {
    const value = process.env[name];
    if (value !== undefined) out[name] = value;
  }
  return out;
}

function argumentVariables(args: Readonly<Record<string, ArgValue>>): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(args)) {
    out[`ERRAND_ARG_${name.toUpperCase().replace(/[^A-Z0-9_]/g, '_')}`] = String(value);
  }
  out.ERRAND_ARGS_JSON = JSON.stringify(args);
  return out;
}
