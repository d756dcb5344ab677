/** Command lines that do what the page says, at the gateway of this server. `gateway` is what `gatewayFor` has found. */

import { shellQuoted } from "./format";

/** Stands for the gateway's address where it is not known. */
export const ANY_GATEWAY = "HOST:PORT";

/** The address as an argument; that of the server's own machine is of use on this machine only. */
export function gatewayFor(address: string | null, pageHost: string): string {
  if (address === null || (isLoopback(address.replace(/:\d+$/, "")) && !isLoopback(pageHost))) return ANY_GATEWAY;
  return /^\[[0-9a-f:]+\]:\d+$/i.test(address) ? address : shellQuoted(address);
}

function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d+){3}|\[?::1\]?)$/i.test(host);
}

export function operationCommand(operation: "pause" | "resume", group: string, gateway: string, reason = ""): string {
  return `headgate share-groups --bootstrap-server ${gateway} --${operation} --group ${shellQuoted(group)} --reason ${reason === "" ? "REASON" : shellQuoted(reason)}`;
}

export function breakerCommand(group: string, gateway: string): string {
  return `headgate share-groups --bootstrap-server ${gateway} --describe --group ${shellQuoted(group)} --circuit-breaker`;
}

export function tasksCommand(group: string, gateway: string): string {
  return `headgate streams-groups --bootstrap-server ${gateway} --describe --group ${shellQuoted(group)} --tasks`;
}

export function publishCommand(gateway: string): string {
  return `headgate topology publish FILE --group GROUP --bootstrap-server ${gateway}`;
}

/** With Kafka's own tool; `values` are configs of the group and what they become. */
export function groupConfigCommand(group: string, gateway: string, values: Readonly<Record<string, string | number>>): string {
  const added = Object.entries(values).map(([name, value]) => `${name}=${value}`);
  return `kafka-configs.sh --bootstrap-server ${gateway} --alter --entity-type groups --entity-name ${shellQuoted(group)} --add-config ${added.join(",")}`;
}

export function breakerOnCommand(gateway: string): string {
  return groupConfigCommand("GROUP", gateway, { "share.group.dlq.circuit.breaker.enable": "true" });
}

export function readRecordCommand(record: { topic: string; partition: number; offset: number }, gateway: string): string {
  return `kafka-console-consumer.sh --bootstrap-server ${gateway} --topic ${shellQuoted(record.topic)} --partition ${record.partition} --offset ${record.offset} --max-messages 1`;
}
