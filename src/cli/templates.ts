import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { AppError } from '../errors.ts';
import type { Act, Context } from './context.ts';
import { pauseCommands } from './controls.ts';
import { table } from './table.ts';

interface Answer {
  templates: {
    id: string;
    title: { en: string; zh: string };
    args: Record<string, { required: boolean }>;
    pool: string;
    triggers: string[];
    runtime: string;
    secrets: string[];
    timeoutMs: number;
    runDigest: string;
  }[];
  problems: { file: string; line: number; column: number; field: string; message: string }[];
}

/** `errand templates …` */
export function templatesCommands(program: Command, act: Act): void {
  const templates = program.command('templates').description('templates: what can be asked for');
  templates
    .command('list')
    .description('list the templates of the running gateway')
    .addHelpText('after', '\nExample:\n  errand templates list')
    .action(act(list));
  templates
    .command('show <template>')
    .description('one template, with the digest that an agent may pin in AGENT_ALLOW')
    .addHelpText('after', '\nExample:\n  errand templates show hello')
    .action(act(showOne));
  pauseCommands(templates, act, 'template');
  templates
    .command('check [folder]')
    .description(
      'check template files; needs no gateway (default: ERRAND_TEMPLATES_DIR, else ./templates, else the packaged examples)',
    )
    .addHelpText('after', '\nExample:\n  errand templates check templates')
    .action(act(check));
}

async function list({ api, show }: Context): Promise<void> {
  const answer = await api().get<Answer>('/api/templates');
  show(answer, () => {
    const rows = answer.templates.map(({ id, title, args, pool, triggers, runDigest }) => [
      id,
      titleOf(title),
      argsText(args),
      pool,
      triggers.join(' | '),
      runDigest,
    ]);
    const wrong = answer.problems.map(
      ({ file, line, column, field, message }) =>
        `${file}:${line}:${column}: ${field === '' ? '' : `${field}: `}${message}`,
    );
    return [
      table(['TEMPLATE', 'TITLE', 'ARGUMENTS', 'POOL', 'TRIGGERS', 'DIGEST'], rows, 'No templates.'),
      ...wrong,
    ].join('\n');
  });
}

async function showOne({ api, show }: Context, id: string): Promise<void> {
  const answer = await api().get<Answer>('/api/templates');
  const template = answer.templates.find((one) => one.id === id);
  if (!template) throw new AppError('not_found', `there is no template ${JSON.stringify(id)}`);
  show(template, () => {
    const { title, runtime, pool, args, triggers, secrets, timeoutMs, runDigest } = template;
    const lines = [
      ['Title', titleOf(title)],
      ['Runtime', runtime],
      ['Pool', pool],
      ['Arguments', argsText(args)],
      ['Triggers', triggers.join(' | ')],
      ['Secrets', secrets.join(', ')],
      ['Timeout', `${timeoutMs / 1_000} s`],
      ['Pin', `${id}@${runDigest}`],
    ] as const;
    return lines.map(([name, value]) => `${name.padEnd(10)} ${value === '' ? '-' : value}`).join('\n');
  });
}

function titleOf({ en, zh }: { en: string; zh: string }): string {
  return en === zh ? en : `${en} / ${zh}`;
}

function argsText(args: Answer['templates'][number]['args']): string {
  return Object.entries(args)
    .map(([name, { required }]) => (required ? name : `[${name}]`))
    .join(' ');
}

async function check({ io, env, show }: Context, folder?: string): Promise<void> {
  const { loadTemplates, packagedTemplatesDir, problemText } = await import('../flows/templates.ts');
  const own = join(io.cwd, 'templates');
  const dir = folder ?? env.ERRAND_TEMPLATES_DIR?.trim();
  const chosen = dir ? resolve(io.cwd, dir) : existsSync(own) ? own : packagedTemplatesDir();
  const registry = await loadTemplates(chosen);
  const problems = registry.problems();
  if (problems.length > 0)
    throw new AppError('invalid_config', problems.map(problemText).join('\n'), { field: problems[0]!.field });
  const ids = registry.list().map(({ id }) => id);
  show({ folder: chosen, templates: ids }, () => `${ids.length} templates in ${chosen} are fine: ${ids.join(', ')}`);
}
