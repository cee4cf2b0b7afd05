/** A binary heap: the item with the smallest number first, of equal ones the one that came first. */
export class Heap<T> {
  readonly #items: Entry<T>[] = [];
  #count = 0;

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
    const entry = { at, order: this.#count, item };
    this.#count += 1;
    items.push(entry);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(entry, items[parent]!)) break;
      items[index] = items[parent]!;
      index = parent;
    }
    items[index] = entry;
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
      if (child + 1 < items.length && isBefore(items[child + 1]!, items[child]!)) child += 1;
      if (!isBefore(items[child]!, last)) break;
      items[index] = items[child]!;
      index = child;
    }
    items[index] = last;
    return top.item;
  }
}

interface Entry<T> {
  readonly at: number;
  readonly order: number;
  readonly item: T;
}

function isBefore(a: Entry<unknown>, b: Entry<unknown>): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
