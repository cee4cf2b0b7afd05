import { messageOf } from '../../../errors.ts';
import { canonicalJson } from '../../../ids.ts';
import type { Log } from '../../../log.ts';
import type { Assignment } from '../../protocol.ts';
import { digestOf, type RunContent, specOf } from '../../run-content.ts';
import { CallFailed, type GatewayClient } from '../client.ts';
import { pinsOf } from '../policy.ts';
import type { Job, RunEnd, Runtime } from './runtime.ts';

export interface PinnedOptions {
  /** AGENT_ALLOW. */
  allow: readonly string[];
  client: Pick<GatewayClient, 'post'>;
  /** `"agentId":…,"instanceId":…`, the head of every body. */
  caller: string;
  log: Log;
}

/**
 * Lets a runtime run templates with a pinned digest only as their owner has seen them. The gateway is asked once what such a template
 * consists of; that is believed because its digest is the pinned one, and from then on it, and not what the gateway says, is what runs.
 */
export class PinnedContent {
  readonly #options: PinnedOptions;
  readonly #known = new Map<string, RunContent>();

  constructor(options: PinnedOptions) {
    this.#options = options;
  }

  around(runtime: Runtime): Runtime {
    return {
      run: async (job) => {
        if (pinsOf(this.#options.allow, job.assignment.template) === undefined) return runtime.run(job);
        const checked = await this.#check(job);
        return 'type' in checked ? checked : runtime.run({ ...job, assignment: checked });
      },
    };
  }

  async #check({ assignment, signal }: Job): Promise<Assignment | RunEnd> {
    const known = this.#known.get(assignment.template);
    const same = known && asPinned(assignment, known);
    if (same) return same;
    try {
      const content = await this.#fetch(assignment, signal);
      return typeof content === 'string' ? this.#refused(assignment, content) : this.#match(assignment, content);
    } catch (error) {
      const isPassing = error instanceof CallFailed && error.verdict !== 'refused';
      const sentence = `the gateway did not say what the template ${assignment.template} consists of: ${messageOf(error)}`;
      return { type: 'failed', errorClass: isPassing ? 'transient' : 'permanent', error: sentence.slice(0, 1_000) };
    }
  }

  /** The content with the pinned digest, or why this is another one. */
  async #fetch({ runId, leaseToken, template }: Assignment, signal: AbortSignal): Promise<RunContent | string> {
    const { client, caller, allow } = this.#options;
    const body = `{${caller},${JSON.stringify({ runId, leaseToken }).slice(1)}`;
    const { content } = await client.post<{ content: RunContent }>('/api/agent/template', body, { signal });
    const digest = digestOf(content);
    if (content.id === template && pinsOf(allow, template)?.includes(digest)) return content;
    return `the template ${template} is ${digest} by now, which is not what this agent's owner has pinned (AGENT_ALLOW)`;
  }

  #match(assignment: Assignment, content: RunContent): Assignment | RunEnd {
    this.#known.set(assignment.template, content);
    const same = asPinned(assignment, content);
    if (same) return same;
    return this.#refused(
      assignment,
      `the gateway asks for something else than the pinned template ${assignment.template} says (AGENT_ALLOW)`,
    );
  }

  #refused({ runId, template }: Assignment, error: string): RunEnd {
    this.#options.log.warn('run.refused', { runId, template, refusal: error });
    return { type: 'failed', errorClass: 'permanent', error };
  }
}

/** The assignment with the content's own word for everything it says; undefined where the gateway's differs, or a value does not fit. */
function asPinned(assignment: Assignment, content: RunContent): Assignment | undefined {
  const { args } = assignment;
  if (Object.keys(args).some((name) => !content.args.includes(name))) return undefined;
  try {
    const own = {
      ...{ runtime: content.runtime, spec: specOf(content, args) as unknown },
      ...{ secrets: [...content.secrets], limits: { ...content.limits } },
    };
    const { runtime, spec, secrets, limits } = assignment;
    return canonicalJson(own) === canonicalJson({ runtime, spec, secrets, limits })
      ? { ...assignment, ...own }
      : undefined;
  } catch {
    return undefined;
  }
}
