// SPDX-License-Identifier: Apache-2.0
// Where documents come from: out of the page, or, in a live one, from its server.

const block = document.getElementById('documents');
export const live = block.dataset.live === '1';

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

const held = unpacked(block.textContent);
const asked = new Map();

async function fetched(name, key) {
  const query = key === undefined ? '' : `?key=${encodeURIComponent(key)}`;
  const answer = await fetch(`data/${name}${query}`);
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 300) || String(answer.status));
  return answer.json();
}

// A document, or the part of one that a key names; undefined where this page does not hold it.
export async function get(name, key) {
  const documents = await held;
  const found = key === undefined ? documents[name] : documents[name]?.[key];
  if (found !== undefined || !live) return found;
  const place = `${name} ${key}`;
  if (!asked.has(place)) asked.set(place, fetched(name, key));
  return asked.get(place);
}
