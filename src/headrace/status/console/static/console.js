// Replaces the parts of the page that have changed, draws the curve, and says when nothing answers any more.
"use strict";

(() => {
  const HOUR = 3600;
  const byId = (id) => document.getElementById(id);
  const silence = byId("silence");
  let heard = Date.now();
  let expected = 1;
  let ended = false;
  let source = null;

  // The curve of the last hour.

  const points = { time: [], seconds: [], bytes: [] };
  const charts = [];

  const size = (bytes) => {
    if (bytes === null) return "";
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
    return `${Number.isInteger(bytes) ? bytes : bytes.toFixed(1)} ${units[unit]}`;
  };
  const duration = (seconds) => {
    if (seconds === null) return "";
    if (seconds < 60) return `${Math.round(seconds * 10) / 10} s`;
    return seconds < HOUR ? `${Math.round(seconds / 6) / 10} min` : `${Math.round(seconds / 360) / 10} h`;
  };

  const draw = (id, title, values, format, isBinary) => {
    const place = byId(id);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    place.replaceChildren();
    const heading = document.createElement("p");
    heading.className = "chart-title";
    heading.textContent = title;
    place.append(heading);
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const chart = new uPlot({
      width: place.clientWidth,
      height: 110,
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { range: () => { const now = Date.now() / 1000; return [now - HOUR, now]; } },
        y: { range: (_, __, most) => [0, Math.max(isBinary ? 1024 : 1, most || 0) * 1.1] },
      },
      axes: [
        { ...axis, size: 26, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toISOString().slice(11, 16)) },
        { ...axis, size: 66, splits: isBinary ? (_, __, ___, most) => [0, most / 2.2, most / 1.1] : undefined,
          values: (_, ticks) => ticks.map(format) },
      ],
      series: [{}, { stroke: colour("--accent"), width: 1.5, fill: `${colour("--accent")}22`, points: { show: false } }],
    }, [points.time, values], place);
    charts.push([chart, values, place]);
  };

  const redraw = () => {
    charts.splice(0).forEach(([chart]) => chart.destroy());
    draw("chart-seconds", "seconds behind, last hour", points.seconds, duration, false);
    draw("chart-bytes", "bytes behind, last hour", points.bytes, size, true);
  };

  const add = ([time, seconds, bytes]) => {
    if (points.time.length && time <= points.time[points.time.length - 1]) return;
    points.time.push(time);
    points.seconds.push(seconds);
    points.bytes.push(bytes);
    while (points.time[0] < time - HOUR) Object.values(points).forEach((column) => column.shift());
  };

  const loadCurve = async () => {
    try {
      const answer = await fetch("console/lag", { cache: "no-store" });
      if (!answer.ok) return;
      const columns = await answer.json();
      for (const name of ["time", "seconds", "bytes"]) points[name].splice(0, Infinity, ...columns[name]);
      redraw();
    } catch { /* the next connection loads it again */ }
  };

  // The parts of the page.

  const take = (message) => {
    for (const [id, html] of Object.entries(message.parts)) {
      const part = byId(id);
      if (part !== null) part.innerHTML = html; // made by the server's template, which escapes every value
    }
    byId("clock").textContent = message.now;
    byId("slot-name").textContent = message.slot;
    document.title = `${message.word} · headrace ${message.slot}`.trim();
    if (message.point !== null) {
      add(message.point);
      charts.forEach(([chart, values]) => chart.setData([points.time, values]));
    }
    expected = message.next;
    ended = message.ended;
  };

  const listen = () => {
    source = new EventSource("console/events");
    source.onopen = loadCurve;
    source.onmessage = (event) => {
      heard = Date.now();
      take(JSON.parse(event.data));
    };
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000); };
  };

  const watch = () => {
    const seconds = Math.round((Date.now() - heard) / 1000);
    const silent = ended || seconds >= expected + 3;
    silence.hidden = !silent;
    document.body.classList.toggle("is-silent", silent && !ended);
    if (ended) silence.textContent = "The run has ended; this is what it said last.";
    else if (silent) silence.textContent = `No answer for ${seconds} s: the run may have ended. Below is what it said last.`;
  };

  redraw();
  listen();
  setInterval(watch, 500);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => charts.forEach(([chart, , place]) => {
    if (place.clientWidth !== chart.width) chart.setSize({ width: place.clientWidth, height: 110 });
  })).observe(byId("chart-seconds"));
})();
