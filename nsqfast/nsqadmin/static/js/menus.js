// Menus are <details>: one is open at a time, and it closes with Esc, a click elsewhere, or the focus leaving it.
const open = () => document.querySelectorAll("details.menu[open]");

function closeOthers(kept) {
  for (const menu of open()) if (menu !== kept) menu.open = false;
}

document.addEventListener("click", (event) => closeOthers(event.target.closest("details.menu")));
document.addEventListener("focusin", (event) => closeOthers(event.target.closest("details.menu")));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of open()) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});
