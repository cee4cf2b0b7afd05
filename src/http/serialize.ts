import type { FastifySerializerCompiler } from 'fastify/types/schema.js';
import { serializerCompiler } from 'fastify-type-provider-zod';
import type { z } from 'zod';

const AS_IS = new WeakSet<object>();

/**
 * Marks the schema of an answer that is written without going through it first, which takes a third of the time of a large page. For
 * answers that are built field by field; a test has to hold them against the schema.
 */
export function answeredAsIs<S extends z.ZodType>(schema: S): S {
  AS_IS.add(schema);
  return schema;
}

/** Writes an answer as its schema says: what is not declared is left out, what does not fit is an error of ours. */
export const answerSerializer: FastifySerializerCompiler<unknown> = (route) =>
  AS_IS.has(route.schema as object) ? (answer) => JSON.stringify(answer) : serializerCompiler(route as never);
