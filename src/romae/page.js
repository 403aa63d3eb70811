"use strict";

// The look of every chart. What a chart says itself comes on top.
const INK = "#1b1b1b", RULE = "#e6e6e6";
const LOOK = {
  font: { family: "system-ui, sans-serif", size: 13, color: INK },
  paper_bgcolor: "#fff", plot_bgcolor: "#fff", hovermode: "closest", dragmode: "zoom", height: 380,
  margin: { l: 56, r: 12, t: 36, b: 44 },
  legend: { orientation: "h", x: 0, y: 0, xanchor: "left", yanchor: "bottom", yref: "container" },
};
const AXIS = { gridcolor: RULE, zeroline: false, linecolor: INK, automargin: true };

function layoutOf(chart) {
  const layout = { ...LOOK, ...chart.layout };
  for (const name of new Set(["xaxis", "yaxis", ...Object.keys(chart.layout)])) {
    if (/^[xy]axis\d*$/.test(name)) layout[name] = { ...AXIS, ...chart.layout[name] };
  }
  // A narrow screen has one line of the legend for each name.
  const named = chart.traces.filter((trace) => trace.showlegend !== false).length;
  if (window.innerWidth < 600 && named > 1) layout.height += 20 * named;
  // A finger scrolls the page; on a touch screen a chart is zoomed with its buttons.
  if (window.matchMedia("(pointer: coarse)").matches) layout.dragmode = false;
  return layout;
}

function draw(place, chart) {
  Plotly.react(place, chart.traces, layoutOf(chart), { responsive: true, displaylogo: false });
}

// What is to be drawn in a place: the chart that its chooser names, or its only one.
const groups = JSON.parse(document.getElementById("charts").textContent);
function chosen(place) {
  const select = place.closest("figure").querySelector("select");
  return groups[place.dataset.charts][select ? select.value : 0];
}

// A long page draws its charts as they come near the screen, and all of them before it is printed.
const waiting = new Set(document.querySelectorAll("div.chart"));
function drawFirst(place) {
  if (waiting.delete(place)) draw(place, chosen(place));
}
const watch = new IntersectionObserver((seen) => {
  for (const one of seen) if (one.isIntersecting) { watch.unobserve(one.target); drawFirst(one.target); }
}, { rootMargin: "800px" });
for (const place of waiting) {
  place.style.minHeight = layoutOf(chosen(place)).height + "px";
  watch.observe(place);
}
window.addEventListener("beforeprint", () => [...waiting].forEach(drawFirst));

function choose(select) {
  const figure = select.closest("figure"), place = figure.querySelector("div.chart");
  waiting.delete(place);
  place.style.minHeight = "";
  draw(place, chosen(place));
  figure.querySelector("figcaption").textContent = select.selectedOptions[0].dataset.caption;
}

for (const select of document.querySelectorAll("select[data-charts]")) {
  select.addEventListener("change", () => choose(select));
  if (select.selectedIndex > 0) choose(select); // a browser may remember the choice when a page is loaded again
}
