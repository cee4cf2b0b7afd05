/** Anything that runs: `start` resolves when it works, `stop` is idempotent and resolves when nothing of it runs any more. */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** A sleep that ends early when woken or aborted. */
export class Sleeper {
  #wake: (() => void) | undefined;
  #woken = false;

  /** Ends the sleep that is on, or makes the next one return at once. */
  wake(): void {
    this.#woken = true;
    this.#wake?.();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (!this.#woken && !signal?.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.min(ms, MAX_TIMER_MS));
        this.#wake = resolve;
        const onAbort = () => resolve();
        signal?.addEventListener('abort', onAbort, { once: true });
        this.#onEnd = () => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', onAbort);
        };
      });
      this.#onEnd();
    }
    this.#wake = undefined;
    this.#woken = false;
  }

  #onEnd: () => void = () => undefined;
}

/** `setTimeout` is never given more than a day (architecture, section 6). */
const MAX_TIMER_MS = 86_400_000;

export interface PollerOptions {
  /** One round; answers after how many milliseconds the next is due (at the latest; `wake` makes it sooner). */
  runOnce(signal: AbortSignal): Promise<number>;
  /** Called with what `runOnce` threw; answers the pause before the next round. */
  onError(error: unknown, failures: number): number;
}

/** The one loop of the code base: rounds of `runOnce`, each awaited, until stopped. */
export class Poller implements Service {
  readonly #options: PollerOptions;
  readonly #sleeper = new Sleeper();
  #abort: AbortController | undefined;
  #done: Promise<void> = Promise.resolve();

  constructor(options: PollerOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    if (this.#abort) return;
    this.#abort = new AbortController();
    this.#done = this.#loop(this.#abort.signal);
  }

  async stop(): Promise<void> {
    this.#abort?.abort();
    this.#sleeper.wake();
    await this.#done;
    this.#abort = undefined;
  }

  /** The next round starts now instead of when its pause is over. */
  wake(): void {
    this.#sleeper.wake();
  }

  async #loop(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      let pauseMs: number;
      try {
        pauseMs = await this.#options.runOnce(signal);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        pauseMs = this.#options.onError(error, failures);
      }
      if (!signal.aborted) await this.#sleeper.sleep(pauseMs, signal);
    }
  }
}
