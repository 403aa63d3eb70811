"use strict";

// A long page draws its charts as they come near the screen, and all that are shown before it is printed.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
}, { rootMargin: "800px" });

// The colours of charts on a dark screen. Python writes those for paper; each has its counterpart here.
const ON_DARK = {
  "#ffffff": "#15181c", "#fff": "#15181c", "#1b1b1b": "#e6e6e6", "#e6e6e6": "#33383f", "#f2f2f2": "#2b3037",
  "#cfe3e6": "#24434a", "#00798c": "#2fa9bd", "#d1495b": "#f0707f", "#edae49": "#edae49", "#8e6c8a": "#bd93b8",
  "#66a182": "#7fc29d", "#2e4057": "#8fa8cc", "#8c8c8c": "#9a9fa8",
};
const dark = window.matchMedia("(prefers-color-scheme: dark)");

// Colours stand under keys that say so; what else looks like one, such as the name of a class, stays.
function darkened(value, key = "") {
  if (key === "opacity" && value < 0.3) return 1.6 * value; // bands, which would hardly be seen
  if (typeof value === "string") return /color/.test(key) ? ON_DARK[value.toLowerCase()] ?? value : value;
  if (Array.isArray(value)) return /color/.test(key) ? value.map((part) => darkened(part, key)) : value.map((part) => darkened(part));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, darkened(part, name)]));
}

function draw(place, isDark = dark.matches) {
  near.unobserve(place);
  const told = JSON.parse(place.querySelector("script").textContent);
  const { data, layout } = isDark ? darkened(told) : told;
  // A finger scrolls the page; on a touch screen a chart is zoomed with its buttons.
  if (window.matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
  Plotly.react(place, data, layout, { responsive: true, displaylogo: false });
}

function drawAgain(isDark) {
  document.querySelectorAll("div.chart.js-plotly-plot").forEach((place) => draw(place, isDark));
}

for (const place of document.querySelectorAll("div.chart")) near.observe(place);
dark.addEventListener("change", () => drawAgain(dark.matches));
window.addEventListener("beforeprint", () => {
  document.querySelectorAll(":not([hidden]) > div.chart:not(.js-plotly-plot)").forEach((place) => draw(place, false));
  if (dark.matches) drawAgain(false); // paper is white
});
window.addEventListener("afterprint", () => { if (dark.matches) drawAgain(true); });

// What is not chosen is hidden, so that it is first drawn when it is chosen.
for (const select of document.querySelectorAll("select")) {
  const choices = select.closest("figure").querySelectorAll("div.choice");
  const choose = () => choices.forEach((choice, i) => { choice.hidden = i !== select.selectedIndex; });
  select.addEventListener("change", choose);
  choose(); // a browser may remember the choice when a page is loaded again
}
