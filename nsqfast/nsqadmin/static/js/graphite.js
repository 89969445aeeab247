// The rates beside Graphite's pictures: asked of nsqadmin, which asks Graphite.
import { to } from "./page.js";

for (const place of document.querySelectorAll("[data-rate]")) {
  fetch(`${to("/api/graphite")}?metric=rate&target=${encodeURIComponent(place.dataset.rate)}`)
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(String(answer.status)))))
    .then(({ rate }) => (place.textContent = rate === "N/A" ? "rate unknown" : `${rate}/s`))
    .catch(() => (place.textContent = "Graphite does not answer"));
}
