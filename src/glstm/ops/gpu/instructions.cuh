// Every instruction of the hardware that C++ does not have, and nothing else: to run these kernels without a device, the
// emulation replaces these functions.

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

__device__ __forceinline__ float tanh_approximately(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ u32 pack_half(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ u32 pack_bfloat(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float half_low(u32 p) {
  float f;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(f) : "r"(p));
  return f;
}
__device__ __forceinline__ float half_high(u32 p) {
  float f;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(f) : "r"(p));
  return f;
}
// Two bfloat16, each times another.
__device__ __forceinline__ u32 multiply_bfloats(u32 a, u32 b) {
  u32 r, nothing = 0x80008000u; // -0: x + -0 is x
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(nothing));
  return r;
}

// d += a b: 16 x 16 times 16 x 8, of a whole warp.
__device__ __forceinline__ void multiply(float d[4], const u32 a[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d += a b: 16 x 8 times 8 x 8.
__device__ __forceinline__ void multiply_short(float d[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
}
// The same of bfloat16, and of the upper 19 bits of float32: numbers of any size.
__device__ __forceinline__ void multiply_bfloat(float d[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void multiply_wide(float d[4], const float a[4], const float b[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                 "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// Computed once, before the loop: otherwise the compiler computes it again at every step.
__device__ __forceinline__ u32 shared_address(const void *p) {
  u32 address = (u32)__cvta_generic_to_shared(p), kept;
  asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(address));
  return kept;
}

// Loads for the next step that stay where they are written. The compiler would move them down to where there are free
// registers, behind the products, and the step would end by waiting for them.
__device__ __forceinline__ float load_early(const float *p) {
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
// The same, if wanted; else v stays as it is. Not a branch, which would wait for the load where its two paths join.
__device__ __forceinline__ void load_early(float &v, const float *p, bool wanted) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w ld.global.cs.f32 %0, [%1];}" : "+f"(v) : "l"(p), "r"((u32)wanted));
}
__device__ __forceinline__ void load_early(float2 &v, const float2 *p, bool wanted) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %3, 0;\n @w ld.global.cs.v2.f32 {%0,%1}, [%2];}"
               : "+f"(v.x), "+f"(v.y) : "l"(p), "r"((u32)wanted));
}
__device__ __forceinline__ void load_early(float4 &v, const float4 *p, bool wanted) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %5, 0;\n @w ld.global.cs.v4.f32 {%0,%1,%2,%3}, [%4];}"
               : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w) : "l"(p), "r"((u32)wanted));
}

template <int WORDS> __device__ __forceinline__ void load_early(u32 *v, const void *p, bool wanted) {
  if constexpr (WORDS == 4)
    asm volatile("{.reg .pred w;\n setp.ne.u32 w, %5, 0;\n @w ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];}"
                 : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3]) : "l"(p), "r"((u32)wanted));
  else if constexpr (WORDS == 2)
    asm volatile("{.reg .pred w;\n setp.ne.u32 w, %3, 0;\n @w ld.global.cs.v2.u32 {%0,%1}, [%2];}"
                 : "+r"(v[0]), "+r"(v[1]) : "l"(p), "r"((u32)wanted));
  else
    asm volatile("{.reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w ld.global.cs.u32 %0, [%1];}" : "+r"(v[0]) : "l"(p), "r"((u32)wanted));
}

// From the device's memory into the cache that all share, for a kernel that comes later.
__device__ __forceinline__ void fetch_early(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }

// Copies into shared memory that nobody waits for: 4, 8 or 16 bytes, if wanted. Those before `end_copies` are one group.
template <int BYTES = 16> __device__ __forceinline__ void copy_early(u32 to, const void *from, bool wanted) {
  if constexpr (BYTES == 16) // past the cache of a multiprocessor
    asm volatile("{.reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w cp.async.cg.shared.global [%0], [%1], 16;}"
                 :: "r"(to), "l"(from), "r"((u32)wanted) : "memory");
  else
    asm volatile("{.reg .pred w;\n setp.ne.u32 w, %2, 0;\n @w cp.async.ca.shared.global [%0], [%1], %3;}"
                 :: "r"(to), "l"(from), "r"((u32)wanted), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all groups but the last so many are there, of this thread.
template <int GROUPS> __device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" :: "n"(GROUPS) : "memory");
}
template <int WORDS> __device__ __forceinline__ void load_shared(u32 *v, u32 address) {
  if constexpr (WORDS == 4)
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(address));
  else if constexpr (WORDS == 2) asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(address));
  else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v[0]) : "r"(address));
}

// For numbers that are read much later: the caches keep others before them.
template <int WORDS> __device__ __forceinline__ void store_words(u32 *p, const u32 *v) {
  if constexpr (WORDS == 4)
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" :: "l"(p), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
  else if constexpr (WORDS == 2) asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" :: "l"(p), "r"(v[0]), "r"(v[1]) : "memory");
  else asm volatile("st.global.cs.u32 [%0], %1;" :: "l"(p), "r"(v[0]) : "memory");
}
// Not a branch, so that instructions before and after it can change places.
__device__ __forceinline__ void store_if(bool wanted, void *p, uint4 v) {
  asm volatile("{.reg .pred w;\n setp.ne.u32 w, %5, 0;\n @w st.global.v4.u32 [%0], {%1,%2,%3,%4};}"
               :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"((u32)wanted) : "memory");
}

// 32 columns of 8 rows, the right side of two products; or 16, of one. A thread's address is that of a row of 8 columns.
__device__ __forceinline__ void load_columns(u32 r[4], u32 address, bool two) {
  if (two)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
}
// Two or four 8 x 8 matrices, transposed, a thread's two numbers of each; its address is that of a row of one.
__device__ __forceinline__ void store_two_across(u32 address, const u32 v[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" :: "r"(address), "r"(v[0]), "r"(v[1]) : "memory");
}
__device__ __forceinline__ void store_four_across(u32 address, const u32 v[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};"
               :: "r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
__device__ __forceinline__ void store_shared(u32 address, u16 v) {
  asm volatile("st.shared.u16 [%0], %1;" :: "r"(address), "h"(v) : "memory");
}
// An 8 x 8 matrix of 16-bit numbers, two in a thread.
__device__ __forceinline__ u32 transpose(u32 v) {
  u32 t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(v));
  return t;
}

// Of the blocks of a cluster.
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in another block's shared memory.
__device__ __forceinline__ u32 in_block(u32 address, int rank) {
  u32 r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
// A barrier that counts bytes, and goes over to its next phase when all that were expected are there.
__device__ __forceinline__ void make_barrier(u32 barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier) : "memory");
}
__device__ __forceinline__ void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
// What arrives is in shared memory. An acquire for the whole cluster, as the documentation says, would invalidate the
// cache of global memory at every step.
__device__ __forceinline__ void wait_for_phase(u32 barrier, u32 parity) {
  u32 done = 0;
  while (!done)
    asm volatile("{.reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
// Writes into another block's shared memory, and counts the bytes at its barrier.
__device__ __forceinline__ void send(u32 address, u32 barrier, uint4 v) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];"
               :: "r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send(u32 address, u32 barrier, u32 v) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" :: "r"(address), "r"(v), "r"(barrier) : "memory");
}
__device__ __forceinline__ void send(u32 address, u32 barrier, uint2 v) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];"
               :: "r"(address), "r"(v.x), "r"(v.y), "r"(barrier) : "memory");
}

// Messages between blocks that run at the same time, through the cache that all share: 16 bytes arrive whole. Read if
// wanted; else v stays as it is.
__device__ __forceinline__ void read_message(uint4 &v, const uint4 *p, bool wanted) {
  asm volatile("{.reg .pred w;\n .reg .b128 q;\n .reg .b64 l, h;\n setp.ne.u32 w, %5, 0;\n"
               " mov.b64 l, {%0,%1};\n mov.b64 h, {%2,%3};\n mov.b128 q, {l, h};\n @w ld.relaxed.gpu.global.b128 q, [%4];\n"
               " mov.b128 {l, h}, q;\n mov.b64 {%0,%1}, l;\n mov.b64 {%2,%3}, h;}"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "l"(p), "r"((u32)wanted) : "memory");
}
__device__ __forceinline__ void write_message(uint4 *p, uint4 v) {
  asm volatile("{.reg .b128 q;\n .reg .b64 l, h;\n mov.b64 l, {%0,%1};\n mov.b64 h, {%2,%3};\n mov.b128 q, {l, h};\n"
               " st.relaxed.gpu.global.b128 [%4], q;}"
               :: "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(p) : "memory");
}
__device__ __forceinline__ void write_message(u32 *p, u32 v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}
