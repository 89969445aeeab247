// Elements out of plain values: strings become text, never markup.

/**
 * @param {string} name tag, with classes behind points: "p.muted"
 * @param {object|string} [given] a text, or properties; those with a dash, and `for`, `role`, `scope`, are attributes;
 *   functions listen: `click`, `input`, `submit`
 */
export function el(name, given = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  if (typeof given === "string") given = { textContent: given };
  for (const [key, value] of Object.entries(given)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (/-|^(for|role|scope)$/.test(key)) element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export const button = (name, textContent, click) => el(`button.${name}`, { type: "button", textContent, click });
export const number = (value) => value.toLocaleString("en");
export const plural = (count, one) => `${number(count)} ${one}${count === 1 ? "" : "s"}`;

/** A table that scrolls in its place. Rows are lists: what heads the row (text or element), then texts or elements. */
export function table(label, heads, rows, kind = "") {
  const cells = ([first, ...others]) => [el("th", { scope: "row" }, first), ...others.map((other) => el(`td${kind}`, {}, other))];
  const head = heads.map((text, index) => el(index ? `th${kind}` : "th", { scope: "col", textContent: text }));
  const body = rows.map((row) => el("tr", {}, ...cells(row)));
  const whole = el("table", {}, el("caption.hidden", label), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
  return el("div.scroll", { tabIndex: 0, role: "group", "aria-label": label }, whole);
}
