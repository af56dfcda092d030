// Small line drawings, 16 units square.

import { s } from "./dom.js";

const PATHS = {
  brand: "M8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6 5 5M11 11l1.4 1.4M3.6 12.4 5 11M11 5l1.4-1.4M8 4.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6zM6.5 6.4 9.3 8l-2.8 1.6z",
  overview: "M2 13.5h12M3.5 11V7.5M6.5 11V4M9.5 11V6M12.5 11V2.5",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  queues: "M2.5 3h11v3h-11zM2.5 10h11v3h-11zM8 6v4",
  recurring: "M13 5.5A5.6 5.6 0 1 0 13.6 8M13.5 2.5v3.2h-3.2M8 5v3.2l2 1.3",
  batches: "M8 2l6 3-6 3-6-3zM2 8l6 3 6-3M2 11l6 3 6-3",
  cluster: "M8 2.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6zM3.3 10.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6zM12.7 10.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6zM7.1 5.6 4.2 10.4M8.9 5.6l2.9 4.8M5.1 12h5.8",
  help: "M5.8 6a2.2 2.2 0 1 1 3.2 2c-.7.4-1 .8-1 1.6M8 12.2v.1",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  warn: "M8 2.2 14.5 13.5h-13zM8 6.5v3.3M8 11.7v.1",
  pending: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3l2 1.5",
  blocked: "M4 7.5h8v6H4zM5.5 7.5V5.2a2.5 2.5 0 0 1 5 0v2.3",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  running: "M5 3.2v9.6L12.8 8z",
  succeeded: "M2.8 8.6 6.4 12l6.8-8",
  failed: "M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM4.2 4.2l7.6 7.6",
  lead: "M3 12.5h10M3 10.5 2.2 4.5 5.5 7 8 3l2.5 4 3.3-2.5-.8 6z",
  dead: "M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4",
  other: "M8 7.9v.2M4 7.9v.2M12 7.9v.2",
};

/** Creates a decorative icon, which is hidden from screen readers. */
export function icon(name) {
  const path = s("path", {
    d: PATHS[name] ?? PATHS.other,
    fill: name === "running" ? "currentColor" : "none",
    stroke: "currentColor",
    "stroke-width": ["succeeded", "failed", "paused", "dead", "other"].includes(name) ? 2.2 : 1.5,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
  });
  return s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, path);
}
