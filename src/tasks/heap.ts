/** A binary heap: the item with the smallest number first. */
export class Heap<T> {
  readonly #items: { at: number; item: T }[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The smallest number; infinity when empty. */
  get first(): number {
    return this.#items[0]?.at ?? Number.POSITIVE_INFINITY;
  }

  push(at: number, item: T): void {
    const items = this.#items;
    let index = items.length;
    items.push({ at, item });
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (items[parent]!.at <= at) break;
      items[index] = items[parent]!;
      index = parent;
    }
    items[index] = { at, item };
  }

  pop(): T | undefined {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    if (top === undefined || last === undefined || items.length === 0) return top?.item;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && items[child + 1]!.at < items[child]!.at) child += 1;
      if (items[child]!.at >= last.at) break;
      items[index] = items[child]!;
      index = child;
    }
    items[index] = last;
    return top.item;
  }
}
