// The charts of a page: their plan stands in the page (see web/charts.py), their points come from /ui/series.
import { to } from "./page.js";
import { makePlot } from "./plot.js";
import { amount, moment, momentElement } from "./units.js";
import { fillTable } from "./points.js";

const POINTS_MAX = 4000; // kept per series while a page stays open

const element = document.getElementById("charts");
const plan = JSON.parse(element.textContent);
/** @type {{step_s: number, from: number, to: number, utc_offset_s: number, times: number[], series: object[], marks: object[]}} */
let known = null;
let asking = false;

/** One chart: its figure, what it draws, and what is said of it. */
class Chart {
  constructor(spec) {
    this.spec = spec;
    this.figure = document.querySelector(`[data-chart="${spec.id}"]`);
    this.place = this.figure.querySelector(".plot");
    this.values = [...this.figure.querySelectorAll("[data-value]")];
    this.details = this.figure.querySelector("details.points");
    this.details.addEventListener("toggle", () => this.showTable());
    this.plot = null;
  }

  show() {
    const lines = this.spec.lines.map((line) => sum(line.columns.map((name) => known.series[line.series][name])));
    this.data = [known.times, ...lines];
    if (!this.plot) this.plot = makePlot(this.place, this.spec, plan.charts, known, (index) => this.showValues(index));
    this.plot.set(known, this.data);
    this.figure.querySelector("[data-none]").hidden = lines.some((line) => line.some((value) => value !== null));
    this.showValues(null);
    this.place.setAttribute("aria-label", this.summary());
    this.showTable();
  }

  /** Beside the names: the values under the cursor, or the last ones. */
  showValues(index) {
    const at = index ?? known.times.length - 1;
    this.figure.querySelector("[data-when]").replaceChildren(...(index === null ? [] : [momentElement(known.times[index], known)]));
    this.values.forEach((place, line) => {
      place.textContent = amount(this.data[line + 1][at], this.spec.unit);
    });
  }

  summary() {
    const parts = this.spec.lines.map((line, index) => {
      const values = this.data[index + 1];
      const highest = values.reduce((best, value, at) => (value !== null && (best < 0 || value > values[best]) ? at : best), -1);
      if (highest < 0) return `${line.label} unknown`;
      const now = values.at(-1) === null ? "unknown" : amount(values.at(-1), this.spec.unit);
      return `${line.label} ${now} now, highest ${amount(values[highest], this.spec.unit)} at ${moment(known.times[highest], known)}`;
    });
    const marks = known.marks.map((mark) => `${moment(mark.at, known)} ${mark.text}`);
    const events = marks.length ? ` Events: ${marks.slice(-5).join(", ")}.` : "";
    return `${this.spec.title}, last ${plan.range}: ${parts.join("; ")}.${events}`;
  }

  showTable() {
    if (this.details.open) fillTable(this.details.lastElementChild, this.spec, known, this.data);
  }
}

/** Unknown where one of them is. */
function sum(columns) {
  return columns[0].map((_, at) => {
    let total = 0;
    for (const column of columns) {
      if (column[at] === null) return null;
      total += column[at];
    }
    return total;
  });
}

/** The last point may have been one that was not over, so `news` begins with the one before it. */
function append(news) {
  const first = news.times[0] ?? Infinity;
  const from = known.times.findIndex((time) => time >= news.from);
  const start = from < 0 ? known.times.length : from;
  const index = known.times.findIndex((time) => time >= first);
  const end = Math.max(start, index < 0 ? known.times.length : index);
  const join = (old, more) => [...old.slice(start, end), ...more];
  const series = known.series.map((columns, place) =>
    Object.fromEntries(Object.entries(columns).map(([name, old]) => [name, join(old, news.series[place][name])])),
  );
  const texts = new Set(news.marks.map((mark) => `${mark.at} ${mark.text}`));
  const marks = known.marks.filter((mark) => mark.at >= news.from && !texts.has(`${mark.at} ${mark.text}`));
  known = { ...news, times: join(known.times, news.times), series, marks: [...marks, ...news.marks] };
}

async function ask() {
  if (asking) return;
  asking = true;
  try {
    const isWhole = !known || known.times.length < 2 || known.times.length > POINTS_MAX;
    const since = isWhole ? "" : `&since=${known.times.at(-2)}`;
    const answer = await fetch(`${to("/ui/series")}?${plan.query}${since}`, { cache: "no-store", redirect: "manual" });
    if (answer.status !== 200) return; // the next tick asks again
    const news = await answer.json();
    if (isWhole) known = news;
    else append(news);
    charts.forEach((chart) => chart.show());
  } catch {
    // live.js says that there is no connection.
  } finally {
    asking = false;
  }
}

const charts = plan.charts.map((spec) => new Chart(spec));
document.addEventListener("nsqadmin:view", ask);
ask();
