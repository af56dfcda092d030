// Formats numbers, durations and times, always with their unit.

import { unturned } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Formats a number: 12,345. */
export function number(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** Formats a number in short: 12.3K. Callers show the full number in a tooltip. */
export function compact(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10000 ? whole.format(value) : short.format(value);
}

/** Formats a number with its significant digits: 0, 0.4, 12.3, 1,234. */
export function decimal(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.01) return "<0.01";
  return value.toLocaleString("en", { maximumFractionDigits: size < 1 ? 2 : size < 100 ? 1 : 0 });
}

/** Formats a duration in milliseconds: 850 ms, 12.3 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1000) return `${ms < 10 ? decimal(ms) : Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0).replace(/\.0$/, "")} s`;
  const seconds = Math.round(ms / 1000);
  return two([[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]], seconds);
}

function two(units, seconds) {
  const first = units.findIndex(([size]) => seconds >= size);
  const [size, name] = units[first];
  const head = `${whole.format(Math.floor(seconds / size))} ${name}`;
  const next = units[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return rest > 0 ? `${head} ${rest} ${next[1]}` : head;
}

/** Formats a duration as one number, for axes: 2.5 min. */
export function oneUnit(ms) {
  if (ms === 0) return "0";
  const [size, name] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]].find(([one]) => ms >= one) ?? [1, "ms"];
  return `${decimal(ms / size)} ${name}`;
}

/** Formats a duration in its largest unit: 20 s, 3 min, 2 h, 4 d. */
function rough(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${whole.format(Math.floor(seconds / 86_400))} d`;
}

/** Formats a time relative to now: "20 s ago", "in 3 min", "now". */
export function relative(at, now) {
  const distance = Date.parse(at) - now;
  if (!Number.isFinite(distance)) return String(at);
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `in ${rough(distance)}` : `${rough(-distance)} ago`;
}

/** Formats a time: "2026-11-22 11:20:31.123 UTC", followed by the local time. */
export function absolute(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const utc = `${date.toISOString().replace("T", " ").replace("Z", "")} UTC`;
  return `${utc}\n${date.toLocaleString()} here`;
}

/** Formats the local time of day, for axes: "11:20:31". */
export function hour(millis, withSeconds) {
  return new Date(millis).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined });
}

/** Formats a size in bytes: 1.5 GiB. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(size < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Returns the end of an id, which tells ids apart: they begin with a time, so their beginnings are alike. */
export function brief(id) {
  const text = String(id);
  return text.length > 12 ? `…${text.slice(-8)}` : text;
}

/** Returns the first line of a text, shortened. */
export function excerpt(text, length = 160) {
  const line = String(text ?? "").split("\n", 1)[0];
  return line.length > length ? `${line.slice(0, length)}…` : line;
}

const MOST_INDENTED = 64;

/** Formats JSON with indentation, unless it is nested so deeply that most of the text would be indentation. */
export function pretty(value) {
  try {
    return unturned(depth(value) <= MOST_INDENTED ? JSON.stringify(value, null, 2) : JSON.stringify(value));
  } catch {
    return "nested too deeply to be shown";
  }
}

function depth(value) {
  let level = [value];
  for (let levels = 0; levels <= MOST_INDENTED; levels += 1) {
    level = level.filter((one) => one !== null && typeof one === "object").flatMap((one) => Object.values(one));
    if (level.length === 0) return levels;
  }
  return Infinity;
}
