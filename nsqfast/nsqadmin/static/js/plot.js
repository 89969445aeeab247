// One chart drawn by uPlot: lines with names at their ends, marks with their text, gaps where nothing is known.
import { clock } from "./times.js";
import { amount } from "./units.js";

const HEIGHT = 184;
const FONT_PX = 12;
const MARK_ROOM = 16; // above the lines
const LABEL_SHARE_MAX = 0.28; // of the width
const LABEL_SIZE_MAX = 24;
const MARK_SIZE_MAX = 28;

// Of the y axis: counts have no parts.
const STEPS = [0.2, 0.5, ...Array.from({ length: 54 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3))];

const SIZE_STEPS = Array.from({ length: 52 }, (_, at) => 2 ** at);

const style = getComputedStyle(document.documentElement);
const colour = (token) => style.getPropertyValue(`--${token}`).trim();
const font = (ratio = 1) => `${FONT_PX * ratio}px ${style.fontFamily}`;
const cut = (text, size) => (text.length > size ? `${text.slice(0, size - 1)}…` : text);

const pen = document.createElement("canvas").getContext("2d");
const widthOf = (text) => {
  pen.font = font();
  return pen.measureText(text).width;
};

/** A value with unknown ones on both sides would be an invisible line: such points are drawn. */
function findLonely(plot, line) {
  const values = plot.data[line];
  const found = [];
  values.forEach((value, at) => {
    if (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) found.push(at);
  });
  return found.length ? found : null;
}

/** The names of the lines beside their last values, moved apart where they would overlap. */
function drawLabels(plot, spec) {
  const ratio = devicePixelRatio;
  const { ctx, bbox } = plot;
  const size = labelSize(plot, spec);
  const labels = [];
  spec.lines.forEach((line, index) => {
    const value = plot.data[index + 1].findLast((each) => each !== null);
    if (value === undefined) return;
    labels.push({ line, y: plot.valToPos(value, "y", true) });
  });
  labels.sort((left, right) => left.y - right.y);
  const gap = (FONT_PX + 1) * ratio;
  let bottom = bbox.top + bbox.height;
  for (const label of labels.toReversed()) bottom = (label.y = Math.min(label.y, bottom)) - gap;
  let top = bbox.top + gap / 2;
  for (const label of labels) top = (label.y = Math.max(label.y, top)) + gap;
  ctx.save();
  ctx.font = font(ratio);
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  for (const { line, y } of labels) {
    ctx.fillStyle = colour(`s${line.colour}`);
    ctx.fillText(cut(line.label, size), bbox.left + bbox.width + 5 * ratio, y);
  }
  ctx.restore();
}

function labelSize(plot, spec) {
  const room = plot.width * LABEL_SHARE_MAX;
  let size = LABEL_SIZE_MAX;
  while (size > 4 && spec.lines.some((line) => widthOf(cut(line.label, size)) > room)) size--;
  return size;
}

const labelRoom = (plot, spec) => Math.max(...spec.lines.map((line) => widthOf(cut(line.label, labelSize(plot, spec))))) + 8;

/** Actions and restarts: a line down, its text above, left out where there is no room. */
function drawMarks(plot, marks) {
  const ratio = devicePixelRatio;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("muted");
  ctx.font = font(ratio);
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  let free = Infinity; // from the right, because the newest counts most
  for (const mark of marks.toReversed()) {
    const x = plot.valToPos(mark.at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const text = cut(mark.text, MARK_SIZE_MAX);
    const width = ctx.measureText(text).width;
    const left = Math.min(x, plot.width * ratio - width);
    if (left + width > free) continue;
    ctx.fillText(text, left, bbox.top - 2 * ratio);
    free = left - 6 * ratio;
  }
  ctx.restore();
}

const roundUp = (value, unit) => {
  if (unit === "B") return 2 ** Math.ceil(Math.log2(value));
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((factor) => factor * size >= value) * size;
};

function options(place, spec, specs, state, onCursor) {
  const axis = { stroke: () => colour("muted"), font: font(), ticks: { show: false } };
  const grid = { stroke: () => colour("border"), width: 1 };
  return {
    width: place.clientWidth,
    height: HEIGHT,
    padding: [MARK_ROOM, (plot) => Math.max(...specs.map((each) => labelRoom(plot, each))), 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false, setScale: false }, sync: { key: "charts" }, points: { size: 7 } },
    scales: {
      x: { range: () => [state.known.from, state.known.to] },
      y: { range: (_, _min, max) => [0, max > 1 ? roundUp(max, spec.unit) : 1] },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 64, size: 28, gap: 9, values: (_, times) => times.map((time) => clock(new Date(time * 1000), false)) },
      { ...axis, grid, space: 30, size: 58, incrs: spec.unit === "B" ? SIZE_STEPS : STEPS.slice(spec.unit ? 0 : 2), values: (_, values) => values.map((value) => amount(value, spec.unit)) },
    ],
    series: [
      {},
      ...spec.lines.map((line) => ({
        label: line.label,
        stroke: () => colour(`s${line.colour}`),
        width: 1.75,
        dash: line.dash,
        points: { show: false, size: 5, filter: findLonely },
      })),
    ],
    hooks: {
      draw: [(plot) => drawMarks(plot, state.known.marks), (plot) => drawLabels(plot, spec)],
      setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)],
    },
  };
}

/**
 * `specs` are those of all charts of the page: their plots leave the same room for names, so that they are as wide.
 * `onCursor` is told the index of the point under the cursor of any of them, or null. `set` draws other points.
 */
export function makePlot(place, spec, specs, known, onCursor) {
  const state = { known };
  const empty = [[], ...spec.lines.map(() => [])];
  const plot = new uPlot(options(place, spec, specs, state, onCursor), empty, place);
  new ResizeObserver(() => {
    if (place.clientWidth) plot.setSize({ width: place.clientWidth, height: HEIGHT });
  }).observe(place);
  const repaint = () => plot.redraw(false, true);
  new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  return {
    set(next, data) {
      state.known = next;
      plot.setData(data);
    },
  };
}
