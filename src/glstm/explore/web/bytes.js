// Arrays that Python packed into the page: base64 of deflated bytes.

const KINDS = { u1: Uint8Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

async function unpack(packed) {
  const text = atob(packed.data);
  const deflated = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) deflated[at] = text.charCodeAt(at);
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const array = new KINDS[packed.type](await new Response(stream).arrayBuffer());
  if (packed.rows === "differences") sumRows(array, packed.shape[1]);
  return array;
}

// Bytes wrap around as they did when the differences were taken.
function sumRows(array, length) {
  for (let row = 0; row < array.length; row += length) {
    for (let at = row + 1; at < row + length; at++) array[at] += array[at - 1];
  }
}

// The same object with every packed array in it unpacked.
export async function unpackAll(value) {
  if (Array.isArray(value)) return Promise.all(value.map(unpackAll));
  if (value === null || typeof value !== "object") return value;
  if (typeof value.data === "string" && value.type in KINDS) return unpack(value);
  const names = Object.keys(value);
  const parts = await Promise.all(names.map((name) => unpackAll(value[name])));
  return Object.fromEntries(names.map((name, at) => [name, parts[at]]));
}
