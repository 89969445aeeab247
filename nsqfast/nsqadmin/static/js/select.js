// Checkboxes of rows: a range with shift, all of the page. Tells others by the event `nsqadmin:picked` at the section.
let last = null;

/** The keys of the rows that are picked in a section. */
export const picked = (section) => [...section.querySelectorAll("tbody input[name=pick]:checked")].map((box) => box.value);

function tell(section) {
  const boxes = [...section.querySelectorAll("tbody input[name=pick]")];
  const count = boxes.filter((box) => box.checked).length;
  const all = section.querySelector("[data-pick-all]");
  all.checked = count > 0 && count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
  section.dispatchEvent(new CustomEvent("nsqadmin:picked", { bubbles: true, detail: picked(section) }));
}

document.addEventListener("click", (event) => {
  const box = event.target;
  if (!box.matches?.("input[name=pick], [data-pick-all]")) return;
  const section = box.closest("section");
  const boxes = [...section.querySelectorAll("tbody input[name=pick]")];
  if (box.matches("[data-pick-all]")) for (const each of boxes) each.checked = box.checked;
  else if (event.shiftKey && boxes.includes(last)) {
    const [from, until] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
    for (const each of boxes.slice(from, until + 1)) each.checked = box.checked;
  }
  if (box.name === "pick") last = box;
  tell(section);
});

document.addEventListener("nsqadmin:rows", (event) => {
  if (event.target.querySelector("[data-pick-all]")) tell(event.target);
});
