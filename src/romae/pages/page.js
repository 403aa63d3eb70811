"use strict";

// A long page draws its charts as they come near the screen, and all that are shown before it is printed.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
}, { rootMargin: "800px" });

function draw(place) {
  near.unobserve(place);
  const { data, layout } = JSON.parse(place.querySelector("script").textContent);
  // A finger scrolls the page; on a touch screen a chart is zoomed with its buttons.
  if (window.matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
  Plotly.react(place, data, layout, { responsive: true, displaylogo: false });
}

for (const place of document.querySelectorAll("div.chart")) near.observe(place);
window.addEventListener("beforeprint", () => {
  document.querySelectorAll(":not([hidden]) > div.chart:not(.js-plotly-plot)").forEach(draw);
});

// What is not chosen is hidden, so that it is first drawn when it is chosen.
for (const select of document.querySelectorAll("select")) {
  const choices = select.closest("figure").querySelectorAll("div.choice");
  const choose = () => choices.forEach((choice, i) => { choice.hidden = i !== select.selectedIndex; });
  select.addEventListener("change", choose);
  choose(); // a browser may remember the choice when a page is loaded again
}
