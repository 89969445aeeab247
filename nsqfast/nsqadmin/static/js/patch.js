// Puts a View (see web/view.py) into the page: text as text, rows by their keys, nothing parsed as markup.
import { el } from "./dom.js";
import { timeElement } from "./times.js";

/** @param {{title: string, texts: object, states: object, shown: object, tables: object}} view */
export function patch(view) {
  for (const element of document.querySelectorAll("[data-text]")) setText(element, view.texts[element.dataset.text]);
  for (const element of document.querySelectorAll("[data-state]")) setChip(element, view.states[element.dataset.state]);
  for (const element of document.querySelectorAll("[data-shown]")) {
    const shown = view.shown[element.dataset.shown];
    if (shown !== undefined) element.hidden = !shown;
  }
  for (const section of document.querySelectorAll("[data-table]")) {
    const table = view.tables[section.dataset.table];
    if (table) patchTable(section, table.rows);
  }
}

/** Leaves the element alone when nothing changes, so that a selection in it stays. A list has the pieces of texts.Timed. */
export function setText(element, text) {
  if (text === undefined) return;
  const pieces = [text].flat().map((piece) => (typeof piece === "string" ? piece : timeElement(...piece)));
  const shown = pieces.map((piece) => piece.textContent ?? piece).join("");
  if (element.textContent !== shown) element.replaceChildren(...pieces);
}

/** A state as shape, word and colour. */
export function setChip(element, state) {
  if (!state) return;
  setText(element, state.word);
  setAttribute(element, "data-kind", state.kind);
  setAttribute(element, "title", state.title);
}

function setAttribute(element, name, value) {
  if (!value) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function setChips(holder, chips = []) {
  while (holder.children.length > chips.length) holder.lastElementChild.remove();
  chips.forEach((state, index) => {
    const chip = holder.children[index] ?? holder.appendChild(el("span.chip"));
    setChip(chip, state);
  });
}

// While the pointer or the focus is in a table, what somebody is about to click must not move.
const isBusy = (section) => {
  const body = section.querySelector("tbody");
  return body.matches(":hover") || body.contains(document.activeElement);
};
const waiting = new WeakMap();

function patchTable(section, rows) {
  const body = section.querySelector("tbody");
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const news = [];
  for (const row of rows) {
    const element = known.get(row.key);
    if (element) patchRow(element, row);
    else news.push(row.key);
  }
  const isSame = !news.length && known.size === rows.length && rows.every((row, index) => body.rows[index].dataset.key === row.key);
  if (isSame) waiting.delete(section);
  else if (isBusy(section) && known.size) waiting.set(section, rows);
  else arrange(section, rows);
  section.querySelector("[data-apply]").hidden = !waiting.has(section);
}

function arrange(section, rows) {
  const body = section.querySelector("tbody");
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const kept = rows.map((row) => known.get(row.key) ?? makeRow(section, row));
  const focused = document.activeElement;
  body.replaceChildren(...kept);
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
  waiting.delete(section);
  section.querySelector("[data-apply]").hidden = true;
  section.dispatchEvent(new CustomEvent("nsqadmin:rows", { bubbles: true }));
}

function makeRow(section, row) {
  const element = section.querySelector("template[data-row]").content.firstElementChild.cloneNode(true);
  element.dataset.key = row.key;
  const box = element.querySelector("input[name=pick]");
  if (box) {
    box.value = row.key;
    box.setAttribute("aria-label", `Select ${row.key}`);
  }
  element.querySelector("[data-actions] summary")?.setAttribute("aria-label", `Actions for ${row.key}`);
  patchRow(element, row);
  return element;
}

function patchRow(element, row) {
  setAttribute(element, "data-kind", row.kind);
  for (const [name, value] of Object.entries(row.data)) setAttribute(element, `data-${name}`, value);
  const cells = element.querySelectorAll("[data-col]");
  row.cells.forEach((given, index) => {
    const cell = given.text === undefined ? { text: given } : given;
    patchCell(cells[index], cell);
    const sub = element.querySelector(`[data-sub="${cells[index].dataset.col}"]`);
    if (sub?.classList.contains("chips")) setChips(sub, cell.chips);
    else if (sub) setText(sub, cell.text);
  });
}

function patchCell(element, cell) {
  setAttribute(element, "title", cell.title);
  const line = element.querySelector(".spark > path");
  const chips = element.querySelector(":scope > .chips");
  const link = element.querySelector(":scope > a");
  if (line) setAttribute(line, "d", cell.points);
  else if (chips) setChips(chips, cell.chips);
  else if (link) {
    setText(link, cell.text);
    setAttribute(link, "href", cell.href);
  } else setText(element.querySelector(":scope > .v") ?? element, cell.text);
}

for (const section of document.querySelectorAll("[data-table]")) {
  const apply = (event) => {
    const rows = waiting.get(section);
    if (rows && (event.type === "click" || !isBusy(section))) arrange(section, rows);
  };
  section.querySelector("[data-apply]").addEventListener("click", apply);
  section.addEventListener("pointerleave", apply);
  section.addEventListener("focusout", () => setTimeout(() => apply({ type: "focusout" })));
}
