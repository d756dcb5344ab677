import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import "@xyflow/react/dist/base.css";
import "./styles/colours.css";
import "./styles/page.css";
import "./styles/map.css";
import "./styles/actions.css";
import "./styles/views.css";
import "./styles/letters.css";
import { startLive } from "./live/stream";
import { App } from "./shell/app";
import { GatewayProvider } from "./shell/gateway";
import { ClockProvider } from "./shell/parts";
import { applyTheme } from "./shell/theme";

applyTheme();
startLive();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
const root = document.getElementById("page");
if (root !== null) {
  createRoot(root).render(
    <StrictMode>
      <ClockProvider>
        <GatewayProvider>
          <App />
        </GatewayProvider>
      </ClockProvider>
    </StrictMode>,
  );
}
