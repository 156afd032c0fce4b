// SPDX-License-Identifier: Apache-2.0
// What was found, in one sentence, and the path it took.
import {Chart} from 'opscope/chart';
import {Code, Command, Status, Tensors, histories, html, isWrong, link, moduleOf, shortOp, useDocument, wrongWords, SHAPES} from 'opscope/parts';
import {t} from 'opscope/words';

export function sentence(finding) {
  const said = {step: finding.step, op: shortOp(finding.op), module: moduleOf(finding.module)};
  const evidence = finding.evidence[0] ?? {};
  const what = finding.outputs.map(slot => wrongWords(slot.stats)).filter(Boolean).join('; ');
  if (finding.kind !== 'overflow-origin') return t('{words}: {op} in {module}, step {step}.', {...said, words: t(finding.words)});
  if (evidence.arrived) {
    const read = finding.inputs.map(slot => wrongWords(slot.stats)).filter(Boolean).join('; ');
    return t('In step {step}, {op} in {module} read {what} that no recorded call had made.', {...said, what: read || t('a value that is not finite')});
  }
  if (!what) return t('In step {step}, {op} in {module} overflowed.', said);
  const sound = finding.inputs.every(slot => !isWrong(slot.stats));
  return t(sound ? 'In step {step}, {op} in {module} turned finite inputs into {what}.' : 'In step {step}, {op} in {module} produced {what}.', {...said, what});
}

export function fate(finding) {
  const evidence = finding.evidence[0] ?? {};
  if (evidence.hidden_by) return t('It was hidden by {call}.', {call: evidence.hidden_by});
  if (evidence.reached) return t('It reached the {what} in step {step}.', {what: t(evidence.reached), step: evidence.reached_at?.step ?? finding.step});
  return '';
}

// What a call of a path is: where it began, what it spread to, what hid it, what was sound.
export function kindOf(id, call, finding) {
  if (id === finding.id) return 'origin';
  if (id === finding.hider) return 'hidden';
  if (finding.path.includes(id)) return id === finding.path.at(-1) && finding.evidence[0]?.reached ? 'reached' : 'unsound';
  const written = (call?.tensors ?? []).filter(tensor => tensor.io === 'output' && tensor.stats.size !== undefined);
  if (!written.length) return 'unread';
  if (written.some(tensor => tensor.stats.nan || tensor.stats.pos_inf)) return 'unsound';
  return written.some(tensor => tensor.stats.neg_inf) ? 'mask' : 'sound';
}

function Node({node, call, name, finding}) {
  const kind = node.folded ? 'unsound' : kindOf(node.id, call, finding);
  const written = call?.tensors.find(tensor => tensor.io === 'output' && isWrong(tensor.stats)) ?? call?.tensors.find(tensor => tensor.io === 'output');
  const place = {left: `${node.x}px`, top: `${node.y}px`};
  if (node.folded) return html`<div class="node folded" style=${place}>⋮ ${t('{n} more calls', {n: node.folded})}</div>`;
  return html`<a class="node ${kind}" style=${place} href=${link('call', node.id)} title=${`${name?.[0] ?? node.id} · ${t(kind)} · ${written?.line ?? ''}`}>
    <span class="shape" aria-hidden="true">${SHAPES[kind]}</span>
    <span class="name">${name?.[0] ?? node.id}</span><span class="kind">${t(kind)}</span>
    <span class="said">${written?.brief ?? ''}</span></a>`;
}

export function Graph({finding, calls, names}) {
  const {nodes, edges, width, height} = finding.graph;
  if (!nodes.length) return null;
  const path = points => points.map(([x, y], place) => `${place ? 'L' : 'M'}${x} ${y}`).join('');
  return html`<div class="graph" tabindex="0" role="group" aria-label=${t('the path')}><div class="canvas" style=${{width: `${width}px`, height: `${height}px`}}>
    <svg width=${width} height=${height} aria-hidden="true"><defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto"><path d="M0 0L8 4L0 8z" class="head" /></marker>
      <marker id="arrowbad" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="11" orient="auto"><path d="M0 0L8 4L0 8z" class="head wrong" /></marker></defs>
      ${edges.map(edge => html`<path d=${path(edge.points)} class=${edge.points.length === 2 ? 'edge wrong' : 'edge'} marker-end=${edge.points.length === 2 ? 'url(#arrowbad)' : 'url(#arrow)'} />`)}</svg>
    ${nodes.map(node => html`<${Node} node=${node} call=${calls[node.id]} name=${names[node.id]} finding=${finding} />`)}
  </div></div>`;
}

function Others({verdict, chosen}) {
  if (verdict.findings.length < 2) return null;
  return html`<nav class="others" aria-label=${t('findings')}><h2>${t('findings')}</h2><ol>${verdict.findings.map((finding, place) => html`
    <li><a href=${link('verdict', place)} aria-current=${place === chosen ? 'true' : undefined}><b>${t(finding.words)}</b> ${shortOp(finding.op)} <span class="soft">${finding.call} · ${t('step')} ${finding.step}</span></a></li>`)}</ol>
    ${verdict.count > verdict.findings.length && html`<p class="soft">+${verdict.count - verdict.findings.length}</p>`}</nav>`;
}

const Warnings = ({summary}) => summary.warnings?.length ? html`<section class="warnings"><h2>${t('warnings')}</h2><ul>${summary.warnings.map(text => html`<li>${text}</li>`)}</ul></section>` : null;

function Facts({verdict}) {
  const {summary} = verdict;
  const facts = [[summary.steps, 'steps'], [summary.calls_per_step, 'calls a step'], [summary.ranks?.length > 1 ? summary.ranks.length : 0, 'ranks']].filter(([value]) => typeof value === 'number' && value > 0);
  return html`<p class="facts">${facts.map(([value, word]) => html`<span><b>${value}</b> ${t(word)}</span>`)}</p>`;
}

export function Verdict({state}) {
  const [verdict, calls, names] = [useDocument('verdict'), useDocument('calls'), useDocument('names')];
  if (verdict === undefined || calls === undefined || names === undefined) return html`<p class="soft">${t('loading')} …</p>`;
  const failed = [verdict, calls, names].find(one => one instanceof Error);
  if (failed) return html`<div class="hero"><h1>${failed.message}</h1></div>`;
  const chosen = Math.min(Number(state.key) || 0, verdict.findings.length - 1);
  const finding = verdict.findings[chosen];
  if (!finding) return html`<div class="hero clean"><h1>${t(verdict.complete ? 'Nothing wrong was found.' : 'Nothing wrong was found, but the run is incomplete.')}</h1><${Facts} verdict=${verdict} /></div><${Warnings} summary=${verdict.summary} />`;
  const call = calls[finding.id];
  const lines = call ? histories(call.tensors) : [];
  const slot = finding.outputs[0] ?? finding.inputs[0];
  const source = finding.source ?? finding.forward?.source;
  return html`<div class="hero"><p class="over">${verdict.findings.length > 1 ? t('finding {n} of {all}', {n: chosen + 1, all: verdict.count}) : t('first finding')} · ${t(finding.words)} · <span class="confidence ${finding.confidence}">${t(finding.confidence)}</span>${finding.rank || verdict.summary.ranks?.length > 1 ? ` · ${t('rank')} ${finding.rank}` : ''}</p>
    <h1>${sentence(finding)} <span class="fate">${fate(finding)}</span></h1><${Facts} verdict=${verdict} /></div>
    <div class="columns"><section class="left"><h2>${t('the path')} <span class="soft">${t('from the origin to where it got')}</span></h2>
      <p class="legend">${['origin', 'unsound', 'mask', 'sound', 'hidden', 'reached'].map(kind => html`<${Status} kind=${kind} />`)}</p>
      <${Graph} finding=${finding} calls=${calls} names=${names} /></section>
    <section class="right"><h2>${t('source')}</h2><${Code} code=${finding.code} source=${source} />
      ${finding.reasons.length > 0 && html`<section><h3>${t('why')}</h3><ul class="reasons">${finding.reasons.map(reason => html`<li>${reason}</li>`)}</ul></section>`}
      <${Tensors} title=${t('inputs')} tensors=${finding.inputs} /><${Tensors} title=${t('outputs')} tensors=${finding.outputs} />
      ${lines.length > 0 && html`<section><h3>${t('largest magnitude over the steps')}</h3><${Chart} series=${lines} limit=${slot?.limit ?? undefined} label=${slot?.dtype ?? ''} /></section>`}
      <section><h3>${t('next')}</h3>${finding.commands.map(text => html`<${Command} text=${text} />`)}</section>
    </section></div>
    <${Others} verdict=${verdict} chosen=${chosen} /><${Warnings} summary=${verdict.summary} />`;
}
