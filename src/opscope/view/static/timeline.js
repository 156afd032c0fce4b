// SPDX-License-Identifier: Apache-2.0
// All steps and calls as a strip on a canvas: tiles of bytes, coloured by what one wants to see.
import {html, link, read, useDocument, useEffect, useRef, useState} from 'opscope/parts';
import {get, live} from 'opscope/source';
import {t} from 'opscope/words';

const LEFT = 74, TOP = 34;
const HEALTH = ['unread', 'sound', 'mask', 'near the limit', 'unsound', 'origin'];
const HEALTH_COLOURS = {light: ['#dfe2e6', '#9fd0be', '#f0c34e', '#e58a2b', '#c2410c', '#5b0f0f'], dark: ['#2b3138', '#1f6f56', '#b98a1c', '#e58a2b', '#ff7a3c', '#ffe9df']};
const dark = () => { const theme = document.documentElement.dataset.theme; return theme === 'dark' || (theme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches); };

// Viridis, five stops of it: light and dark in order for every eye (doi:10.1109/MCG.2015.131).
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function viridis(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (STOPS.length - 1), from = Math.floor(at), part = at - from;
  return STOPS[from].map((value, place) => Math.round(value + part * (STOPS[from + 1][place] - value)));
}
const parsed = text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));

export function palette(plane, [low, high] = [1, 255]) {
  const theme = dark() ? 'dark' : 'light';
  const none = parsed(HEALTH_COLOURS[theme][0]);
  return Array.from({length: 256}, (_, value) => {
    if (plane === 'health') return parsed(HEALTH_COLOURS[theme][Math.min(value, 5)]);
    return value === 0 ? none : viridis((value - low) / Math.max(1, high - low));
  });
}

// What is drawn: window of columns and rows, the tiles there are, and where the cursor stands.
class Strip {
  constructor(canvas, timeline, tell) {
    Object.assign(this, {canvas, timeline, tell, tiles: new Map(), pictures: new Map(), plane: 'health', cursor: null, queued: false});
    this.context = canvas.getContext('2d');
    this.whole();
  }
  whole() { this.window = {x: 0, y: 0, columns: Math.max(1, this.timeline.columns), rows: Math.max(1, this.timeline.rows.length)}; this.draw(); }
  size() { return {width: this.canvas.clientWidth - LEFT, height: this.canvas.clientHeight - TOP}; }
  draw() { if (!this.queued) { this.queued = true; requestAnimationFrame(() => { this.queued = false; this.paint(); }); } }
  colour(plane) { this.plane = plane; this.pictures.clear(); this.draw(); }
  level() {
    const {width, height} = this.size();
    const [across, down] = [this.window.columns / width, this.window.rows / height];
    // The finest whose cells are wider than a pixel: what is drawn smaller may be left out, and it may be the one that is wrong.
    const found = this.timeline.levels.findIndex(([x, y]) => x >= across * 1.25 && y >= down * 1.25);
    return found < 0 ? this.timeline.levels.length - 1 : found;
  }
  picture(name) {
    const tile = this.tiles.get(name);
    if (tile === undefined) {
      this.tiles.set(name, null);
      const own = this.timeline.expression;
      get('tiles', own ? `${name}/${own}` : name).then(found => { this.tiles.set(name, found ?? null); if (this.cursor) this.tell(this.cell(this.cursor)); this.draw(); }, () => {});
      return null;
    }
    if (tile === null) return null;
    if (!this.pictures.has(name)) {
      const bytes = atob(tile[this.plane] ?? ''), colours = this.colours ??= {}, key = `${this.plane} ${dark()}`;
      const table = colours[key] ??= palette(this.plane, this.plane === 'magnitude' ? [104, 160] : [1, 255]);
      const picture = Object.assign(document.createElement('canvas'), {width: tile.columns, height: tile.rows});
      const context = picture.getContext('2d'), image = context.createImageData(tile.columns, tile.rows);
      for (let place = 0; place < bytes.length; place++) {
        const [red, green, blue] = table[bytes.charCodeAt(place)];
        image.data.set([red, green, blue, 255], place * 4);
      }
      context.putImageData(image, 0, 0);
      this.pictures.set(name, picture);
    }
    return this.pictures.get(name);
  }
  paint() {
    const {canvas, context, window: seen, timeline} = this, {width, height} = this.size(), scale = devicePixelRatio || 1;
    if (width <= 0) return;
    canvas.width = canvas.clientWidth * scale; canvas.height = canvas.clientHeight * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    context.imageSmoothingEnabled = false;
    const level = this.level(), [across, down] = timeline.levels[level];
    const toX = column => LEFT + (column - seen.x) * width / seen.columns, toY = row => TOP + (row - seen.y) * height / seen.rows;
    context.save(); context.beginPath(); context.rect(LEFT, TOP, width, height); context.clip();
    const wide = timeline.tile * across, tall = timeline.tile * down;
    for (let y = Math.floor(seen.y / tall); y * tall < Math.min(seen.y + seen.rows, timeline.rows.length); y++) {
      for (let x = Math.floor(seen.x / wide); x * wide < Math.min(seen.x + seen.columns, timeline.columns); x++) {
        const picture = this.picture(`${level}/${x}/${y}`);
        if (!picture) continue;
        const left = toX(x * wide), top = toY(y * tall);
        context.drawImage(picture, left, top, picture.width * across * width / seen.columns, picture.height * down * height / seen.rows);
      }
    }
    this.paintEnds(context, toX, toY, width);
    this.paintGrid(context, toX, toY, width, height);
    this.paintCursor(context, toX, toY);
    context.restore();
    this.paintAxes(context, toX, toY, width, height);
  }
  // Where a step has no more calls there is nothing, not an unread one.
  paintEnds(context, toX, toY, width) {
    const {timeline, window: seen} = this;
    if (seen.rows > 2000) return;
    context.fillStyle = getComputedStyle(this.canvas).backgroundColor;
    for (let row = Math.max(0, Math.floor(seen.y)); row < Math.min(timeline.rows.length, seen.y + seen.rows); row++) {
      const end = toX(Math.ceil(timeline.rows[row][4] / timeline.fold));
      if (end < LEFT + width) context.fillRect(Math.max(LEFT, end), toY(row) - 0.5, LEFT + width, toY(row + 1) - toY(row) + 1);
    }
  }
  paintGrid(context, toX, toY, width, height) {
    const {window: seen} = this;
    context.strokeStyle = dark() ? '#11141855' : '#ffffff77'; context.lineWidth = 1;
    if (height / seen.rows > 9) for (let row = Math.ceil(seen.y); row < seen.y + seen.rows; row++) { context.beginPath(); context.moveTo(LEFT, toY(row)); context.lineTo(LEFT + width, toY(row)); context.stroke(); }
    if (width / seen.columns > 7) for (let column = Math.ceil(seen.x); column < seen.x + seen.columns; column++) { context.beginPath(); context.moveTo(toX(column), TOP); context.lineTo(toX(column), TOP + height); context.stroke(); }
  }
  paintCursor(context, toX, toY) {
    if (!this.cursor) return;
    const [column, row] = this.cursor;
    const [left, top] = [toX(column), toY(row)], [wide, tall] = [Math.max(4, toX(column + 1) - left), Math.max(4, toY(row + 1) - top)];
    context.lineWidth = 3; context.strokeStyle = dark() ? '#111418' : '#fff'; context.strokeRect(left - 2, top - 2, wide + 4, tall + 4);
    context.lineWidth = 2; context.strokeStyle = dark() ? '#fff' : '#111'; context.strokeRect(left - 2, top - 2, wide + 4, tall + 4);
  }
  paintAxes(context, toX, toY, width, height) {
    const {timeline, window: seen} = this;
    context.fillStyle = getComputedStyle(this.canvas).color; context.font = '12px system-ui, sans-serif'; context.textBaseline = 'middle'; context.textAlign = 'right';
    const many = new Set(timeline.rows.map(row => row[0])).size > 1;
    let last = -99;
    for (let row = Math.max(0, Math.floor(seen.y)); row < Math.min(timeline.rows.length, seen.y + seen.rows); row++) {
      const middle = (toY(row) + toY(row + 1)) / 2;
      if (middle - last < 16 || middle < TOP) continue;
      last = middle;
      const [rank, , step] = timeline.rows[row];
      context.fillText(many ? `r${rank} · ${step}` : `${t('step')} ${step}`, LEFT - 8, middle);
    }
    context.textAlign = 'left';
    const phases = timeline.sequences[timeline.rows[Math.max(0, Math.min(timeline.rows.length - 1, Math.floor(seen.y + seen.rows / 2)))]?.[5]]?.phases ?? [];
    let free = 0;
    phases.forEach(([phase, begin], place) => {
      const [from, to] = [toX(begin / timeline.fold), place + 1 < phases.length ? toX(phases[place + 1][1] / timeline.fold) : toX(timeline.columns)];
      const [left, right] = [Math.max(LEFT, from), Math.min(LEFT + width, to)];
      if (right - left < 3) return;
      context.globalAlpha = 0.35; context.fillRect(left, TOP - 6, right - left - 1, 3); context.globalAlpha = 1;
      const word = t(phase);
      if (left >= free && right - left > 30) { context.fillText(word, left, TOP - 17, right - left); free = left + context.measureText(word).width + 8; }
    });
  }
  at(event) {
    const box = this.canvas.getBoundingClientRect(), {width, height} = this.size(), {window: seen} = this;
    const column = Math.floor(seen.x + (event.clientX - box.left - LEFT) * seen.columns / width), row = Math.floor(seen.y + (event.clientY - box.top - TOP) * seen.rows / height);
    return column >= 0 && row >= 0 && column < this.timeline.columns && row < this.timeline.rows.length ? [column, row] : null;
  }
  point(cursor) { this.cursor = cursor; this.tell(cursor && this.cell(cursor)); this.draw(); }
  cell([column, row]) {
    const {timeline} = this, [rank, process, step, begin, calls, sequence] = timeline.rows[row], known = timeline.sequences[sequence], first = column * timeline.fold;
    const covered = Math.min(timeline.fold, calls - first);
    if (covered <= 0) return null;
    const name = `0/${Math.floor(column / timeline.tile)}/${Math.floor(row / timeline.tile)}`;
    if (!this.tiles.has(name)) this.picture(name); // told again once it is there
    const tile = this.tiles.get(name);
    const value = tile && tile[this.plane] ? atob(tile[this.plane]).charCodeAt((row % timeline.tile) * tile.columns + column % timeline.tile) : undefined;
    let number;
    if (known) { number = begin; for (let place = 0; place <= first; place++) number += known.numbers[place]; }
    return {rank, step, id: number === undefined ? null : `${process}.${number}`, name: known?.names[first], covered, value, row, column};
  }
  zoom(factor, column, row, {across = true, down = true} = {}) {
    const {window: seen, timeline} = this;
    const fit = (size, all, least) => Math.min(all, Math.max(least, size));
    if (across) { const size = fit(seen.columns * factor, timeline.columns, Math.min(8, timeline.columns)); seen.x = Math.min(timeline.columns - size, Math.max(0, column - (column - seen.x) * size / seen.columns)); seen.columns = size; }
    if (down) { const size = fit(seen.rows * factor, timeline.rows.length, Math.min(4, timeline.rows.length)); seen.y = Math.min(timeline.rows.length - size, Math.max(0, row - (row - seen.y) * size / seen.rows)); seen.rows = size; }
    this.draw();
  }
  move(columns, rows) {
    const {window: seen, timeline} = this;
    seen.x = Math.min(timeline.columns - seen.columns, Math.max(0, seen.x + columns)); seen.y = Math.min(timeline.rows.length - seen.rows, Math.max(0, seen.y + rows));
    this.draw();
  }
  show([column, row]) {
    const {window: seen} = this;
    if (column < seen.x || column >= seen.x + seen.columns) this.move(column - seen.x - seen.columns / 2, 0);
    if (row < seen.y || row >= seen.y + seen.rows) this.move(0, row - seen.y - seen.rows / 2);
  }
}

function told(cell, plane, timeline) {
  if (!cell) return '';
  const value = cell.value === undefined ? '' : plane === 'health' ? t(HEALTH[cell.value]) : cell.value === 0 ? t('unread')
    : plane === 'magnitude' ? `2^${cell.value - 128}` : plane === 'zeros' ? `${Math.round((cell.value - 1) / 2.54)} % 0` : timeline.scale ? (timeline.scale[0] + (cell.value - 1) / 254 * (timeline.scale[1] - timeline.scale[0])).toPrecision(4) : '';
  return [`${t('rank')} ${cell.rank}`, `${t('step')} ${cell.step}`, cell.name ?? '', cell.covered > 1 ? t('{n} calls', {n: cell.covered}) : '', value].filter(Boolean).join(' · ');
}

function Legend({plane, timeline}) {
  const names = {magnitude: ['2^-24', '2^32'], zeros: ['0 %', '100 %'], own: timeline.scale?.map(value => value.toPrecision(4)) ?? ['', ''], distance: ['0', '1']}[plane];
  const theme = dark() ? 'dark' : 'light';
  if (plane === 'health') return html`<p class="legend">${HEALTH.map((word, place) => html`<span class="status unread"><span class="swatch" style=${{background: HEALTH_COLOURS[theme][place]}}></span>${place ? `${place} ` : ''}${t(word)}</span>`)}</p>`;
  const table = palette(plane);
  return html`<p class="legend"><span>${names[0]}</span><span class="ramp" aria-hidden="true">${Array.from({length: 24}, (_, place) => html`<span style=${{background: `rgb(${table[Math.round(1 + place * 254 / 23)]})`}}></span>`)}</span><span>${names[1]}</span></p>`;
}

const TITLES = {health: 'health', magnitude: 'magnitude', zeros: 'underflow (share of zeros)', distance: 'distance from golden', own: 'own expression'};

export function Timeline({state}) {
  const expression = state.options.sql ?? '';
  const timeline = useDocument('timeline', live && expression ? expression : undefined);
  const box = useRef(null), strip = useRef(null);
  const [cell, put] = useState(null);
  const planes = timeline?.planes ?? [];
  const plane = planes.includes(state.options.colour) ? state.options.colour : expression && planes.includes('own') ? 'own' : 'health';
  const keep = options => { const {view, key, options: old} = read(location.hash); history.replaceState(null, '', `${link(view, key).split('?')[0]}?${new URLSearchParams({...old, ...options})}`); };
  useEffect(() => {
    if (!timeline?.rows?.length || !box.current) return undefined;
    const canvas = box.current, found = new Strip(canvas, {...timeline, expression: live ? expression : ''}, put);
    strip.current = found;
    const window_ = (state.options.window ?? '').split(',').map(Number);
    if (window_.length === 4 && window_.every(Number.isFinite) && window_[2] > 0 && window_[3] > 0) Object.assign(found.window, {x: window_[0], y: window_[1], columns: window_[2], rows: window_[3]});
    found.colour(plane);
    if (state.options.at) found.point(state.options.at.split(',').map(Number));
    let from = null;
    const moved = () => keep({window: Object.values(found.window).map(value => Number(value.toFixed(2))).join(',')});
    const wheel = event => {
      event.preventDefault();
      const at = found.at(event) ?? [found.window.x + found.window.columns / 2, found.window.y + found.window.rows / 2];
      if (event.shiftKey) found.move(event.deltaY * found.window.columns / 1500, 0);
      else found.zoom(Math.exp(event.deltaY / 500), at[0] + 0.5, at[1] + 0.5, {down: event.altKey || timeline.rows.length > 64});
      moved();
    };
    const press = event => { from = {x: event.clientX, y: event.clientY, moved: false}; canvas.setPointerCapture(event.pointerId); };
    const drag = event => {
      if (!from) { found.point(found.at(event)); return; }
      const {width, height} = found.size(), [x, y] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(x) + Math.abs(y) > 3 || from.moved) { from = {x: event.clientX, y: event.clientY, moved: true}; found.move(-x * found.window.columns / width, -y * found.window.rows / height); }
    };
    const release = event => {
      const clicked = from && !from.moved; from = null; moved();
      if (!clicked) return;
      const at = found.at(event);
      if (at) { found.point(at); keep({at: at.join(',')}); const chosen = found.cell(at); if (chosen?.covered > 1) found.zoom(0.25, at[0], at[1]); else if (chosen?.id) location.hash = link('call', chosen.id); }
    };
    const key = event => {
      const at = found.cursor ?? [Math.floor(found.window.x), Math.floor(found.window.y)];
      const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      if (steps) { const big = event.shiftKey ? 20 : 1; const to = [Math.min(timeline.columns - 1, Math.max(0, at[0] + steps[0] * big)), Math.min(timeline.rows.length - 1, Math.max(0, at[1] + steps[1] * big))]; found.point(to); found.show(to); keep({at: to.join(',')}); }
      else if (event.key === '+' || event.key === '=') { found.zoom(0.6, ...at); moved(); }
      else if (event.key === '-') { found.zoom(1.7, ...at); moved(); }
      else if (event.key === '0') { found.whole(); moved(); }
      else if (event.key === 'Enter') { const chosen = found.cell(at); if (chosen?.id) location.hash = link('call', chosen.id); }
      else return;
      event.preventDefault(); event.stopPropagation();
    };
    const listeners = {wheel, pointerdown: press, pointermove: drag, pointerup: release, keydown: key};
    for (const [name, listener] of Object.entries(listeners)) canvas.addEventListener(name, listener, {passive: false});
    const observer = new ResizeObserver(() => found.draw());
    observer.observe(canvas);
    return () => { observer.disconnect(); for (const [name, listener] of Object.entries(listeners)) canvas.removeEventListener(name, listener); };
  }, [timeline]);
  useEffect(() => { strip.current?.colour(plane); if (strip.current?.cursor) strip.current.point(strip.current.cursor); }, [plane]);
  if (timeline === undefined) return html`<p class="soft">${t('loading')} …</p>`;
  if (timeline instanceof Error) return html`<div class="hero"><h1>${timeline.message}</h1><p><a href=${link('timeline')}>${t('everything')}</a></p></div>`;
  if (!timeline?.rows.length) return html`<p class="soft">${t('This run holds no calls.')}</p>`;
  const choose = value => { location.hash = link('timeline', '', {...state.options, colour: value}); };
  const height = Math.min(640, Math.max(220, 34 + timeline.rows.length * 34));
  return html`<div class="head"><h1>${t('Every call of every step')}</h1><p class="soft">${t('A row for each step, a column for each call. Drag to move, scroll to zoom, click to open; arrows, + − 0 and Enter do the same.')}</p></div>
    <div class="controls"><label>${t('colour')} <select value=${plane} onChange=${event => choose(event.target.value)}>${planes.map(name => html`<option value=${name}>${t(TITLES[name] ?? name)}</option>`)}</select></label>
      ${live && html`<form class="sql" onSubmit=${event => { event.preventDefault(); const sql = event.target.elements.sql.value.trim(); const {sql: _, colour: __, ...rest} = state.options; location.hash = link('timeline', '', sql ? {...rest, sql, colour: 'own'} : rest); }}><label>SQL <input name="sql" value=${expression} placeholder="log2(abs(max))" size="34" /></label></form>`}
      <button class="copy" onClick=${() => { strip.current.whole(); keep({window: ''}); }}>${t('everything')}</button>
      <${Legend} plane=${plane} timeline=${timeline} /></div>
    <canvas class="strip" ref=${box} tabindex="0" role="application" aria-label=${t('Every call of every step')} aria-describedby="cell" style=${{height: `${height}px`}}></canvas>
    <p class="cell" id="cell" role="status">${told(cell, plane, timeline) || ' '}</p>`;
}
