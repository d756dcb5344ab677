/// <reference types="vitest/config" />
import { defineConfig } from "vite";

// `headgate web` serves the result with `script-src 'self'`: nothing may be inlined, neither scripts nor data: URLs.
export default defineConfig({
  esbuild: { jsx: "automatic" },
  build: {
    outDir: "../src/headgate/web/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000, // elkjs, which only its worker loads
    target: "es2022",
    rollupOptions: {
      onwarn: (warning, warn) => {
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning); // "use client" means nothing here
      },
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8080" } },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
