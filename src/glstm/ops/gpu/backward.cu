// Powers of two that take the largest number to about 2^4, and back: 16 bits then hold 18 octaves below it in full.
__device__ __forceinline__ float scale_for(u32 largest_bits, float *back) {
  int e = (int)(largest_bits >> 23);
  e = e < 30 ? 30 : e > 220 ? 220 : e;
  *back = __int_as_float((e - 4) << 23);
  return __int_as_float((258 - e) << 23);
}

// da_rows: (T, B, 4 HP), the right side of the weights' gradient. dk: (T, B, H), or (tiles, T, H) to be summed.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
backward(const float *__restrict__ dh_all, const float *__restrict__ dc_all, const float *__restrict__ dh_n,
         const float *__restrict__ dc_n, const float *__restrict__ w_hh, const float *__restrict__ k,
         const uint4 *__restrict__ tape_gates, const float4 *__restrict__ tape_c, const void *__restrict__ tape_h,
         void *__restrict__ da_rows, float *__restrict__ dk, float *__restrict__ dh0, float *__restrict__ dc0, int T, int B) {
  __shared__ __align__(16) u16 da_shared[(1 + EXACT) * TILE * DA_STRIDE];
  __shared__ u32 largest_of_warp[2][8];
  const Place at = my_place();
  const i64 model = at.model, tiles = gridDim.x;
  w_hh += model * 4 * H * H, k += model * T * H * (K_PER_SAMPLE ? B : 1);
  dh_n += model * B * H, dc_n += model * B * H, dh0 += model * B * H, dc0 += model * B * H;

  u32 r[4][BLOCKS][4]; // transposed: its rows are the units that h comes from
#pragma unroll
  for (int g = 0; g < 4; g++)
#pragma unroll
    for (int block = 0; block < BLOCKS; block++)
      load_weights(r[g][block], rest_at(at, g, block), at, at.warp * 16, block * 16, [&](int from, int unit) {
        return unit < H && from < H ? w_hh[(g * H + unit) * H + from] : 0.0f;
      });
  float dh[4], dc[4];
  bool real[4];
#pragma unroll
  for (int cell = 0; cell < 4; cell++) {
    real[cell] = at.unit(cell) < H && at.sample(cell) < B;
    dh[cell] = real[cell] ? dh_n[at.sample(cell) * H + at.unit(cell)] : 0;
    dc[cell] = real[cell] ? dc_n[at.sample(cell) * H + at.unit(cell)] : 0;
  }
  float4 next_gates[EXACT ? 4 : 2], next_c, next_h;
  float next_k[4], next_dh[4], next_dc[4];
#pragma unroll
  for (int cell = 0; cell < 4; cell++) next_dh[cell] = next_dc[cell] = 0;
  auto fetch = [&](int next) {
    const int t = max(next, 0); // no branch: one would have to wait for what is loaded
    i64 block = ((model * T + t) * tiles + at.tile) * THREADS;
#pragma unroll
    for (int n = 0; n < (EXACT ? 4 : 2); n++)
      next_gates[n] = __ldcs((const float4 *)tape_gates + (EXACT ? 4 : 2) * block + n * THREADS + threadIdx.x);
    next_c = __ldcs(tape_c + block + threadIdx.x);
    if (EXACT) next_h = __ldcs((const float4 *)tape_h + block + threadIdx.x);
    else {
      uint2 two = __ldcs((const uint2 *)tape_h + block + threadIdx.x);
      next_h.x = __uint_as_float(two.x), next_h.y = __uint_as_float(two.y);
    }
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      i64 row = (i64)t * B + at.sample(cell), place = (model * T * B + row) * H + at.unit(cell);
      if (K_PER_SAMPLE) next_k[cell] = real[cell] ? __ldg(k + row * H + at.unit(cell)) : 0;
      else if (!(cell & 1)) next_k[cell] = at.unit(cell) < H ? __ldg(k + (i64)t * H + at.unit(cell)) : 0;
      if (SEQUENCE) {
        next_dh[cell] = dh_all && real[cell] ? __ldcs(dh_all + place) : 0;
        next_dc[cell] = dc_all && real[cell] ? __ldcs(dc_all + place) : 0;
      }
    }
  };
  // How large the next slopes can get is known before they are made, so that they can be scaled on the way.
  auto tell_largest = [&](int t) {
    const float c[4] = {next_c.x, next_c.y, next_c.z, next_c.w};
    float most = 0;
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      dh[cell] += next_dh[cell], dc[cell] += next_dc[cell];
      most = fmaxf(most, (fabsf(dh[cell]) + fabsf(dc[cell])) * fmaxf(1.0f, fabsf(c[cell])));
    }
    u32 bits = __reduce_max_sync(0xffffffffu, __float_as_uint(most));
    if (at.lane == 0) largest_of_warp[t & 1][at.warp] = bits;
  };
  fetch(T - 1);
  tell_largest(T - 1);
  __syncthreads();

  for (int t = T - 1; t >= 0; t--) {
    u32 largest = 0;
#pragma unroll
    for (int w = 0; w < BLOCKS; w++) largest = max(largest, largest_of_warp[t & 1][w]);
    float back, scale = scale_for(largest, &back);
    float da[4][4], dk_of[4], keep[4];
    const float c[4] = {next_c.x, next_c.y, next_c.z, next_c.w};
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      float v[4], h; // i f g o
#pragma unroll
      for (int g = 0; g < 4; g++) {
        if (EXACT) v[g] = (&next_gates[g % (EXACT ? 4 : 2)].x)[cell];
        else {
          u32 two = __float_as_uint((&next_gates[g >> 1].x)[(g & 1) * 2 + (cell >> 1)]);
          v[g] = cell & 1 ? half_high(two) : half_low(two);
        }
      }
      if (EXACT) h = (&next_h.x)[cell];
      else h = cell & 1 ? half_high(__float_as_uint((&next_h.x)[cell >> 1])) : half_low(__float_as_uint((&next_h.x)[cell >> 1]));
      float i = v[0], f = v[1], g = v[2], o = v[3], kk = next_k[K_PER_SAMPLE ? cell : cell & 2];
      float c_new = fmaf(f, c[cell], i * g), squashed = tanh_(c_new);
      bool shut = kk == 0;
      dk_of[cell] = shut ? 0 : fmaf(dc[cell], c_new - c[cell], dh[cell] * (o * squashed - h));
      float dh_new = kk * dh[cell], dc_new = fmaf(kk, dc[cell], dh_new * o * (1 - squashed * squashed));
      da[0][cell] = shut ? 0 : dc_new * g * i * (1 - i);
      da[1][cell] = shut ? 0 : dc_new * c[cell] * f * (1 - f);
      da[2][cell] = shut ? 0 : dc_new * i * (LOGISTIC ? g * (1 - g) : 1 - g * g);
      da[3][cell] = shut ? 0 : dh_new * squashed * o * (1 - o);
      keep[cell] = shut ? dh[cell] : (1 - kk) * dh[cell];
      dc[cell] = shut ? dc[cell] : fmaf(f, dc_new, (1 - kk) * dc[cell]);
    }
#pragma unroll
    for (int g = 0; g < 4; g++) {
      float scaled[4];
#pragma unroll
      for (int cell = 0; cell < 4; cell++) {
        scaled[cell] = da[g][cell] * scale;
        if (EXACT && at.sample(cell) < B)
          ((float *)da_rows)[((model * T + t) * B + at.sample(cell)) * (4 * HP) + g * HP + at.unit(cell)] = da[g][cell];
      }
      share_cells(da_shared + g * HP, TILE, DA_STRIDE, at, scaled);
    }
    fetch(t - 1);
    __syncthreads();
    // Two of the tile's chunks of eight slopes: read before the products, sent to memory in their shadow.
    uint4 chunks[2];
    auto chunk_sample = [&](int n) { return ((int)threadIdx.x + n * THREADS) / (4 * HP / 8); };
    auto chunk_column = [&](int n) { return ((int)threadIdx.x + n * THREADS) % (4 * HP / 8) * 8; };
    if (!EXACT)
#pragma unroll
      for (int n = 0; n < 2; n++) chunks[n] = *(const uint4 *)(da_shared + chunk_sample(n) * DA_STRIDE + chunk_column(n));
    float sums[4][4] = {{0}}, rests[4] = {0}; // several sums: they wait for each other less
    const u32 address = shared_address(da_shared + (at.lane & 7) * DA_STRIDE + (at.lane >> 3) * 8);
#pragma unroll
    for (int n = 0; n < 4 * BLOCKS; n += 2) {
      u32 q[4], q_rest[4];
      load_4(q, address + n * 32);
      if (EXACT) load_4(q_rest, address + TILE * DA_STRIDE * 2 + n * 32);
#pragma unroll
      for (int m = 0; m < 2; m++) {
        int gate = (n + m) / BLOCKS, block = (n + m) % BLOCKS;
        accumulate(sums[(n + m) & 3], rests, r[gate][block], at, gate, block, q + 2 * m, q_rest + 2 * m);
      }
    }
    if (!EXACT)
#pragma unroll
      for (int n = 0; n < 2; n++)
        if (at.tile * TILE + chunk_sample(n) < B)
          *(uint4 *)((u16 *)da_rows + ((model * T + t) * B + at.tile * TILE + chunk_sample(n)) * (4 * HP) + chunk_column(n)) =
              as_bfloat(chunks[n], back);
#pragma unroll
    for (int n = 0; n < 2; n++) {
      if (K_PER_SAMPLE) {
#pragma unroll
        for (int cell = 2 * n; cell < 2 * n + 2; cell++)
          if (real[cell]) dk[((model * T + t) * B + at.sample(cell)) * H + at.unit(cell)] = dk_of[cell];
      } else { // over the tile's samples
        float sum = dk_of[2 * n] + dk_of[2 * n + 1];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (at.column == 0 && at.unit(2 * n) < H) dk[((model * tiles + at.tile) * T + t) * H + at.unit(2 * n)] = sum;
      }
    }
#pragma unroll
    for (int cell = 0; cell < 4; cell++) {
      float sum = (sums[0][cell] + sums[1][cell]) + (sums[2][cell] + sums[3][cell]);
      if (EXACT) sum = fmaf(rests[cell], 1 / REST, sum);
      dh[cell] = fmaf(back, sum, keep[cell]);
    }
    if (t > 0) tell_largest(t - 1);
    __syncthreads();
  }
#pragma unroll
  for (int cell = 0; cell < 4; cell++)
    if (real[cell]) {
      dh0[at.sample(cell) * H + at.unit(cell)] = dh[cell];
      dc0[at.sample(cell) * H + at.unit(cell)] = dc[cell];
    }
}
