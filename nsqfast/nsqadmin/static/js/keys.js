// Keys; the dialog `keys-dialog` lists them. None of them changes anything in the cluster.
import { openDialog } from "./dialog.js";
import { isPaused, setPaused } from "./live.js";
import { page, to } from "./page.js";
import { nextTheme } from "./theme.js";

const PLACES = { o: "/", t: "/topics", n: "/nodes", l: "/lookup", p: "/problems", c: "/counter", a: "/audit" };
if (!page.admin) delete PLACES.a;
const GO_MS = 1500;
const STORED = "nsqadmin.keys";

const dialog = document.getElementById("keys-dialog");
const box = document.getElementById("keys-on");
let goUntil = 0;

function stored() {
  try {
    return localStorage.getItem(STORED) !== "off";
  } catch {
    return true;
  }
}

box.checked = stored();
box.addEventListener("change", () => {
  try {
    localStorage.setItem(STORED, box.checked ? "on" : "off");
  } catch {
    // Without storage the choice holds for this page.
  }
});

const isField = (element) => element.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

function moveRow(step) {
  const links = [...document.querySelectorAll("main tbody th a, main tbody summary.preview")].filter((link) => link.checkVisibility());
  if (!links.length) return;
  const row = document.activeElement?.closest("tbody tr");
  const now = row ? links.findIndex((link) => row.contains(link)) : -1;
  const next = now < 0 ? (step > 0 ? 0 : links.length - 1) : now + step;
  links[Math.min(Math.max(next, 0), links.length - 1)].focus();
}

const KEYS = {
  "/": () => (document.querySelector("main [data-search]") ?? document.getElementById("find")).focus(),
  "?": () => openDialog(dialog),
  g: () => (goUntil = Date.now() + GO_MS),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  x: () => document.activeElement?.closest("tbody[data-id], tbody:not([data-id]) tr")?.querySelector("input[name=pick]")?.click(),
  r: () => setPaused(!isPaused()),
  t: nextTheme,
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isField(event.target)) event.target.blur();
  if (!box.checked || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isField(event.target) || document.querySelector("dialog[open]")) return;
  if (Date.now() < goUntil && PLACES[event.key]) {
    event.preventDefault();
    location.assign(to(PLACES[event.key]));
    return;
  }
  goUntil = 0;
  const action = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
