// Dialogs: the browser keeps the focus in them, and gives it back to where it was.

/** @param {HTMLDialogElement} dialog @param {HTMLElement} [first] what has the focus at the beginning */
export function openDialog(dialog, first) {
  const opener = document.activeElement;
  dialog.addEventListener("close", () => opener?.isConnected && opener.focus(), { once: true });
  dialog.showModal();
  first?.focus();
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) openDialog(document.getElementById(opener.dataset.opens));
});
