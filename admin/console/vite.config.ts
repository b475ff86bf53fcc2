import { defineConfig } from "vite";

// The names of the built files are fixed, so that a change of the sources shows as a change of the same files.
export default defineConfig({
  base: "/console/",
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy allows no data: URL but images
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: {
        entryFileNames: "console.js",
        chunkFileNames: "console-[name].js",
        assetFileNames: "console[extname]",
      },
    },
  },
});
