/** The key of a message about a task: said once. `said` is what it is within the task's generation. */
export function messageKey({ id, generation }: { id: number; generation: number }, said: string): string {
  return `task:${id}:${generation}:${said}`;
}

/** The generation of the task that a message is about; undefined where the key is none of `messageKey`. */
export function generationIn(key: string | null): number | undefined {
  const found = /^task:\d+:(\d+):/.exec(key ?? '');
  return found ? Number(found[1]) : undefined;
}
