// SPDX-License-Identifier: Apache-2.0
// The module tree with the worst of each part, its magnitudes over the steps, and how its parts are joined.
import {html, link, useDocument, useEffect, useRef, useState} from 'opscope/parts';
import {t} from 'opscope/words';

export const WORST = [['unread', '·'], ['sound', '○'], ['mask', '▲'], ['near', '◐'], ['unsound', '●'], ['origin', '◆']];
const WORDS = {near: 'near the limit'};
export const Worst = ({value}) => html`<span class="status ${WORST[value][0]}"><span class="shape" aria-hidden="true">${WORST[value][1]}</span>${t(WORDS[WORST[value][0]] ?? WORST[value][0])}</span>`;

function Spark({line}) {
  const known = line.filter(value => value !== null && value > 0).map(Math.log2);
  if (known.length < 2) return html`<span class="spark"></span>`;
  const [low, high] = [Math.min(...known), Math.max(...known)], reach = Math.max(high - low, 4);
  const points = line.map((value, place) => value > 0 ? `${(place * 96 / Math.max(1, line.length - 1) + 2).toFixed(1)},${(18 - 16 * (Math.log2(value) - low) / reach).toFixed(1)}` : null).filter(Boolean).join(' ');
  return html`<svg class="spark" viewBox="0 0 100 20" role="img" aria-label=${`2^${low.toFixed(0)} … 2^${high.toFixed(0)}`}><polyline points=${points} /></svg>`;
}

// The rows that are open, from the top to the bottom.
function rows(modules, open, path = '', depth = 0) {
  const module = modules[path];
  const below = open.has(path) ? module.parts.flatMap(part => rows(modules, open, part, depth + 1)) : [];
  return [{path, depth, module}, ...below];
}
const holders = path => path.split('.').map((_, place, all) => all.slice(0, place).join('.'));

function Flow({flow, modules}) {
  if (!flow) return null;
  const path = points => points.map(([x, y], place) => `${place ? 'L' : 'M'}${x} ${y}`).join('');
  return html`<div class="graph" tabindex="0" role="group" aria-label=${t('data flow')}><div class="canvas" style=${{width: `${flow.width}px`, height: `${flow.height}px`}}>
    <svg width=${flow.width} height=${flow.height} aria-hidden="true"><defs><marker id="flow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto"><path d="M0 0L8 4L0 8z" class="head" /></marker></defs>
      ${flow.edges.map(edge => html`<path d=${path(edge.points)} class="edge" marker-end="url(#flow)" />`)}</svg>
    ${flow.nodes.map(node => { const module = modules[node.id], kind = WORST[module.worst][0]; return html`<a class="node ${kind}" style=${{left: `${node.x}px`, top: `${node.y}px`}} href=${link('model', node.id)}><span class="shape" aria-hidden="true">${WORST[module.worst][1]}</span><span class="name">${node.id.split('.').at(-1)}</span><span class="kind">${t(WORDS[kind] ?? kind)}</span><span class="said">${t('{n} calls', {n: module.calls})}</span></a>`; })}
  </div></div>`;
}

export function Model({state}) {
  const model = useDocument('model');
  const [open, put] = useState(null);
  const tree = useRef(null);
  const chosen = state.key;
  useEffect(() => {
    if (!model?.modules?.['']) return;
    const found = new Set(['', ...holders(chosen)]);
    if (!chosen) for (const [path, module] of Object.entries(model.modules)) if (module.worst === 5) for (const holder of holders(path)) found.add(holder);
    if (Object.keys(model.modules).length < 24) for (const path of Object.keys(model.modules)) found.add(path);
    put(old => new Set([...(old ?? []), ...found]));
  }, [model, chosen]);
  if (model === undefined || (model?.modules?.[''] && open === null)) return html`<p class="soft">${t('loading')} …</p>`;
  if (!model?.modules?.['']) return html`<p class="soft">${t('This run holds no calls.')}</p>`;
  const shown = rows(model.modules, open), at = Math.max(0, shown.findIndex(row => row.path === chosen));
  const toggle = path => put(old => { const now = new Set(old); if (!now.delete(path)) now.add(path); return now; });
  const go = place => { const row = shown[Math.min(shown.length - 1, Math.max(0, place))]; location.hash = link('model', row.path); tree.current?.querySelectorAll('[role=treeitem]')[shown.indexOf(row)]?.focus(); };
  const pressed = event => {
    const row = shown[at], {parts} = row.module;
    if (event.key === 'ArrowDown') go(at + 1);
    else if (event.key === 'ArrowUp') go(at - 1);
    else if (event.key === 'ArrowRight' && parts.length) { if (open.has(row.path)) go(at + 1); else toggle(row.path); }
    else if (event.key === 'ArrowLeft') { if (open.has(row.path) && parts.length) toggle(row.path); else go(shown.findIndex(other => other.path === row.path.split('.').slice(0, -1).join('.'))); }
    else if ((event.key === 'Enter' || event.key === ' ') && parts.length) toggle(row.path);
    else return;
    event.preventDefault();
  };
  const module = model.modules[chosen] ?? model.modules[''];
  return html`<div class="head"><h1>${t('The model and the worst of each part')}</h1></div><div class="columns"><section class="left">
    <div class="treehead soft"><span>${t('module')}</span><span>${t('magnitude')}</span><span>${t('calls')}</span></div>
    <ul class="tree" role="tree" ref=${tree} aria-label=${t('Model')} onKeyDown=${pressed}>${shown.map((row, place) => html`
      <li role="treeitem" key=${row.path} aria-level=${row.depth + 1} aria-selected=${place === at} aria-expanded=${row.module.parts.length ? open.has(row.path) : undefined} tabindex=${place === at ? 0 : -1} onClick=${() => { location.hash = link('model', row.path); if (row.module.parts.length) toggle(row.path); }}>
        <span class="branch" style=${{paddingLeft: `${row.depth * 18}px`}}><span class="turn" aria-hidden="true">${row.module.parts.length ? open.has(row.path) ? '▾' : '▸' : ''}</span><b>${row.path ? row.path.split('.').at(-1) : t('the model itself')}</b><${Worst} value=${row.module.worst} /></span>
        <${Spark} line=${row.module.line} /><span class="count">${row.module.calls}</span></li>`)}</ul></section>
    <section class="right"><h2>${chosen || t('the model itself')}</h2><p><${Worst} value=${module.worst} /> · ${t('{n} calls', {n: module.calls})}${module.first && html` · <a href=${link('call', module.first)}>${t('its first unsound call')}</a>`}</p>
      ${model.flows[chosen] && html`<h3>${t('data flow')}</h3><${Flow} flow=${model.flows[chosen]} modules=${model.modules} />`}</section></div>`;
}
