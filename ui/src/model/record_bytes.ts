/** Bytes of a record for reading: rows of sixteen in hex beside their characters, and text with escapes. */

import type { RecordBytes } from "../api/replay_shapes";
import { bytes } from "./format";

const ROW = 16;

export interface HexRow {
  offset: string;
  hex: string;
  characters: string;
}

/** As `hexdump -C` has it: what is not printable ASCII is a dot. */
export function hexRows(hex: string): HexRow[] {
  const rows: HexRow[] = [];
  const pairs = hex.match(/[0-9a-f]{2}/gi) ?? [];
  for (let first = 0; first < pairs.length; first += ROW) {
    const row = pairs.slice(first, first + ROW);
    const characters = row.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : ".";
    });
    rows.push({
      offset: first.toString(16).padStart(8, "0"),
      hex: `${row.slice(0, 8).join(" ")}  ${row.slice(8).join(" ")}`.trimEnd(),
      characters: characters.join(""),
    });
  }
  return rows;
}

/** Line ends and tabs stay; everything else that cannot be seen, or that changes the direction of a line, is an escape. */
export function readableText(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (one) => (one === "\n" || one === "\t" ? one : `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`));
}

/** JSON with indents, for reading; any other text as it is. What was cut off is never JSON. */
export function prettyText(content: RecordBytes): string | null {
  if (content.text === null) return null;
  if (!content.truncated && /^\s*[[{]/.test(content.text)) {
    try {
      // Numbers with more digits than a double has would be shown as others.
      if (!/\d{16}/.test(content.text)) return readableText(JSON.stringify(JSON.parse(content.text), null, 2));
    } catch {
      // no JSON
    }
  }
  return readableText(content.text);
}

export function sizeText(content: RecordBytes): string {
  return content.truncated ? `the first ${bytes(content.hex.length / 2)} of ${bytes(content.size)}` : bytes(content.size);
}
