import { expect, test } from "vitest";
import { searchKeys } from "./keys";

test("the key of Apple's keyboards is named on these alone", () => {
  expect(["MacIntel", "iPhone", "Linux x86_64", "Win32", ""].map(searchKeys)).toEqual(["⌘K", "⌘K", "Ctrl K", "Ctrl K", "Ctrl K"]);
});
