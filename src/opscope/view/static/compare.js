// SPDX-License-Identifier: Apache-2.0
// Runs side by side: the modules of all, and of two the table of all tensors and what differences look like.
import {html, link, useDocument, useEffect, useMemo, useRef, useState} from 'opscope/parts';
import {palette} from 'opscope/timeline';
import {t} from 'opscope/words';

const KINDS = {same: ['sound', '='], unknown: ['unread', '?'], noise: ['sound', '≈'], structural: ['mask', '≠'], receiver: ['unsound', '●'], amplifier: ['unsound', '▲'], origin: ['origin', '◆']};
const FIRST = 300, MORE = 1000;
const Verdict = ({word}) => { const [kind, shape] = KINDS[word] ?? ['unread', '·']; return html`<span class="status ${kind}"><span class="shape" aria-hidden="true">${shape}</span>${t(word)}</span>`; };
const number = value => typeof value === 'number' ? value : value === 'inf' ? Infinity : value === '-inf' ? -Infinity : NaN;
function ordered(column, down) {
  return (one, other) => {
    const [x, y] = [number(one[column]), number(other[column])];
    const found = isNaN(x) && isNaN(y) ? String(one[column]).localeCompare(String(other[column])) : isNaN(x) ? 1 : isNaN(y) ? -1 : x - y;
    return down ? -found : found;
  };
}

// Which modules are open, and a path with all that is shown below it.
function useTree(modules) {
  const worse = path => modules[path].parts.some(part => modules[part].verdict !== 'same');
  const [open, put] = useState(() => new Set(Object.keys(modules).length < 40 ? Object.keys(modules) : Object.keys(modules).filter(path => path.split('.').length < 3 && (path === '' || worse(path)))));
  const rows = (path = '', depth = 0) => [{path, depth}, ...(open.has(path) ? modules[path].parts.flatMap(part => rows(part, depth + 1)) : [])];
  const toggle = path => put(old => { const now = new Set(old); if (!now.delete(path)) now.add(path); return now; });
  const turn = path => modules[path].parts.length > 0 && html`<button class="turn" aria-expanded=${open.has(path)} aria-label=${path || t('the model itself')} onClick=${() => toggle(path)}>${open.has(path) ? '▾' : '▸'}</button>`;
  return [modules[''] ? rows() : [], turn];
}

const Named = ({row}) => html`<b style=${{paddingLeft: `${row.depth * 14}px`}}>${row.path ? row.path.split('.').at(-1) : t('the model itself')}</b>`;
const digits = error => error ? Number(error).toPrecision(3) : '0';
const label = path => path.replace(/\/+$/, '').split('/').at(-1);

// The modules of all runs that the target is set beside, a column a run; of a module that several have the parts of all.
function together(all) {
  const found = {};
  for (const {modules} of all) for (const [path, {verdict, parts}] of Object.entries(modules)) {
    const here = found[path] ??= {verdict: 'same', parts: []};
    if (verdict !== 'same') here.verdict = verdict;
    here.parts = [...new Set([...here.parts, ...parts])].sort();
  }
  return found;
}

function Several({all, chosen, pair}) {
  const modules = useMemo(() => together(all), [all]), [rows, turn] = useTree(modules);
  const cell = (one, place, {path}) => {
    const module = one.modules[path];
    return html`<td class=${place === pair ? 'here' : ''}>${module ? html`<a href=${link('compare', path, {with: place})}><${Verdict} word=${module.verdict} /> <span class="soft">${digits(module.error)}</span></a>` : html`<span class="soft">— ${t('not there')}</span>`}</td>`;
  };
  return html`<section><h2>${t('every run beside the target')}</h2><div class="wide" tabindex="0" role="group" aria-label=${t('every run beside the target')}><table class="sides several"><thead><tr><th></th><th scope="col">${t('target')}</th>${all.map((one, place) => html`<th scope="col" class=${place === pair ? 'here' : ''}><a href=${link('compare', chosen, {with: place})} aria-current=${place === pair ? 'true' : undefined} title=${one.runs[1]}>${label(one.runs[1])}</a></th>`)}</tr></thead>
    <tbody>${rows.map(row => html`<tr key=${row.path} class=${row.path === chosen ? 'chosen' : ''}><td>${turn(row.path)}</td><th scope="row"><${Named} row=${row} /></th>${all.map((one, place) => cell(one, place, row))}</tr>`)}</tbody></table></div></section>`;
}

function Tree({modules, chosen, pair}) {
  const [rows, turn] = useTree(modules);
  if (!rows.length) return null;
  const side = (row, name) => modules[row.path][name] ? html`<${Named} row=${row} />` : html`<span class="soft" style=${{paddingLeft: `${row.depth * 14}px`}}>— ${t('not there')}</span>`;
  return html`<div class="wide" tabindex="0" role="group" aria-label=${t('Model')}><table class="sides"><thead><tr><th></th><th scope="col">${t('target')}</th><th scope="col">${t('golden')}</th><th scope="col">${t('worst')}</th><th scope="col">${t('largest error')}</th></tr></thead><tbody>${rows.map(row => html`
    <tr key=${row.path} class=${row.path === chosen ? 'chosen' : ''}><td>${turn(row.path)}</td>
      <td><a href=${link('compare', row.path === chosen ? '' : row.path, pair)}>${side(row, 'target')}</a></td><td>${side(row, 'golden')}</td><td><${Verdict} word=${modules[row.path].verdict} /></td><td class="count">${digits(modules[row.path].error)}</td></tr>`)}</tbody></table></div>`;
}

// A matrix of bytes as a picture; 255 stands for what is not finite.
export function Cells({picture, label}) {
  const place = useRef(null);
  useEffect(() => {
    const canvas = place.current, context = canvas.getContext('2d'), bytes = atob(picture.cells);
    const image = context.createImageData(picture.across, picture.down), table = palette('own');
    for (let at = 0; at < bytes.length; at++) {
      const value = bytes.charCodeAt(at);
      image.data.set([...(value === 255 ? [213, 60, 10] : table[value]), 255], at * 4);
    }
    context.putImageData(image, 0, 0);
  }, [picture]);
  const height = Math.max(28, Math.min(190, picture.down * Math.max(4, 300 / picture.across)));
  return html`<canvas ref=${place} width=${picture.across} height=${picture.down} style=${{height: `${height}px`}} role="img" aria-label=${label}></canvas>`;
}

function Picture({picture}) {
  const [id, , name] = picture.calls;
  return html`<figure class="card picture"><figcaption>${id ? html`<a href=${link('call', id)}>${name}</a>` : name} <code>[${picture.shape.join(', ')}]</code></figcaption>
    <${Cells} picture=${picture} label=${t('{n} of {all} elements differ', {n: picture.differing, all: picture.size})} />
    <p class="small soft">${t('{n} of {all} elements differ', {n: picture.differing, all: picture.size})} · ${t('largest')} ${Number(picture.largest).toPrecision(3)}</p></figure>`;
}

function Table({compare, chosen}) {
  const [sort, by] = useState([-1, false]), [shown, show] = useState(FIRST), [text, type] = useState(''), [kind, pick] = useState('');
  const result = compare.columns.indexOf('Result'), verdict = compare.columns.indexOf('Verdict');
  const kinds = useMemo(() => [...new Set(compare.rows.flatMap(row => [row[result], row[verdict]]))].sort(), [compare]);
  const rows = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const inside = module => module !== null && module !== undefined && (module === chosen || module.startsWith(`${chosen}.`));
    const found = compare.rows.map((cells, place) => [cells, place]).filter(([cells, place]) => (!kind || cells[result] === kind || cells[verdict] === kind)
      && (!chosen || inside(compare.calls[place][1]) || inside(compare.calls[place][3])) && words.every(word => cells.some(cell => String(cell).toLowerCase().includes(word))));
    if (sort[0] >= 0) { const order = ordered(sort[0], sort[1]); found.sort((one, other) => order(one[0], other[0])); }
    else found.sort(([one, first], [other, second]) => Object.keys(KINDS).indexOf(other[verdict]) - Object.keys(KINDS).indexOf(one[verdict]) || first - second);
    return found;
  }, [compare, text, kind, sort, chosen]);
  return html`<div class="controls"><label>${t('filter')} <input type="search" size="34" value=${text} onInput=${event => { type(event.target.value); show(FIRST); }} /></label>
      <label>${t('result')} <select value=${kind} onChange=${event => { pick(event.target.value); show(FIRST); }}><option value="">${t('every result')}</option>${kinds.map(word => html`<option value=${word}>${word}</option>`)}</select></label>
      <span class="soft" role="status">${t('{n} rows', {n: rows.length})}${chosen ? ` · ${chosen}` : ''}</span></div>
    <div class="wide tall" tabindex="0" role="group" aria-label=${t('every tensor')}><table class="all"><thead><tr>${compare.columns.map((name, place) => html`<th scope="col" aria-sort=${sort[0] === place ? sort[1] ? 'descending' : 'ascending' : 'none'}><button onClick=${() => by([place, sort[0] === place && !sort[1]])}>${name}${sort[0] === place ? sort[1] ? ' ↓' : ' ↑' : ''}</button></th>`)}</tr></thead>
      <tbody>${rows.slice(0, shown).map(([cells, place]) => html`<tr class=${KINDS[cells[verdict]]?.[0] ?? ''}>${cells.map((cell, column) => html`<td>${column === verdict ? html`<${Verdict} word=${cell} />` : column === 0 && compare.calls[place][0] ? html`<a href=${link('call', compare.calls[place][0])}>${cell}</a>` : typeof cell === 'number' ? Number(cell.toPrecision(7)) : cell}</td>`)}</tr>`)}</tbody></table></div>
    ${rows.length > shown && html`<button class="copy" onClick=${() => show(shown + MORE)}>${t('more rows')}</button>`}${compare.left && html`<p class="soft">${compare.left}</p>`}`;
}

export function Compare({state}) {
  const all = useDocument('compare');
  if (all === undefined) return html`<p class="soft">${t('loading')} …</p>`;
  if (!all?.length) return html`<p class="soft">${t('This page holds no comparison.')}</p>`;
  const pair = all[state.options.with] ? Number(state.options.with) : 0, compare = all[pair];
  const head = compare.agree ? 'The runs agree.' : compare.two_models ? 'These look like two different models.' : 'Where the two runs part';
  return html`<div class="head"><h1>${t(head)}</h1><p class="soft">${t('target')} <code>${compare.runs[0]}</code> · ${t('golden')} <code>${compare.runs[1]}</code></p></div>
    ${all.length > 1 && html`<${Several} all=${all} chosen=${state.key} pair=${pair} />`}
    <div class="columns"><section class="left"><h2>${t('both models')}</h2><${Tree} key=${pair} modules=${compare.modules} chosen=${state.key} pair=${pair ? {with: pair} : {}} /></section>
    <section class="right"><h2>${t('what the differences look like')}</h2>${compare.pictures.length ? html`<div class="pictures">${compare.pictures.map(picture => html`<${Picture} picture=${picture} />`)}</div>` : html`<p class="soft">${t('No values were kept on both sides; record with --values full to draw them.')}</p>`}</section></div>
    <section><h2>${t('every tensor')}</h2><${Table} key=${pair} compare=${compare} chosen=${state.key} /></section>`;
}
