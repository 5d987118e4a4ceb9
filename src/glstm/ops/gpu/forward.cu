// x: (T, B, D), or where D is 0 the input's share of the gates (T, B, 4H); x_model: numbers from one model's to the next
// one's, 0 where all read the same. rows: (T, B, ROW), the left side of the weights' gradient.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
forward(const float *__restrict__ x, i64 x_model, const float *__restrict__ w_ih, const float *__restrict__ b,
        const float *__restrict__ w_hh, const float *__restrict__ k, const float *__restrict__ h0,
        const float *__restrict__ c0, float *__restrict__ h_all, float *__restrict__ c_all, float *__restrict__ h_n,
        float *__restrict__ c_n, uint4 *__restrict__ tape_gates, float4 *__restrict__ tape_c, void *__restrict__ tape_h,
        void *__restrict__ rows, int T, int B) {
  __shared__ __align__(16) u16 h_shared[2][(1 + EXACT) * TILE * H_STRIDE];
  const Place at = my_place();
  const i64 model = at.model, tiles = gridDim.x;
  x += model * x_model, w_ih += model * 4 * H * D, w_hh += model * 4 * H * H, b += model * 4 * H;
  k += model * T * H * (K_PER_SAMPLE ? B : 1), h0 += model * B * H, c0 += model * B * H, h_n += model * B * H, c_n += model * B * H;

  u32 r[4][BLOCKS][4];
#pragma unroll
  for (int g = 0; g < 4; g++)
#pragma unroll
    for (int block = 0; block < BLOCKS; block++)
      load_weights(r[g][block], rest_at(at, g, block), at, at.warp * 16, block * 16, [&](int unit, int from) {
        return unit < H && from < H ? w_hh[(g * H + unit) * H + from] : 0.0f;
      });
  float bias[4][2], w[4][2][D ? D : 1];
#pragma unroll
  for (int g = 0; g < 4; g++)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      int unit = at.unit(2 * n);
      bias[g][n] = unit < H && D ? b[g * H + unit] : 0;
#pragma unroll
      for (int d = 0; d < D; d++) w[g][n][d] = unit < H ? w_ih[(g * H + unit) * D + d] : 0;
    }
  float h[4], c[4];
  bool real[4];
#pragma unroll
  for (int cell = 0; cell < 4; cell++) {
    real[cell] = at.unit(cell) < H && at.sample(cell) < B;
    h[cell] = real[cell] ? h0[at.sample(cell) * H + at.unit(cell)] : 0;
    c[cell] = real[cell] ? c0[at.sample(cell) * H + at.unit(cell)] : 0;
  }
  share_cells(h_shared[0], TILE, H_STRIDE, at, h);

  // What the next step needs is loaded while this one is worked on.
  float next_x[2][D ? D : 1], next_drive[4][D ? 1 : 4], next_k[4];
  auto fetch = [&](int next) {
    const int t = min(next, T - 1); // no branch: one would have to wait for what is loaded
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int d = 0; d < D; d++)
        next_x[s][d] = at.sample(s) < B ? __ldg(x + ((i64)t * B + at.sample(s)) * D + d) : 0;
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      i64 row = (i64)t * B + at.sample(cell);
      if (!D)
#pragma unroll
        for (int g = 0; g < 4; g++) next_drive[g][cell % (D ? 1 : 4)] = real[cell] ? __ldg(x + (row * 4 + g) * H + at.unit(cell)) : 0;
      if (K_PER_SAMPLE) next_k[cell] = real[cell] ? __ldg(k + row * H + at.unit(cell)) : 0;
      else if (!(cell & 1)) next_k[cell] = at.unit(cell) < H ? __ldg(k + (i64)t * H + at.unit(cell)) : 0;
    }
  };
  fetch(0);
  __syncthreads();

  for (int t = 0; t < T; t++) {
    float a[4][4], rests[4][4], open[4];
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      open[cell] = next_k[K_PER_SAMPLE ? cell : cell & 2];
#pragma unroll
      for (int g = 0; g < 4; g++) {
        a[g][cell] = D ? bias[g][cell >> 1] : next_drive[g][cell % (D ? 1 : 4)], rests[g][cell] = 0;
#pragma unroll
        for (int d = 0; d < D; d++) a[g][cell] = fmaf(w[g][cell >> 1][d], next_x[cell & 1][d], a[g][cell]);
      }
    }
    float x_now[2][D ? D : 1];
    if (TAPED)
#pragma unroll
      for (int d = 0; d < D; d++) x_now[0][d] = next_x[0][d], x_now[1][d] = next_x[1][d];
    fetch(t + 1);
    const u16 *now = h_shared[t & 1];
    // Half of the threads have a chunk of eight h: read before the products, sent to memory in their shadow.
    const int chunk_sample = threadIdx.x / (HP / 8), chunk_column = threadIdx.x % (HP / 8) * 8;
    const bool has_chunk = TAPED && !EXACT && threadIdx.x < HP && at.tile * TILE + chunk_sample < B;
    uint4 chunk;
    if (has_chunk) chunk = *(const uint4 *)(now + chunk_sample * H_STRIDE + chunk_column);
    const u32 address = shared_address(now + (at.lane & 7) * H_STRIDE + (at.lane >> 3) * 8);
    const u32 address_of_rests = address + TILE * H_STRIDE * 2;
#pragma unroll
    for (int block = 0; block + 1 < BLOCKS; block += 2) {
      u32 q[4], q_rest[4];
      load_4(q, address + block * 32);
      if (EXACT) load_4(q_rest, address_of_rests + block * 32);
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int g = 0; g < 4; g++) accumulate(a[g], rests[g], r[g][block + n], at, g, block + n, q + 2 * n, q_rest + 2 * n);
    }
    if (BLOCKS & 1) {
      u32 q[2], q_rest[2];
      load_2(q, address + (BLOCKS - 1) * 32);
      if (EXACT) load_2(q_rest, address_of_rests + (BLOCKS - 1) * 32);
#pragma unroll
      for (int g = 0; g < 4; g++) accumulate(a[g], rests[g], r[g][BLOCKS - 1], at, g, BLOCKS - 1, q, q_rest);
    }
    const i64 block = ((model * T + t) * tiles + at.tile) * THREADS; // of the tape
    if (TAPED) {
      tape_c[block + threadIdx.x] = make_float4(c[0], c[1], c[2], c[3]);
      if (EXACT) ((float4 *)tape_h)[block + threadIdx.x] = make_float4(h[0], h[1], h[2], h[3]);
      else ((uint2 *)tape_h)[block + threadIdx.x] = make_uint2(pack_half(h[0], h[1]), pack_half(h[2], h[3]));
      if (EXACT) // a row of h before the step
#pragma unroll
        for (int cell = 0; cell < 4; cell++)
          if (at.sample(cell) < B) ((float *)rows)[((model * T + t) * B + at.sample(cell)) * ROW + at.unit(cell)] = h[cell];
    }
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      if (EXACT)
#pragma unroll
        for (int g = 0; g < 4; g++) a[g][cell] = fmaf(rests[g][cell], 1 / REST, a[g][cell]);
      float i = sigmoid_(a[0][cell]), f = sigmoid_(a[1][cell]), o = sigmoid_(a[3][cell]);
      float g = LOGISTIC ? sigmoid_(a[2][cell]) : tanh_(a[2][cell]);
      float c_new = fmaf(f, c[cell], i * g), h_new = o * tanh_(c_new), kk = open[cell];
      float c_mixed = fmaf(kk, c_new, (1 - kk) * c[cell]), h_mixed = fmaf(kk, h_new, (1 - kk) * h[cell]);
      c[cell] = kk == 0 ? c[cell] : c_mixed, h[cell] = kk == 0 ? h[cell] : h_mixed; // closed: nothing may get in
      a[0][cell] = i, a[1][cell] = f, a[2][cell] = g, a[3][cell] = o;
    }
    share_cells(h_shared[(t + 1) & 1], TILE, H_STRIDE, at, h);
    if (TAPED && EXACT) {
#pragma unroll
      for (int g = 0; g < 4; g++)
        ((float4 *)tape_gates)[4 * block + g * THREADS + threadIdx.x] = make_float4(a[g][0], a[g][1], a[g][2], a[g][3]);
    } else if (TAPED) {
#pragma unroll
      for (int n = 0; n < 2; n++)
        tape_gates[2 * block + n * THREADS + threadIdx.x] =
            make_uint4(pack_half(a[2 * n][0], a[2 * n][1]), pack_half(a[2 * n][2], a[2 * n][3]),
                       pack_half(a[2 * n + 1][0], a[2 * n + 1][1]), pack_half(a[2 * n + 1][2], a[2 * n + 1][3]));
    }
#pragma unroll
    for (int cell = 0; cell < 4; cell++)
      if (SEQUENCE && real[cell]) {
        i64 place = ((model * T + t) * B + at.sample(cell)) * H + at.unit(cell);
        h_all[place] = h[cell];
        if (c_all) c_all[place] = c[cell];
      }
    if (has_chunk)
      *(uint4 *)((u16 *)rows + ((model * T + t) * B + at.tile * TILE + chunk_sample) * ROW + chunk_column) = as_bfloat(chunk, 1);
    if (TAPED && at.warp == 0 && at.row < 2) { // the row's end: x, and 1 for the bias
      int s = at.row;
      if (at.sample(s) < B) {
        float end[8];
#pragma unroll
        for (int d = 0; d < 8; d++) end[d] = d < D ? (s ? x_now[1][d < D ? d : 0] : x_now[0][d < D ? d : 0]) : d == D;
        i64 place = ((model * T + t) * B + at.sample(s)) * ROW + HP;
        if (EXACT) {
          float4 *p = (float4 *)((float *)rows + place);
          p[0] = make_float4(end[0], end[1], end[2], end[3]), p[1] = make_float4(end[4], end[5], end[6], end[7]);
          p[2] = p[3] = make_float4(0, 0, 0, 0);
        } else {
          uint4 *p = (uint4 *)((u16 *)rows + place);
          p[0] = make_uint4(pack_bfloat(end[0], end[1]), pack_bfloat(end[2], end[3]), pack_bfloat(end[4], end[5]),
                            pack_bfloat(end[6], end[7]));
          p[1] = make_uint4(0, 0, 0, 0);
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int cell = 0; cell < 4; cell++)
    if (real[cell]) {
      h_n[at.sample(cell) * H + at.unit(cell)] = h[cell];
      c_n[at.sample(cell) * H + at.unit(cell)] = c[cell];
    }
}
