// Times in the browser's zone, with the server's on hover. Without scripts a page has the server's alone.
import { el } from "./dom.js";
import { page } from "./page.js";

const two = (number) => String(number).padStart(2, "0");

/** 11:24:03, or 11:24 */
export const clock = (date, hasSeconds = true) =>
  [date.getHours(), date.getMinutes(), ...(hasSeconds ? [date.getSeconds()] : [])].map(two).join(":");

const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

/** 2026-11-26T11:24:03, as fields of a form have it */
export const local = (date) => `${day(date)}T${clock(date)}`;

/** The same at the server, with its zone. */
export function clockThere(unix, utcOffset_s = page.utc_offset_s) {
  const minutes = Math.abs(utcOffset_s) / 60;
  const zone = utcOffset_s ? `${utcOffset_s < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}` : "";
  return `${new Date((unix + utcOffset_s) * 1000).toISOString().slice(11, 19)} UTC${zone}`;
}

/** As exact as the server's text; with the date if that text has one, or if the date is not today's. */
function here(iso, text) {
  const date = new Date(iso);
  if (isNaN(date)) return text;
  const time = clock(date, /:\d\d:/.test(text));
  if (date.toDateString() === new Date().toDateString() && !/^\d{4}-/.test(text)) return time;
  return `${day(date)} ${time}`;
}

/** A piece of a texts.Timed as an element. */
export const timeElement = (iso, text, title) => el("time", { dateTime: iso, title, textContent: here(iso, text) });

/** The same of a unix time that has come without the server's text. */
export const unixElement = (unix, text = clock(new Date(unix * 1000)), utcOffset_s) =>
  el("time", { dateTime: new Date(unix * 1000).toISOString(), title: clockThere(unix, utcOffset_s), textContent: text });

for (const each of document.querySelectorAll("time[datetime]")) each.textContent = here(each.dateTime, each.textContent);
