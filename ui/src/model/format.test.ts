import { expect, test } from "vitest";
import { bytes, count, duration, exact, kindWords, messageParts, percent, printable, relative, shellQuoted, shortened } from "./format";

test("durations have the largest unit that fits", () => {
  expect([0, 59_999, 60_000, 7_200_000, 172_800_000].map(duration)).toEqual(["0 s", "59 s", "1 min", "2 h", "2 d"]);
});

test("times are relative, also to come", () => {
  expect(relative(0, 240_000)).toBe("4 min ago");
  expect(relative(120_000, 0)).toBe("in 2 min");
  expect(relative(5, 0)).toBe("just now");
  expect(exact(1_794_744_000_000, "UTC")).toBe("2026-11-15 12:00:00");
});

test("numbers have units, and unknown is not zero", () => {
  expect([bytes(null), bytes(0), bytes(1536), bytes(200 * 1024)]).toEqual(["–", "0 B", "1.5 KiB", "200 KiB"]);
  expect([count(null), count(1234567)]).toEqual(["–", "1,234,567"]);
});

test("nearly all is not all", () => {
  expect([percent(null), percent(0.9999), percent(1), percent(0.217)]).toEqual(["unknown", "99.9 %", "100 %", "21.7 %"]);
});

test("characters that cannot be seen, or that turn the line around, are escaped", () => {
  expect(printable("a\u202eb\u0000c\n\u200b")).toBe("a\\u{202e}b\\u{0}c\\u{a}\\u{200b}");
  expect(printable("größe 😀 <b>")).toBe("größe 😀 <b>");
});

test("a long name keeps its beginning and its end, and costs little", () => {
  expect(shortened("abcdefghij", 5)).toBe("abc…j");
  expect(shortened("short", 5)).toBe("short");
  expect([...shortened("x".repeat(32_768), 34)]).toHaveLength(34);
});

test("a name is one argument of a shell", () => {
  expect(shellQuoted("orders-app.v1")).toBe("orders-app.v1");
  expect(shellQuoted("a b; rm -rf '/'")).toBe("'a b; rm -rf '\\''/'\\'''");
  expect(shellQuoted("a\nb'")).toBe("$'a\\x0ab\\''");
  expect(shellQuoted("")).toBe("''");
});

test("plurals of kinds", () => {
  expect(["topic", "spark", "unattributed"].map(kindWords)).toEqual(["topics", "Spark queries", "unattributed clients"]);
});

test("a message of the server has its commands as code, and ends as a sentence", () => {
  expect(messageParts("no table yet: `headgate pipeline run` creates it")).toEqual([
    { text: "no table yet: ", isCode: false },
    { text: "headgate pipeline run", isCode: true },
    { text: " creates it.", isCode: false },
  ]);
  expect(messageParts("It ended. ")).toEqual([{ text: "It ended.", isCode: false }]);
  expect(messageParts("one ` alone\u202e")).toEqual([{ text: "one ` alone\\u{202e}.", isCode: false }]);
});
