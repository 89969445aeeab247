// A chart as a table of ROWS_MAX rows at most, the newest first.
import { el } from "./dom.js";
import { amount, momentElement } from "./units.js";

const ROWS_MAX = 60;

/** `data` is that of uPlot: times, then the values of each line. */
export function fillTable(place, spec, known, data) {
  const size = Math.max(1, Math.ceil(data[0].length / ROWS_MAX));
  const hasMarks = known.marks.length > 0;
  const names = [size > 1 ? `Until (highest of ${size} points)` : "Time", ...spec.lines.map((line) => line.label)];
  if (hasMarks) names.push("Event");
  const rows = [];
  for (let end = data[0].length; end > 0; end -= size) {
    const start = Math.max(0, end - size);
    const cells = data.slice(1).map((values) => el("td", amount(highest(values, start, end), spec.unit)));
    const row = el("tr", {}, el("th", { scope: "row" }, momentElement(data[0][end - 1], known)), ...cells);
    rows.push(row);
    if (!hasMarks) continue;
    const [from, until] = [data[0][start - 1] ?? 0, data[0][end - 1]];
    const events = known.marks.filter((mark) => mark.at > from && mark.at <= until);
    row.append(el("td.event", events.map((mark) => mark.text).join(", ")));
  }
  const head = el("tr", {}, ...names.map((textContent) => el("th", { scope: "col", textContent })));
  place.replaceChildren(el("table", {}, el("caption.hidden", spec.title), el("thead", {}, head), el("tbody", {}, ...rows)));
}

function highest(values, start, end) {
  const found = values.slice(start, end).filter((value) => value !== null);
  return found.length ? Math.max(...found) : null;
}
