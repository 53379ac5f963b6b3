// Plots the memory estimate over the nodes of one cycle.
"use strict";
(() => {
  const at = document.getElementById("memory-plot");
  if (!at) return;
  const data = JSON.parse(document.getElementById("memory-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];

  function bytes(n) {
    let unit = 0;
    while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
    return `${n.toFixed(unit && n < 100 ? 1 : 0)} ${units[unit]}`;
  }

  // The uppermost sum is painted first; each lower one covers its part of it.
  const sums = [];
  data.series.forEach((series, i) => sums.push(series.values.map((v, j) => v + (i ? sums[i - 1][j] : 0))));

  function graphs(ink, line) {
    return {
      hooks: {
        drawAxes: [(u) => {
          const c = u.ctx;
          c.save();
          c.fillStyle = ink;
          c.strokeStyle = line;
          c.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
          c.textAlign = "left";
          for (const mark of data.marks) {
            const x = Math.round(u.valToPos(mark.at, "x", true));
            c.beginPath();
            c.moveTo(x, u.bbox.top);
            c.lineTo(x, u.bbox.top + u.bbox.height);
            c.stroke();
            c.fillText(mark.label, x + 5 * devicePixelRatio, u.bbox.top + 13 * devicePixelRatio);
          }
          c.restore();
        }],
      },
    };
  }

  let plot = null;
  function draw() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim(), line = style.getPropertyValue("--line").trim();
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const order = data.series.map((_, i) => i).reverse();
    const series = order.map((i) => {
      const colour = data.series[i].colours[dark.matches ? 1 : 0];
      return { label: data.series[i].label, stroke: colour, fill: colour, width: 1, points: { show: false }, value: (_u, _v, _s, j) => j === null ? "–" : bytes(data.series[i].values[j]) };
    });
    if (plot) plot.destroy();
    plot = new uPlot({
      width: Math.max(280, at.clientWidth), height: 300,
      scales: { x: { time: false }, y: { range: (_u, _low, high) => [0, (high || 1) * 1.1] } },
      axes: [
        { ...axis, label: "nodes in the order of the graphs", labelSize: 22 },
        { ...axis, size: 74, values: (_u, ticks) => ticks.map(bytes), incrs: [...Array(42).keys()].map((i) => 2 ** i) },
      ],
      series: [{ label: "at", value: (_u, _v, _s, j) => j === null ? "–" : data.names[j] }, ...series],
      plugins: [graphs(ink, line)],
      cursor: { drag: { x: false, y: false } },
    }, [data.at, ...order.map((i) => sums[i])], at);
  }

  draw();
  dark.addEventListener("change", draw);
  let last = at.clientWidth;
  addEventListener("resize", () => {
    if (at.clientWidth !== last) { last = at.clientWidth; draw(); }
  });
})();
