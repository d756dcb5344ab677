/** The address of the gateway for the commands of all views: asked for once, and again each minute. */

import { createContext, type ReactNode, useContext } from "react";
import { useResource } from "../api/use_resource";
import { ANY_GATEWAY, gatewayFor } from "../model/commands";

const Gateway = createContext(ANY_GATEWAY);

export function GatewayProvider({ children }: { children: ReactNode }) {
  const found = useResource<{ gateway: string }>("operator", 60_000);
  return <Gateway.Provider value={gatewayFor(found.state === "ready" ? found.data.gateway : null, window.location.hostname)}>{children}</Gateway.Provider>;
}

export function useGateway(): string {
  return useContext(Gateway);
}
