// Draws the graphs of the report: scopes fold and unfold, dagre lays out what is seen.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MOST = 120; // boxes in one drawing; more is slow to lay out, and nobody reads it
  const AT_ONCE = 60; // boxes that "unfold" stops at
  const READABLE = 0.7; // a drawing that would be smaller than this to be as wide as the page opens with more of it folded
  const data = JSON.parse(document.getElementById("drawings").textContent);
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = "11px system-ui, Helvetica, Arial, sans-serif";
  const widths = new Map();

  function width(text) {
    if (!widths.has(text)) widths.set(text, ruler.measureText(text).width);
    return widths.get(text);
  }

  function short(text, most) {
    return text.length <= most ? text : text.slice(0, Math.ceil(most / 2)) + "…" + text.slice(-Math.floor(most / 2) + 1);
  }

  function nodes(count) { return count === 1 ? "1 node" : `${count} nodes`; }

  function make(name, attributes, parent, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  }

  class Pane {
    constructor(root) {
      this.root = root;
      this.canvas = root.querySelector(".canvas");
      this.told = root.querySelector(".told");
      this.title = root.querySelector("b");
      this.scale = 1;
      this.least = 0.02;
      root.querySelector("[data-do=in]").onclick = () => this.zoom(1.25);
      root.querySelector("[data-do=out]").onclick = () => this.zoom(0.8);
      root.querySelector("[data-do=fit]").onclick = () => this.fit(0.02);
      root.querySelector("[data-do=full]").onclick = () => this.fill();
      root.querySelector("[data-do=fold]").onclick = () => this.unfold([]);
      root.querySelector("[data-do=unfold]").onclick = () => this.unfoldOnce();
      this.drag();
      new ResizeObserver(() => { if (this.fitted && this.size) this.fit(this.least); }).observe(this.canvas);
      this.canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 1.1 : 0.9);
      }, { passive: false });
      addEventListener("keydown", (event) => { if (event.key === "Escape") root.classList.remove("full"); });
    }

    // The browser's full screen; where that is refused, as in a frame of another page, the whole of the window.
    fill() {
      if (document.fullscreenElement) return document.exitFullscreen();
      if (this.root.classList.contains("full") || !document.fullscreenEnabled) return this.root.classList.toggle("full");
      return this.root.requestFullscreen().catch(() => this.root.classList.add("full"));
    }

    show(drawing, title) {
      this.root.hidden = !drawing;
      if (!drawing) return;
      this.drawing = drawing;
      this.title.textContent = title;
      this.tell("");
      this.canvas.parentElement.parentElement.style.removeProperty("--tall");
      const open = [...drawing.open].sort((a, b) => a - b);
      this.unfold(open, 0.02);
      while (open.length && this.canvas.clientWidth < READABLE * this.size[0]) {
        open.pop();
        this.unfold(open, 0.02);
      }
      this.fit(READABLE);
    }

    // How many pixels the drawing takes from top to bottom where it is as wide as there is room.
    wanted() {
      return this.root.hidden ? 0 : this.size[1] * Math.min(1.15, (this.canvas.clientWidth - 4) / this.size[0]) + 24;
    }

    unfold(groups, least = 0.7) {
      this.open = new Set(groups);
      this.render();
      this.fit(least);
    }

    unfoldOnce() {
      const seen = this.boxes().ids.filter((id) => id < 0 && this.members(-1 - id).length);
      const next = new Set(this.open);
      let count = this.boxes().ids.length;
      for (const id of seen) {
        const more = this.members(-1 - id).length - 1;
        if (count + more > AT_ONCE) break;
        count += more;
        next.add(-1 - id);
      }
      if (next.size === this.open.size) return this.tell("Unfold scopes one by one from here: click them.");
      this.unfold(next);
    }

    toggle(group) {
      const open = new Set(this.open);
      if (open.has(group)) open.delete(group);
      else if (!this.members(group).length) return this.tell(`${this.drawing.groups[group].scope}: too large for this page; take --scope`);
      else open.add(group);
      const before = this.open;
      this.open = open;
      if (this.boxes().ids.length > MOST) {
        this.open = before;
        return this.tell(`more than ${MOST} boxes would be seen: fold others first`);
      }
      this.render();
      this.fitted = false;
      this.bring(this.placed.node(open.has(group) ? `c${group}` : `b${-1 - group}`));
    }

    // Scrolls to something that moved because the drawing was laid out anew.
    bring(at) {
      if (!at) return;
      this.canvas.scrollLeft = at.x * this.scale - this.canvas.clientWidth / 2;
      this.canvas.scrollTop = (at.y - at.height / 2) * this.scale - 60;
    }

    members(group) {
      if (!this.drawing.members) {
        const members = this.drawing.groups.map(() => []);
        this.drawing.groups.forEach((g, i) => { if (g.parent >= 0) members[g.parent].push(-1 - i); });
        this.drawing.leaves.forEach((leaf, i) => { if (leaf.group >= 0) members[leaf.group].push(i); });
        this.drawing.members = members;
      }
      return this.drawing.members[group];
    }

    // What is seen: ids of boxes (a leaf's place, or -1 - a group's), and a function from any id to the box around it.
    boxes() {
      const around = new Map();
      const { groups, leaves } = this.drawing;
      const outermost = (group) => {
        if (group < 0) return null;
        if (!around.has(group)) {
          const outer = outermost(groups[group].parent);
          around.set(group, outer !== null ? outer : this.open.has(group) ? null : -1 - group);
        }
        return around.get(group);
      };
      const box = (id) => {
        const outer = outermost(id < 0 ? groups[-1 - id].parent : leaves[id].group);
        return outer !== null ? outer : id;
      };
      const ids = new Set();
      leaves.forEach((_, i) => ids.add(box(i)));
      groups.forEach((_, i) => { if (!this.open.has(i) && outermost(groups[i].parent) === null) ids.add(-1 - i); });
      return { ids: [...ids], box };
    }

    render() {
      const { groups, leaves, edges } = this.drawing;
      const { ids, box } = this.boxes();
      const lines = new Map();
      for (const id of ids) {
        const item = id < 0 ? groups[-1 - id] : leaves[id];
        const gone = item.removed ? `, ${item.removed} removed` : "";
        const below = id < 0 ? [`${nodes(item.count)}${gone}`] : item.kind === "node" ? item.states.slice(0, 2) : [item.brief];
        lines.set(id, [short(item.label, 34), ...below.map((line) => short(line, 34))]);
      }
      const counts = new Map();
      for (const [a, b, count] of edges) {
        const from = box(a), to = box(b);
        if (from === to) continue;
        const key = `${from} ${to}`;
        counts.set(key, (counts.get(key) || 0) + count);
      }
      // dagre fails on some nested graphs with one way of ranking and not with another; without nesting on none.
      const rankers = ids.length > 60 ? ["longest-path"] : ["network-simplex", "longest-path"];
      for (const [ranker, nested] of [...rankers.map((name) => [name, true]), ["longest-path", false]]) {
        try {
          this.paint(this.layout(lines, counts, ranker, nested), ids, lines, counts);
          return;
        } catch (error) {
          console.warn(`${ranker}: ${error.message}`);
        }
      }
    }

    layout(lines, counts, ranker, nested) {
      const { groups, leaves } = this.drawing;
      const graph = new dagre.graphlib.Graph({ compound: true });
      graph.setGraph({ rankdir: "TB", nodesep: 12, ranksep: 30, edgesep: 8, marginx: 12, marginy: 18, ranker });
      graph.setDefaultEdgeLabel(() => ({}));
      for (const [id, text] of lines) {
        graph.setNode(`b${id}`, { width: Math.max(...text.map(width)) + 18, height: 10 + 14 * text.length });
      }
      for (const id of nested ? lines.keys() : []) {
        let inner = `b${id}`;
        for (let up = id < 0 ? groups[-1 - id].parent : leaves[id].group; up >= 0; up = groups[up].parent) {
          const outer = `c${up}`, known = graph.hasNode(outer);
          if (!known) graph.setNode(outer, {});
          graph.setParent(inner, outer);
          if (known) break;
          inner = outer;
        }
      }
      for (const key of counts.keys()) {
        const [from, to] = key.split(" ");
        graph.setEdge(`b${from}`, `b${to}`);
      }
      dagre.layout(graph);
      return graph;
    }

    paint(graph, ids, lines, counts) {
      const { width: w, height: h } = graph.graph();
      this.size = [Math.max(w, 10), Math.max(h, 10)];
      const svg = make("svg", { viewBox: `0 0 ${this.size[0]} ${this.size[1]}`, role: "img", "aria-label": this.title.textContent });
      const clusters = graph.nodes().filter((name) => name[0] === "c").map((name) => [+name.slice(1), graph.node(name)]);
      clusters.sort((a, b) => b[1].width * b[1].height - a[1].width * a[1].height);
      // Words come last: an edge may pass below them, never through.
      const labels = document.createElementNS(SVG, "g");
      for (const [group, at] of clusters) this.cluster(svg, labels, group, at);
      for (const way of this.ways(graph)) this.edge(svg, labels, way, counts.get(`${way.edge.v.slice(1)} ${way.edge.w.slice(1)}`));
      for (const id of ids) this.box(svg, id, graph.node(`b${id}`), lines.get(id));
      labels.setAttribute("class", "label");
      svg.append(labels);
      this.canvas.replaceChildren(svg);
      this.placed = graph;
      this.svg = svg;
      this.resize();
    }

    cluster(svg, labels, group, at) {
      const item = this.drawing.groups[group];
      const g = this.pressable(make("g", { class: `cluster opens ${item.part}` }, svg), () => this.toggle(group));
      const x = at.x - at.width / 2, y = at.y - at.height / 2 - 7;
      make("rect", { x, y, width: at.width, height: at.height + 7, rx: 8 }, g);
      const most = Math.max(6, Math.floor((at.width - 14) / (0.87 * width(item.label) / item.label.length)) - 2);
      make("title", {}, g, `${item.scope || item.label} (click to fold)`);
      make("text", { class: "small", x: x + 7, y: y + 11, "pointer-events": "none" }, labels, "− " + short(item.label, most));
    }

    // Boxes stand in rows. An edge leaves and enters boxes by ports, crosses a row straight down where dagre has left
    // room, and turns between rows alone: so it passes below no box.
    ways(graph) {
      const rows = new Map(), ports = new Map();
      for (const name of graph.nodes().filter((name) => name[0] === "b")) {
        const { y, height } = graph.node(name);
        rows.set(Math.round(y), Math.max(height / 2, rows.get(Math.round(y)) || 0));
      }
      const ways = graph.edges().map((edge) => {
        const from = graph.node(edge.v), to = graph.node(edge.w), inner = graph.edge(edge).points.slice(1, -1);
        const way = { edge, from, to, down: to.y > from.y ? 1 : -1, inner, crowd: {} };
        const towards = [inner.length ? inner[0].x : to.x, inner.length ? inner[inner.length - 1].x : from.x];
        for (const [i, name, side, which] of [[0, edge.v, way.down, "start"], [1, edge.w, -way.down, "end"]]) {
          const port = `${name} ${side}`;
          ports.set(port, [...(ports.get(port) || []), [towards[i], way, which, i ? to : from]]);
        }
        return way;
      });
      for (const several of ports.values()) {
        several.sort((p, q) => p[0] - q[0]);
        const step = Math.min(9, (several[0][3].width - 10) / several.length);
        several.forEach(([, way, which, box], i) => {
          way[which] = box.x + (i - (several.length - 1) / 2) * step;
          way.crowd[which] = several.length;
        });
      }
      for (const way of ways) {
        const half = (y) => way.down * (rows.get(Math.round(y)) || 0);
        way.stops = [{ x: way.start, in: way.from.y + way.down * way.from.height / 2, out: way.from.y + half(way.from.y) }];
        for (const { x, y } of way.inner) way.stops.push({ x, in: y - half(y), out: y + half(y) });
        way.stops.push({ x: way.end, in: way.to.y - half(way.to.y), out: way.to.y - way.down * way.to.height / 2 });
      }
      return ways;
    }

    edge(svg, labels, way, count) {
      let path = `M${way.start},${way.stops[0].in}V${way.stops[0].out}`;
      way.stops.slice(1).forEach((stop, i) => {
        const middle = (way.stops[i].out + stop.in) / 2;
        path += `C${way.stops[i].x},${middle} ${stop.x},${middle} ${stop.x},${stop.in}V${stop.out}`;
      });
      make("path", { class: "edge", d: path, "stroke-width": count > 1 ? 1.8 : 1 }, svg);
      const end = way.stops[way.stops.length - 1].out;
      make("path", { class: "tip", d: "M0,0L-3,-6L3,-6Z", transform: `translate(${way.end},${end}) scale(1,${way.down})` }, svg);
      if (count > 1) {
        const first = way.stops[0], last = way.stops[way.stops.length - 1];
        const at = way.crowd.start < way.crowd.end ? [first.x, first.out + way.down * 10] : [last.x, last.in - way.down * 5];
        make("text", { class: "small", x: at[0] + 5, y: at[1], "pointer-events": "none" }, labels, `${count}`);
      }
    }

    box(svg, id, at, lines) {
      const item = id < 0 ? this.drawing.groups[-1 - id] : this.drawing.leaves[id];
      const g = make("g", { class: `${item.part || ""} ${item.mark || ""}` }, svg);
      if (item.by && data.passes[item.by] && !item.mark) {
        g.classList.add("made");
        g.style.setProperty("--by", data.passes[item.by]);
      }
      const x = at.x - at.width / 2, y = at.y - at.height / 2;
      if (id < 0) make("rect", { class: "box", x: x + 3, y: y - 3, width: at.width, height: at.height, rx: 4 }, g);
      const round = id >= 0 && item.kind !== "node" ? at.height / 2 : 5;
      make("rect", { class: "box", x, y, width: at.width, height: at.height, rx: round }, g);
      lines.forEach((line, i) => make("text", { x: at.x, y: y + 16 + 14 * i, "text-anchor": "middle", class: i ? "small" : "" }, g, line));
      make("title", {}, g, this.describe(item, id));
      this.pressable(g, () => {
        for (const chosen of svg.querySelectorAll(".chosen")) chosen.classList.remove("chosen");
        g.classList.add("chosen");
        this.tell(this.describe(item, id));
        if (id < 0) this.toggle(-1 - id);
      });
    }

    describe(item, id) {
      if (id < 0) return `${item.scope || item.label}: ${nodes(item.count)}`;
      const facts = [item.name && `%${item.name}`, item.kind === "node" ? item.label : item.kind, item.type, item.part];
      if (item.by) facts.push(`made by ${item.by}`);
      if (item.mark) facts.push(item.mark);
      if (item.states.length) facts.push(`state ${item.states.join(", ")}`);
      if (item.sources) facts.push(`from ${item.sources}`);
      return facts.filter(Boolean).join(" · ");
    }

    pressable(element, action) {
      element.classList.add("opens");
      element.setAttribute("tabindex", "0");
      element.setAttribute("role", "button");
      element.addEventListener("click", (event) => { event.stopPropagation(); if (!this.moved) action(); });
      element.addEventListener("keydown", (event) => { if (event.key === "Enter") action(); });
      return element;
    }

    tell(text) { this.told.textContent = text || "Click a box to see what it is, a scope to fold or unfold it."; }

    // All of the drawing in view, unless that makes it smaller than the scale "least".
    fit(least) {
      this.least = least;
      const [w, h] = this.size;
      const room = this.canvas.clientWidth - 4;
      this.scale = Math.max(least, Math.min(1.15, room / w, (this.canvas.clientHeight - 4) / h));
      this.fitted = true;
      this.resize();
      this.canvas.scrollLeft = (w * this.scale - room) / 2;
      this.canvas.scrollTop = 0;
    }

    zoom(factor) {
      const c = this.canvas;
      const x = (c.scrollLeft + c.clientWidth / 2) * factor, y = (c.scrollTop + c.clientHeight / 2) * factor;
      this.scale = Math.min(4, Math.max(0.02, this.scale * factor));
      this.fitted = false;
      this.resize();
      c.scrollLeft = x - c.clientWidth / 2;
      c.scrollTop = y - c.clientHeight / 2;
    }

    resize() {
      this.svg.setAttribute("width", this.size[0] * this.scale);
      this.svg.setAttribute("height", this.size[1] * this.scale);
    }

    // A mouse drags the drawing; fingers scroll it as they scroll anything.
    drag() {
      let start = null;
      const c = this.canvas;
      c.addEventListener("pointerdown", (event) => {
        this.moved = false;
        if (event.pointerType === "mouse") start = [event.clientX + c.scrollLeft, event.clientY + c.scrollTop];
      });
      addEventListener("pointermove", (event) => {
        if (!start) return;
        const left = start[0] - event.clientX, top = start[1] - event.clientY;
        if (Math.abs(left - c.scrollLeft) + Math.abs(top - c.scrollTop) > 4) this.moved = true;
        if (!this.moved) return;
        c.classList.add("dragged");
        c.scrollLeft = left;
        c.scrollTop = top;
      });
      addEventListener("pointerup", () => { start = null; c.classList.remove("dragged"); });
    }
  }

  const panes = document.getElementById("panes");
  if (!panes) return;
  const [before, after] = [...panes.querySelectorAll(".pane")].map((root) => new Pane(root));
  const choice = document.getElementById("scene");
  const show = () => {
    const scene = data.scenes[+choice.value];
    panes.classList.toggle("two", scene.before !== null && scene.after !== null);
    before.show(data.drawings[scene.before], scene.titles[0]);
    after.show(data.drawings[scene.after], scene.titles[1]);
    panes.style.setProperty("--tall", `${Math.ceil(Math.max(before.wanted(), after.wanted()))}px`);
  };
  choice.addEventListener("change", show);
  // A frame may have no width yet when its scripts run.
  const wide = new ResizeObserver(() => { if (panes.clientWidth) { wide.disconnect(); show(); } });
  wide.observe(panes);
})();
