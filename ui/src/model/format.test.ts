import { expect, test } from "vitest";
import { bytes, count, duration, exact, excerpt, kindWords, messageParts, percent, printable, printableLines, relative, shellQuoted, shortened, unitsKept } from "./format";

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
  expect([excerpt("a\u202e"), excerpt("abcdef", 3)]).toEqual(["a\\u{202e}", "abc…"]);
  expect(printableLines("a\u001b\n\u202eb\r\n")).toBe("a\\u{1b}\n\\u{202e}b\\u{d}\n");
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
  expect(shellQuoted("a\u202eb\u{e0001}c\u0085")).toBe("$'a\\u202eb\\U000e0001c\\u0085'");
  expect(shellQuoted("a\0b")).toBe("'a\\u{0}b'"); // a shell would end the name at the NUL, and mean another one
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

test("no line ends between a number and its unit", () => {
  expect(unitsKept("14 of 24 (39 to 76 %), 20 dead letters in 5 min")).toBe("14 of 24 (39 to 76\u00a0%), 20 dead letters in 5\u00a0min");
  expect(unitsKept("1.5 KiB at 3 schemas")).toBe("1.5\u00a0KiB at 3 schemas");
});
