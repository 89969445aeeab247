// The address of this page. Browsers have no clipboard on plain http, so a field shows it there.
import { openDialog } from "./dialog.js";
import { toast } from "./page.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Link copied");
  } catch {
    const field = document.getElementById("copy-text");
    field.value = text;
    openDialog(document.getElementById("copy-dialog"), field);
    field.select();
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-copy]")) copy(location.href);
});
