import { Pool } from 'undici';
import { AppError, ERROR_CODES, type ErrorCode } from '../errors.ts';
import type { Submission, Submitted } from '../flows/submit.ts';
import { postText, type TextAnswer } from '../http-call.ts';

export interface SubmitClientOptions {
  /** The gateway, for example `http://127.0.0.1:8787`. */
  url: string;
  /** The admin token. */
  token: string;
}

/** Submissions of one request. */
const BATCH_LIMIT = 500;
/** While little is under way a further request is opened at once; under load one at a time carries what came meanwhile. */
const MAX_REQUESTS = 4;
const FEW_SUBMISSIONS = 8;

/**
 * Submits tasks over HTTP. Submissions that are made while requests are under way share the next request, so that a program with
 * many of them in flight pays for few round trips; each still gets its own answer, and a bad one does not harm its neighbours.
 */
export class SubmitClient {
  readonly #pool: Pool;
  readonly #origin: string;
  readonly #headers: Record<string, string>;
  #waiting: Waiting[] = [];
  #requests = 0;
  #underWay = 0;
  #scheduled = false;

  constructor(options: SubmitClientOptions) {
    this.#origin = new URL(options.url).origin;
    this.#pool = new Pool(options.url, { connections: MAX_REQUESTS, pipelining: 1 });
    this.#headers = { authorization: `Bearer ${options.token}`, 'content-type': 'application/json' };
  }

  /** Resolves when the task is durable. @throws AppError as the gateway says, `unreachable` without an answer */
  submit(submission: Submission): Promise<Submitted> {
    // Requests are shared: an index would name somebody else's task.
    if (submission.needs?.some((on) => typeof on === 'number'))
      return Promise.reject(
        new AppError('invalid_request', 'needs: name tasks by their ids here; a graph is submitted as a whole', {
          field: 'needs',
        }),
      );
    return new Promise((resolve, reject) => {
      this.#waiting.push({ submission, resolve, reject });
      this.#schedule();
    });
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** What is submitted in the same turn goes along. */
  #schedule(): void {
    if (this.#scheduled || !this.#mayOpenRequest()) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      void this.#send();
    });
  }

  #mayOpenRequest(): boolean {
    return this.#requests === 0 || (this.#requests < MAX_REQUESTS && this.#underWay < FEW_SUBMISSIONS);
  }

  async #send(): Promise<void> {
    const batch = this.#waiting.splice(0, BATCH_LIMIT);
    if (batch.length === 0) return;
    this.#requests += 1;
    this.#underWay += batch.length;
    await this.#settle(batch);
    this.#requests -= 1;
    this.#underWay -= batch.length;
    if (this.#waiting.length > 0) this.#schedule();
  }

  async #settle(batch: readonly Waiting[]): Promise<void> {
    try {
      const answers = await this.#post(batch.map((item) => item.submission));
      for (const [index, item] of batch.entries()) item.resolve(answers[index]!);
    } catch (error) {
      // A batch is all or nothing: after a refusal each goes alone, so that only the bad one fails.
      if (batch.length > 1 && error instanceof AppError && error.status < 500)
        for (const item of batch) await this.#settle([item]);
      else for (const item of batch) item.reject(error);
    }
  }

  async #post(submissions: readonly Submission[]): Promise<Submitted[]> {
    const single = submissions.length === 1;
    const body = JSON.stringify(single ? submissions[0] : submissions);
    const path = single ? '/api/tasks' : '/api/tasks/batch';
    const { status, text } = await this.#call(path, body);
    const answer = JSON.parse(text) as Submitted & {
      tasks: Submitted[];
      code?: string;
      detail?: string;
      field?: string;
    };
    if (status >= 400) throw refusal(answer);
    return single ? [answer] : answer.tasks;
  }

  async #call(path: string, body: string): Promise<TextAnswer> {
    try {
      return await postText(this.#pool, { origin: this.#origin, path, headers: this.#headers, body });
    } catch (error) {
      throw new AppError('unreachable', 'the gateway did not answer; the tasks may or may not have been created', {
        cause: error,
      });
    }
  }
}

interface Waiting {
  submission: Submission;
  resolve(answer: Submitted): void;
  reject(error: unknown): void;
}

function refusal({ code, detail, field }: { code?: string; detail?: string; field?: string }): AppError {
  const known: ErrorCode = code !== undefined && Object.hasOwn(ERROR_CODES, code) ? (code as ErrorCode) : 'internal';
  return new AppError(known, detail ?? 'the gateway refused', field === undefined ? {} : { field });
}
