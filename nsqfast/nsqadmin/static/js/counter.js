// Lets the number run on at its rate between two ticks; it stands still for who wants less motion, or has paused.
import { isPaused } from "./live.js";

const place = document.querySelector(".count [data-text]");
const still = matchMedia("(prefers-reduced-motion: reduce)");
const AHEAD_MS_MAX = 15000;

let state = JSON.parse(document.getElementById("count").textContent);
let since = performance.now();
let shown = state.count;

function run(now) {
  if (!still.matches && !isPaused()) {
    const ahead_ms = Math.min(Math.max(0, now - since), AHEAD_MS_MAX);
    show(state.count + Math.floor((state.rate * ahead_ms) / 1000));
  }
  requestAnimationFrame(run);
}

// It never runs back by what it ran too far.
function show(count) {
  if (count < shown && shown - count <= state.rate * 5) count = shown;
  shown = count;
  const text = count.toLocaleString("en-US");
  if (place.textContent !== text) place.textContent = text;
}

document.addEventListener("nsqadmin:view", ({ detail }) => {
  state = detail.data;
  since = performance.now();
  if (still.matches) shown = state.count;
  else show(state.count);
});
requestAnimationFrame(run);
