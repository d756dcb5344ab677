import { expect, test } from "vitest";
import { ANY_GATEWAY, breakerOnCommand, gatewayFor, operationCommand, publishCommand, readRecordCommand, tasksCommand } from "./commands";

test("commands can be pasted: they have the gateway's address and quoted names", () => {
  const gateway = "gateway.example:9092";
  expect(operationCommand("resume", "bill ing", gateway)).toBe("headgate share-groups --bootstrap-server gateway.example:9092 --resume --group 'bill ing' --reason REASON");
  expect(operationCommand("pause", "billing", gateway, "it's away")).toBe(
    "headgate share-groups --bootstrap-server gateway.example:9092 --pause --group billing --reason 'it'\\''s away'",
  );
  expect(tasksCommand("a b", gateway)).toBe("headgate streams-groups --bootstrap-server gateway.example:9092 --describe --group 'a b' --tasks");
  expect(publishCommand(gateway)).toBe("headgate topology publish FILE --group GROUP --bootstrap-server gateway.example:9092");
  expect(readRecordCommand({ topic: "orders", partition: 3, offset: 41 }, gateway)).toBe(
    "kafka-console-consumer.sh --bootstrap-server gateway.example:9092 --topic orders --partition 3 --offset 41 --max-messages 1",
  );
  expect(breakerOnCommand(gateway)).toContain("--bootstrap-server gateway.example:9092 ");
});

test("an address of the server's own machine is shown only there", () => {
  expect(gatewayFor("127.0.0.1:9092", "127.0.0.1")).toBe("127.0.0.1:9092");
  expect(gatewayFor("[::1]:9092", "localhost")).toBe("[::1]:9092");
  expect(gatewayFor("127.0.0.1:9092", "headgate.example")).toBe(ANY_GATEWAY);
  expect(gatewayFor("gateway.example:9092", "headgate.example")).toBe("gateway.example:9092");
  expect(gatewayFor(null, "localhost")).toBe(ANY_GATEWAY);
  expect(gatewayFor("a;b:1", "localhost")).toBe("'a;b:1'");
});
