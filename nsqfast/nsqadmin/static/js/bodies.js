// The body of a message in its <pre data-payload>: as a tree, copied, downloaded.
import { toast } from "./page.js";
import { makeTree } from "./tree.js";

/** Puts a tree beside a body that is shown as JSON, and hides the text. */
export function plant(pre) {
  if (pre.dataset.payload !== "json") return;
  const tree = makeTree(pre.textContent);
  if (!tree) return;
  tree.setAttribute("aria-label", pre.getAttribute("aria-label"));
  pre.hidden = true;
  pre.after(tree);
}

/** What the body is: a hex dump is read back. */
export function bytesOf(pre) {
  if (pre.dataset.payload !== "hex") return new TextEncoder().encode(pre.textContent);
  const digits = pre.textContent
    .split("\n")
    .map((line) => line.slice(10, 57))
    .join(" ");
  return Uint8Array.from(digits.split(" ").filter(Boolean), (pair) => parseInt(pair, 16));
}

async function copy(pre) {
  try {
    await navigator.clipboard.writeText(pre.textContent);
    toast("Body copied");
  } catch {
    // Browsers have no clipboard on plain http.
    pre.hidden = false;
    getSelection().selectAllChildren(pre);
    toast("Selected: copy it with Ctrl+C", "warn");
  }
}

function download(pre, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytesOf(pre)]));
  link.download = `${name}.${pre.dataset.payload === "hex" ? "bin" : "txt"}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy-body], [data-download]");
  if (!button) return;
  const holder = button.closest("[data-id]");
  const pre = holder.querySelector("[data-payload]");
  if (button.matches("[data-copy-body]")) copy(pre);
  else download(pre, holder.dataset.id);
});
