import { describe, expect, it } from "vitest";
import { hexRows, prettyText, readableText, sizeText } from "./record_bytes";

const of = (text: string | null, truncated = false) => ({ size: 5_000, hex: "00".repeat(1_024), text, truncated });

describe("bytes of a record", () => {
  it("are rows of sixteen with their characters", () => {
    expect(hexRows("6f720a" + "41".repeat(14))).toEqual([
      { offset: "00000000", hex: "6f 72 0a 41 41 41 41 41  41 41 41 41 41 41 41 41", characters: "or.AAAAAAAAAAAAA" },
      { offset: "00000010", hex: "41", characters: "A" },
    ]);
    expect(hexRows("")).toEqual([]);
  });

  it("as text keep their lines, and nothing else that cannot be seen", () => {
    expect(readableText("a\tb\nc\u0000\u202e\u001b[31m")).toBe("a\tb\nc\\u{0}\\u{202e}\\u{1b}[31m");
    expect(prettyText(of(null))).toBe(null);
  });

  it("are indented where they are whole JSON, and never with other numbers", () => {
    expect(prettyText(of('{"a":[1]}'))).toBe('{\n  "a": [\n    1\n  ]\n}');
    expect(prettyText(of('{"a":12345678901234567890}'))).toBe('{"a":12345678901234567890}');
    expect(prettyText(of('{"a":', true))).toBe('{"a":');
    expect(prettyText(of("{not json"))).toBe("{not json");
    expect(prettyText(of('{"a":"\\u202e"}'))).toContain("\\u{202e}");
  });

  it("say how many of them are shown", () => {
    expect(sizeText(of("x", true))).toBe("the first 1.0 KiB of 4.9 KiB");
    expect(sizeText({ ...of("x"), size: 12 })).toBe("12 B");
  });
});
