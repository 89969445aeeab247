// JSON as a tree: every value as text, branches made when they are opened.
import { el } from "./dom.js";

const SMALL = 12;
const DEPTH_OPEN = 3;

/** A number as it was written: 64 bits do not fit into one of JavaScript's. */
class Digits {
  constructor(source) {
    this.source = source;
  }
}

const keep = (_key, value, context) => (typeof value === "number" && context?.source ? new Digits(context.source) : value);

function leaf(value) {
  if (typeof value === "string") return el("span.string", JSON.stringify(value));
  return el("span.number", value instanceof Digits ? value.source : String(value));
}

function branch(name, value, depth) {
  const entries = Object.entries(value);
  const sign = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const details = el("details", {}, el("summary", {}, ...name, sign));
  const fill = () => {
    if (details.children.length > 1) return;
    details.append(el("div.in", {}, ...entries.map(([key, member]) => item([el("span.key", key), ": "], member, depth + 1))));
  };
  details.addEventListener("toggle", () => details.open && fill());
  if (depth === 0 || (depth < DEPTH_OPEN && entries.length <= SMALL)) {
    fill();
    details.open = true;
  }
  return details;
}

function item(name, value, depth) {
  if (value !== null && typeof value === "object" && !(value instanceof Digits)) return branch(name, value, depth);
  return el("div", {}, ...name, leaf(value));
}

/** An element for JSON `text`; null for what is none, or is no object and no array. */
export function makeTree(text) {
  let value;
  try {
    value = JSON.parse(text, keep);
  } catch {
    return null;
  }
  if (value === null || typeof value !== "object" || value instanceof Digits) return null;
  return el("div.tree", { tabIndex: 0, role: "group" }, item([], value, 0));
}
