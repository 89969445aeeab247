// A chart as a table of ROWS_MAX rows at most, the newest first.
import { amount, momentElement } from "./units.js";

const ROWS_MAX = 60;

/** `data` is that of uPlot: times, then the values of each line. */
export function fillTable(place, spec, known, data) {
  const size = Math.max(1, Math.ceil(data[0].length / ROWS_MAX));
  const hasMarks = known.marks.length > 0;
  const table = document.createElement("table");
  const caption = table.createCaption();
  caption.className = "hidden";
  caption.textContent = spec.title;
  const head = table.createTHead().insertRow();
  const names = [size > 1 ? `Until (highest of ${size} points)` : "Time", ...spec.lines.map((line) => line.label)];
  for (const name of hasMarks ? [...names, "Event"] : names) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    head.append(cell);
  }
  const body = table.createTBody();
  for (let end = data[0].length; end > 0; end -= size) {
    const start = Math.max(0, end - size);
    const row = body.insertRow();
    const time = document.createElement("th");
    time.scope = "row";
    time.append(momentElement(data[0][end - 1], known));
    row.append(time);
    for (const values of data.slice(1)) row.insertCell().textContent = amount(highest(values, start, end), spec.unit);
    if (!hasMarks) continue;
    const [from, until] = [data[0][start - 1] ?? 0, data[0][end - 1]];
    const events = known.marks.filter((mark) => mark.at > from && mark.at <= until);
    const cell = row.insertCell();
    cell.className = "event";
    cell.textContent = events.map((mark) => mark.text).join(", ");
  }
  place.replaceChildren(table);
}

function highest(values, start, end) {
  const found = values.slice(start, end).filter((value) => value !== null);
  return found.length ? Math.max(...found) : null;
}
