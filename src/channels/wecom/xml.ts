import { XMLParser } from 'fast-xml-parser';

/** The fields directly under `<xml>`; those with fields of their own, and those given twice, are not texts. */
export interface XmlFields {
  /** The text of a field; undefined when it is absent or not a single text. */
  text(name: string): string | undefined;
}

/**
 * Values stay texts: `007` and 64-bit ids keep every digit, CDATA is verbatim. Entities outside CDATA are decoded once;
 * there are none but the predefined, because a document type is refused before parsing.
 */
const parser = new XMLParser({
  ignoreAttributes: true,
  parseTagValue: false,
  parseAttributeValue: false,
  trimValues: false,
  processEntities: true,
  htmlEntities: true,
});

const CDATA = /<!\[CDATA\[[\s\S]*?\]\]>/g;
/** A document type, an entity, a comment: WeCom writes none of them. */
const DECLARATION = /<!(?!\[CDATA\[)/;
/** XML 1.0, section 2.2: these cannot stand in a document; garbled plaintext has them. */
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/;

/** The envelope as it came from the network: it holds base64, so a declaration anywhere is an attack. Undefined: refused. */
export function parseOuterXml(xml: string): XmlFields | undefined {
  return DECLARATION.test(xml) ? undefined : parse(xml);
}

/** The decrypted message: a person may have written `<!DOCTYPE`, which then stands in CDATA. Undefined: refused. */
export function parseInnerXml(xml: string): XmlFields | undefined {
  return DECLARATION.test(xml.replace(CDATA, '')) ? undefined : parse(xml);
}

function parse(xml: string): XmlFields | undefined {
  if (FORBIDDEN.test(xml)) return undefined;
  try {
    const root = (parser.parse(xml, true) as Record<string, unknown>).xml;
    if (root === null || typeof root !== 'object' || Array.isArray(root)) return undefined;
    const fields = new Map(Object.entries(root));
    return {
      text: (name) => {
        const value: unknown = fields.get(name);
        return typeof value === 'string' ? value : undefined;
      },
    };
  } catch {
    return undefined;
  }
}
