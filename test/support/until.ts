/**
 * Waits until `condition` answers something truthy and answers that. Polls every few milliseconds; what it waits for decides,
 * the limit only turns a hang into a failure that says what was waited for.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  what = 'the condition',
  limitMs = 30_000,
): Promise<NonNullable<Exclude<T, false>>> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const value = await condition();
    if (value) return value as NonNullable<Exclude<T, false>>;
    if (performance.now() > deadline) throw new Error(`gave up waiting for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
