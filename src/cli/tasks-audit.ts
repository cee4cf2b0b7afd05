import type { Command } from 'commander';
import type { Act, Context } from './context.ts';
import { localTime, printable, table } from './table.ts';

interface Finding {
  code: string;
  kind: string;
  id: string;
  taskId?: string;
  since?: number;
  problem: string;
  advice: string;
}

type Fixed = Finding & { did: string };

/** `errand tasks audit` */
export function auditCommand(tasks: Command, act: Act): void {
  tasks
    .command('audit')
    .description('look for what is stuck or inconsistent; with --fix, put right what needs no person')
    .option('--fix', 'fix what can be fixed, and say what was done')
    .option('--stale <duration>', 'how long something must have been due to count as stuck (default 10m)')
    .addHelpText(
      'after',
      '\nExit codes: 0 nothing found, or all of it fixed; 1 something is left.\n\nExamples:\n  errand tasks audit\n  errand tasks audit --fix --json',
    )
    .action(act(audit));
}

async function audit(context: Context, options: { fix?: true; stale?: string }): Promise<number> {
  return options.fix ? fix(context, options.stale) : find(context, options.stale);
}

async function find({ api, show }: Context, stale: string | undefined): Promise<number> {
  const report = await api().get<{ findings: Finding[]; more: boolean }>('/api/tasks/audit', { stale });
  show(report, () => [listOf(report.findings), ...moreOf(report.more)].join('\n'));
  return report.findings.length === 0 ? 0 : 1;
}

async function fix({ api, show }: Context, stale: string | undefined): Promise<number> {
  const query = stale === undefined ? '' : `?stale=${encodeURIComponent(stale)}`;
  const report = await api().post<{ fixed: Fixed[]; left: Finding[]; more: boolean }>(`/api/tasks/audit/fix${query}`);
  show(report, () =>
    [
      ...report.fixed.map(({ code, kind, id, did }) => printable(`Fixed ${code}, ${kind} ${id}: ${did}.`)),
      report.left.length === 0 ? 'Nothing is left.' : `Left:\n${listOf(report.left)}`,
      ...moreOf(report.more),
    ].join('\n'),
  );
  return report.left.length === 0 ? 0 : 1;
}

function listOf(findings: readonly Finding[]): string {
  const rows = findings.map(({ code, kind, id, since, problem, advice }) => [
    code,
    `${kind} ${id}`,
    localTime(since),
    problem,
    advice,
  ]);
  return table(['CODE', 'WHAT', 'SINCE', 'PROBLEM', 'ADVICE'], rows, 'Nothing found.');
}

const moreOf = (more: boolean): string[] => (more ? ['There is more of at least one code.'] : []);
