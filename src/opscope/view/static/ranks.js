// SPDX-License-Identifier: Apache-2.0
// Ranks beside one another, and where they first part.
import {html, link, shortOp, useDocument} from 'opscope/parts';
import {Worst, WORST} from 'opscope/model';
import {t} from 'opscope/words';

const CHOSEN = 60;

export function Ranks() {
  const ranks = useDocument('ranks');
  if (ranks === undefined) return html`<p class="soft">${t('loading')} …</p>`;
  if (!ranks || ranks instanceof Error) return html`<p class="soft">${t('This run has a single rank.')}</p>`;
  const longest = Math.max(0, ...Object.values(ranks.lanes).map(lane => lane.length));
  const from = ranks.parts === null ? 0 : Math.max(0, ranks.parts - CHOSEN / 2), places = Array.from({length: Math.min(CHOSEN, longest - from)}, (_, place) => from + place);
  return html`<div class="head"><h1>${ranks.parts === null ? t('The ranks call the same collectives in the same order.') : t('The ranks part at collective {n}.', {n: ranks.parts + 1})}</h1></div>
    <section><h2>${t('rank')} × ${t('step')}</h2><div class="wide" tabindex="0" role="group" aria-label=${`${t('rank')} × ${t('step')}`}><table class="matrix"><thead><tr><th></th>${ranks.steps.map(step => html`<th scope="col">${step}</th>`)}</tr></thead>
      <tbody>${ranks.ranks.map(rank => html`<tr><th scope="row">${t('rank')} ${rank}</th>${ranks.steps.map(step => { const cell = ranks.cells[`${rank}/${step}`]; if (!cell) return html`<td class="none">–</td>`; const [calls, worst, first] = cell, kind = WORST[worst][0]; const mark = html`<span aria-hidden="true">${WORST[worst][1]}</span><span class="hidden">${t(kind)}</span>`; return html`<td class=${`fill ${kind}`} title=${t('{n} calls', {n: calls})}>${first ? html`<a href=${link('call', first)}>${mark}</a>` : mark}</td>`; })}</tr>`)}</tbody></table></div>
      <p class="legend">${[1, 2, 3, 4, 5].map(value => html`<${Worst} value=${value} />`)}</p></section>
    ${longest > 0 && html`<section><h2>${t('collectives, in the order each rank called them')}</h2><div class="wide" tabindex="0" role="group" aria-label=${t('collectives, in the order each rank called them')}><table class="lanes"><thead><tr><th></th>${places.map(place => html`<th scope="col" class=${place === ranks.parts ? 'here' : ''}>${place + 1}${place === ranks.parts ? ' ⟂' : ''}</th>`)}</tr></thead><tbody>${ranks.ranks.map(rank => html`<tr><th scope="row">${t('rank')} ${rank}</th>${places.map(place => { const one = ranks.lanes[rank]?.[place]; return html`<td class=${place === ranks.parts ? 'here' : ''}>${one ? html`<a href=${link('call', one.id)} title=${`${one.name} · ${t('step')} ${one.step}`}><b>${shortOp(one.op).replace(/^.*::/, '')}</b><br /><span class="soft">${one.sent ?? ''}</span></a>` : html`<span class="soft">— ${t('none')}</span>`}</td>`; })}</tr>`)}</tbody></table></div></section>`}`;
}
