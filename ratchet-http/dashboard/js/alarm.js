// The red line above every page, shown while jobs are due and no node is live.

import { now, time } from "./clock.js";
import { h, put } from "./dom.js";
import { icon } from "./icons.js";
import { way } from "./router.js";

const line = document.getElementById("alarm");

/** Shows or hides the line, depending on the overview or a tick. */
export function alarm({ nothing_runs: nothing, oldest_due_ms: overdue }) {
  if (line.hidden === !nothing) return;
  const since = new Date(now() - (overdue ?? 0)).toISOString();
  put(line, nothing ? [
    icon("warn"), h("span", { role: "alert" }, "No node is live, so no job runs."),
    h("span", null, "The oldest job became due ", time(since), "."),
    h("a", { href: way(["cluster"]) }, "The nodes"),
  ] : null);
  line.hidden = !nothing;
}
