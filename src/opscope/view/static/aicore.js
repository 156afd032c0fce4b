// SPDX-License-Identifier: Apache-2.0
// AI Core errors: verdicts, memory, and the sections of info.txt.
import {html, useDocument} from 'opscope/parts';
import {t} from 'opscope/words';

const SHAPES = {fault: '✕', argument: '■', allocation: '▭'};

function Map_({spans}) {
  if (!spans.length) return null;
  return html`<section class="card"><h2>${t('memory')}</h2><p class="soft small">${t('Order and overlap are true; lengths are logarithms.')}</p><div class="memory">${spans.map(span => html`
    <div class="place"><span class="label">${SHAPES[span.kind]} ${t(span.kind)} ${span.label}</span><span class="track"><span class=${`extent ${span.kind} ${span.bad ? 'bad' : ''}`} style=${{left: `${span.left * 100}%`, width: `max(3px, ${span.width * 100}%)`}}></span></span><span class="words"><code>${span.start}–${span.end}</code> ${span.status} ${span.text}</span></div>`)}</div></section>`;
}

function Failure({error, number}) {
  return html`<article><div class="hero"><p class="over">${number}</p><h1>${error.op ?? t('operator not known')} <span class="fate">${error.call ?? ''}</span></h1>${error.reasons.map(([code, text]) => html`<p><code>${code ?? ''}</code> ${text}</p>`)}</div>
    ${error.verdicts.map(one => html`<section class="card ${one.confidence === 'proven' ? 'bad' : ''}"><p>${one.text} <span class="confidence ${one.confidence}">${t(one.confidence)}</span></p><ul>${one.grounds.map(text => html`<li>${text}</li>`)}${one.advice.map(text => html`<li><b>${t('next')}</b> ${text}</li>`)}</ul></section>`)}
    <${Map_} spans=${error.map} />
    ${error.sections.map(([title, rows]) => html`<details open=${/^[14]/.test(title)}><summary>${title}</summary><pre class="args" tabindex="0" aria-label=${title}>${rows.join('\n')}</pre></details>`)}</article>`;
}

export function Aicore() {
  const found = useDocument('aicore');
  if (found === undefined) return html`<p class="soft">${t('loading')} …</p>`;
  if (!found.errors.length) return html`<div class="hero clean"><h1>${found.text || t('no AI Core error')}</h1></div>`;
  return html`${found.errors.map((error, place) => html`<${Failure} error=${error} number=${`${place + 1} / ${found.errors.length}`} />`)}
    ${found.warnings.length > 0 && html`<section class="warnings"><h2>${t('warnings')}</h2><ul>${found.warnings.map(text => html`<li>${text}</li>`)}</ul></section>`}`;
}
