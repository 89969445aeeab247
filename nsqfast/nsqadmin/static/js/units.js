// Numbers and times as charts show them; texts.py does the same for the rest of the page.
import { clock, unixElement } from "./times.js";

const UNITS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e4, "k"],
];

const SIZES = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
];

/** 184,201 as 184 k, 4,021/s, 12.5 MiB; an en dash for what is not known. */
export function amount(value, unit = "") {
  if (value === null || value === undefined) return "–";
  if (unit === "B") {
    const [size, name] = SIZES.find(([least]) => value >= least) ?? [1, "B"];
    return `${Number((value / size).toPrecision(3))} ${name}`;
  }
  for (const [size, letter] of UNITS) {
    if (Math.abs(value) >= size) {
      const scale = letter === "k" ? 1e3 : size;
      return `${Number((value / scale).toPrecision(3)).toLocaleString("en-US")} ${letter}${unit}`;
    }
  }
  // A rate may be below one; there is no part of a message.
  const shown = unit && Math.abs(value) < 10 ? Number(value.toFixed(1)) : Math.round(value);
  return shown.toLocaleString("en-US") + unit;
}

/** 11:20, and with seconds where a step is shorter than a minute. */
export const moment = (unix, known) => clock(new Date(unix * 1000), known.step_s < 60);

/** The same as an element. */
export const momentElement = (unix, known) => unixElement(unix, moment(unix, known), known.utc_offset_s);
