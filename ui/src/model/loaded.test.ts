import { expect, test } from "vitest";
import { type Loaded, next } from "./loaded";

const READY: Loaded<number> = { state: "ready", data: 1, at: 10, stale: null };
const LOADING: Loaded<number> = { state: "loading" };

function problem(status: number) {
  return { kind: "problem" as const, problem: { status, message: "m" } };
}

test("an answer that is unchanged is as fresh as a new one", () => {
  expect(next(READY, { kind: "unchanged" }, 20)).toEqual({ ...READY, at: 20 });
});

test("a failure keeps what is shown, and says that it is old", () => {
  expect(next(READY, problem(0), 20)).toMatchObject({ state: "ready", data: 1, at: 10, stale: { status: 0 } });
  expect(next(next(READY, problem(503), 20), { kind: "data", data: 2 }, 30)).toEqual({ state: "ready", data: 2, at: 30, stale: null });
});

test("a failure without data is a failure", () => {
  expect(next(LOADING, problem(503), 20).state).toBe("failed");
});

test("what the caller may not see any more is taken away", () => {
  expect(next(READY, problem(401), 20).state).toBe("forbidden");
  expect(next(READY, problem(403), 20).state).toBe("forbidden");
  expect(next(READY, problem(404), 20).state).toBe("absent");
});
