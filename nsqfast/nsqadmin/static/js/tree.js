// JSON as a tree: every value as text, branches made when they are opened.

const SMALL = 12;
const DEPTH_OPEN = 3;

/** A number as it was written: 64 bits do not fit into one of JavaScript's. */
class Digits {
  constructor(source) {
    this.source = source;
  }
}

const keep = (_key, value, context) => (typeof value === "number" && context?.source ? new Digits(context.source) : value);

function span(kind, text) {
  const element = document.createElement("span");
  element.className = kind;
  element.textContent = text;
  return element;
}

function leaf(value) {
  if (typeof value === "string") return span("string", JSON.stringify(value));
  return span("number", value instanceof Digits ? value.source : String(value));
}

function branch(name, value, depth) {
  const entries = Object.entries(value);
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const sign = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  summary.append(...name, sign);
  details.append(summary);
  const fill = () => {
    if (details.children.length > 1) return;
    const inner = document.createElement("div");
    inner.className = "in";
    for (const [key, member] of entries) inner.append(item([span("key", key), ": "], member, depth + 1));
    details.append(inner);
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
  const line = document.createElement("div");
  line.append(...name, leaf(value));
  return line;
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
  const holder = document.createElement("div");
  holder.className = "tree";
  holder.tabIndex = 0;
  holder.setAttribute("role", "group");
  holder.append(item([], value, 0));
  return holder;
}
