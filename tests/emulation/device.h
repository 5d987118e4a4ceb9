// A device on paper: CUDA kernels as plain C++, thread by thread, each a fiber that runs until it has to wait for others.
// Slow, exact, and without a GPU. What instructions.cuh says in assembly is said here in C++.

#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n)
#define __CUDA_ARCH__ 900

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
template <typename A, typename B> inline auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }
template <typename A, typename B> inline auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }

namespace device {

constexpr int SHARED = 1 << 18, STACK = 1 << 18;

struct Index { int x = 0, y = 0; };
struct Gathering { // of so many threads, again and again
  int size, here = 0, times = 0;
  bool any = false, all_time_any = false;
};
struct Warp {
  Gathering gathering{32};
  u32 slots[32][8];
};
struct Barrier { int pending = 1, bytes = 0, phase = 0; };
struct Block {
  Index index;
  int rank, threads, asleep = 0;
  Gathering gathering;
  std::vector<Warp> warps;
  std::vector<char> shared;
  std::map<u32, Barrier> barriers;
};
struct Copy { char *to; const void *from; int bytes, group; };
struct Fiber {
  ucontext_t context; // to begin with; from then on it goes on from `place`, which needs no call of the system
  jmp_buf place;
  std::vector<Copy> copies; // that were asked for and have not been waited for
  int groups = 0;
  Block *block;
  Index thread;
  bool begun = false, done = false;
};

inline std::vector<std::unique_ptr<Fiber>> fibers;
inline std::vector<Block> blocks; // those that run at the same time: of a cluster, or of a row of the grid
inline Gathering cluster{0};
inline std::vector<std::unique_ptr<char[]>> stacks; // of fibers, by their number; kept for the next launch
inline jmp_buf scheduler;
inline Fiber *me = nullptr;
inline Index grid, block_size;
inline std::function<void()> body;
inline std::map<int, int> places; // of tables in shared memory, by the line they are declared in
inline int used = 0;
inline long idle = 0, unanswered = 0;

__attribute__((noinline)) inline void wait_a_bit() {
  if (++idle > 50'000'000) std::fprintf(stderr, "the kernel waits for ever\n"), std::abort();
  if (!_setjmp(me->place)) _longjmp(scheduler, 1);
}
__attribute__((noinline)) inline void go_on() {
  if (_setjmp(scheduler)) return;
  if (me->begun) _longjmp(me->place, 1);
  me->begun = true;
  setcontext(&me->context);
}
inline void meet(Gathering &g) {
  const int now = g.times;
  if (++g.here == g.size) {
    g.here = 0, g.times++, idle = 0;
    g.all_time_any = g.any, g.any = false;
  } else
    while (g.times == now) wait_a_bit();
}
inline Warp &warp() { return me->block->warps[me->thread.x / 32]; }
inline int lane() { return me->thread.x % 32; }
// Everybody of a warp brings numbers, and reads what the others brought.
template <typename Read> inline void exchange(const u32 *mine, int count, Read read) {
  Warp &own = warp();
  for (int n = 0; n < count; n++) own.slots[lane()][n] = mine[n];
  meet(own.gathering);
  read(own.slots);
  meet(own.gathering);
}
inline char *at(u32 address) { return blocks[address >> 24].shared.data() + (address & 0xffffff); }
inline char *table(int line, int size) {
  auto found = places.find(line);
  if (found == places.end()) found = places.emplace(line, used).first, used += (size + 15) / 16 * 16;
  if (used > SHARED / 4) std::fprintf(stderr, "too much shared memory\n"), std::abort();
  return me->block->shared.data() + found->second;
}
inline void *dynamic_shared() { return me->block->shared.data() + SHARED / 4; }

inline void entry() {
  body();
  me->done = true;
  _longjmp(scheduler, 1);
}
// Blocks that run at the same time do not run at the same speed: now and then, one sleeps while the others go on.
inline void run_cluster() {
  u32 draw = 1;
  for (bool some = true; some;) {
    some = false;
    if (blocks.size() > 1)
      for (Block &block : blocks) {
        draw = draw * 1664525u + 1013904223u;
        block.asleep = block.asleep > 0 ? block.asleep - 1 : draw >> 26 ? 0 : draw >> 16 & 511;
      }
    for (auto &fiber : fibers) {
      some |= !fiber->done;
      if (!fiber->done && !fiber->block->asleep) {
        me = fiber.get();
        go_on();
      }
    }
  }
}
template <typename... A, size_t... I> void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
  kernel(*(A *)arguments[I]...);
}
// `together` blocks of a row of the grid at a time.
template <typename... A> void launch(void (*kernel)(A...), int gx, int gy, int threads, int together, void **arguments) {
  body = [=] { call(kernel, arguments, std::index_sequence_for<A...>()); };
  grid = {gx, gy}, block_size = {threads, 1};
  for (int y = 0; y < gy; y++)
    for (int first = 0; first < gx; first += together) {
      blocks.assign(together, Block());
      fibers.clear(), cluster = {together * threads};
      for (int rank = 0; rank < together; rank++) {
        Block &block = blocks[rank];
        block.index = {first + rank, y}, block.rank = rank, block.threads = threads, block.gathering = {threads};
        block.warps.resize(threads / 32), block.shared.assign(SHARED, (char)0x7f); // whatever was there before
        for (int thread = 0; thread < threads; thread++) {
          auto fiber = std::make_unique<Fiber>();
          if (stacks.size() == fibers.size()) stacks.emplace_back(new char[STACK]); // what is never touched costs nothing
          fiber->block = &block, fiber->thread = {thread, 0};
          getcontext(&fiber->context);
          fiber->context.uc_stack.ss_sp = stacks[fibers.size()].get(), fiber->context.uc_stack.ss_size = STACK;
          fiber->context.uc_link = nullptr;
          makecontext(&fiber->context, entry, 0);
          fibers.push_back(std::move(fiber));
        }
      }
      run_cluster();
    }
}

} // namespace device

#define threadIdx (device::me->thread)
#define blockIdx (device::me->block->index)
#define gridDim (device::grid)
#define blockDim (device::block_size)

inline float __int_as_float(int v) { float f; std::memcpy(&f, &v, 4); return f; }
inline float __uint_as_float(u32 v) { float f; std::memcpy(&f, &v, 4); return f; }
inline u32 __float_as_uint(float v) { u32 u; std::memcpy(&u, &v, 4); return u; }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline void __syncthreads() { device::meet(device::me->block->gathering); }
inline int __syncthreads_or(int v) {
  auto &g = device::me->block->gathering;
  g.any |= v != 0;
  device::meet(g);
  const int result = g.all_time_any;
  device::meet(g);
  return result;
}
inline void __syncwarp() { device::meet(device::warp().gathering); }
inline int __popc(u32 v) { return __builtin_popcount(v); }
inline int __ffs(u32 v) { return __builtin_ffs((int)v); }
inline int __clz(u32 v) { return v ? __builtin_clz(v) : 32; }
inline u32 __ballot_sync(u32, int v) {
  u32 mine = v != 0, result = 0;
  device::exchange(&mine, 1, [&](auto slots) { for (int n = 0; n < 32; n++) result |= slots[n][0] << n; });
  return result;
}
inline int __any_sync(u32, int v) {
  u32 mine = v != 0, result = 0;
  device::exchange(&mine, 1, [&](auto slots) { for (int n = 0; n < 32; n++) result |= slots[n][0]; });
  return result;
}
inline u32 __reduce_max_sync(u32, u32 v) {
  u32 result = 0;
  device::exchange(&v, 1, [&](auto slots) { for (int n = 0; n < 32; n++) result = max(result, slots[n][0]); });
  return result;
}
inline u32 __shfl_sync(u32, u32 v, int from) {
  u32 result;
  device::exchange(&v, 1, [&](auto slots) { result = slots[from & 31][0]; });
  return result;
}
inline float __shfl_xor_sync(u32, float v, int mask) {
  u32 mine = __float_as_uint(v), result;
  device::exchange(&mine, 1, [&](auto slots) { result = slots[device::lane() ^ mask][0]; });
  return __uint_as_float(result);
}

inline float half_of(u16 bits) { _Float16 h; std::memcpy(&h, &bits, 2); return (float)h; }
inline u16 as_half(float v) { _Float16 h = (_Float16)v; u16 bits; std::memcpy(&bits, &h, 2); return bits; }
inline float bfloat_of(u16 bits) { return __uint_as_float((u32)bits << 16); }
inline u16 round_to_bfloat(float v) {
  u32 bits = __float_as_uint(v);
  if (std::isnan(v)) return 0x7fff;
  return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float tanh_approximately(float x) { return std::tanh(x); }
inline u32 pack_half(float low, float high) { return as_half(low) | (u32)as_half(high) << 16; }
inline u32 pack_bfloat(float low, float high) { return round_to_bfloat(low) | (u32)round_to_bfloat(high) << 16; }
inline float half_low(u32 p) { return half_of((u16)p); }
inline float half_high(u32 p) { return half_of((u16)(p >> 16)); }
inline u32 multiply_bfloats(u32 a, u32 b) {
  return pack_bfloat(bfloat_of((u16)a) * bfloat_of((u16)b), bfloat_of((u16)(a >> 16)) * bfloat_of((u16)(b >> 16)));
}

inline void multiply(float d[4], const u32 a[4], u32 b0, u32 b1) {
  const u32 mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const int row = device::lane() / 4, column = device::lane() % 4 * 2;
  device::exchange(mine, 6, [&](auto slots) {
    for (int n = 0; n < 4; n++) {
      const int r = row + n / 2 * 8, c = column + n % 2;
      float sum = 0;
      for (int k = 0; k < 16; k++) {
        const u32 left = slots[r % 8 * 4 + k % 8 / 2][r / 8 + k / 8 * 2], right = slots[c * 4 + k % 8 / 2][4 + k / 8];
        sum += (k % 2 ? half_high(left) : half_low(left)) * (k % 2 ? half_high(right) : half_low(right));
      }
      d[n] += sum;
    }
  });
}
inline void multiply_short(float d[4], u32 a0, u32 a1, u32 b) {
  const u32 a[4] = {a0, a1, 0, 0}; // the other half of 16 columns is zeros
  multiply(d, a, b, 0);
}
inline void multiply_bfloat(float d[4], u32 a0, u32 a1, u32 b) {
  const u32 mine[3] = {a0, a1, b};
  const int row = device::lane() / 4, column = device::lane() % 4 * 2;
  device::exchange(mine, 3, [&](auto slots) {
    for (int n = 0; n < 4; n++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) {
        const u32 left = slots[row * 4 + k / 2][n / 2], right = slots[(column + n % 2) * 4 + k / 2][2];
        sum += bfloat_of((u16)(left >> k % 2 * 16)) * bfloat_of((u16)(right >> k % 2 * 16));
      }
      d[n] += sum;
    }
  });
}
inline void multiply_wide(float d[4], const float a[4], const float b[2]) {
  u32 mine[6];
  for (int n = 0; n < 6; n++) mine[n] = __float_as_uint(n < 4 ? a[n] : b[n - 4]) & ~0x1fffu; // what it reads
  const int row = device::lane() / 4, column = device::lane() % 4 * 2;
  device::exchange(mine, 6, [&](auto slots) {
    for (int n = 0; n < 4; n++) {
      float sum = 0;
      for (int k = 0; k < 8; k++)
        sum += __uint_as_float(slots[row * 4 + k % 4][n / 2 + k / 4 * 2]) * __uint_as_float(slots[(column + n % 2) * 4 + k % 4][4 + k / 4]);
      d[n] += sum;
    }
  });
}
inline u32 shared_address(const void *p) {
  return (u32)device::me->block->rank << 24 | (u32)((const char *)p - device::me->block->shared.data());
}
inline float load_early(const float *p) { return *p; }
template <typename V> inline void load_early(V &v, const V *p, bool wanted) { if (wanted) v = *p; }
template <int WORDS> inline void load_early(u32 *v, const void *p, bool wanted) { if (wanted) std::memcpy(v, p, 4 * WORDS); }
// Nothing arrives before it is waited for.
template <int BYTES = 16> inline void copy_early(u32 to, const void *from, bool wanted) {
  if ((to | (u32)(size_t)from) % BYTES) std::fprintf(stderr, "a copy is not aligned\n"), std::abort();
  if (wanted) device::me->copies.push_back({device::at(to), from, BYTES, device::me->groups});
}
inline void end_copies() { device::me->groups++; }
template <int GROUPS> inline void wait_for_copies() {
  auto &copies = device::me->copies;
  size_t there = 0;
  for (; there < copies.size() && copies[there].group < device::me->groups - GROUPS; there++)
    std::memcpy(copies[there].to, copies[there].from, copies[there].bytes);
  copies.erase(copies.begin(), copies.begin() + there);
}
template <int WORDS> inline void load_shared(u32 *v, u32 address) { std::memcpy(v, device::at(address), 4 * WORDS); }
template <int WORDS> inline void store_words(u32 *p, const u32 *v) { std::memcpy(p, v, 4 * WORDS); }
inline void fetch_early(const void *p) { (void)*(const volatile char *)p; } // it must be there to be read
inline void store_if(bool wanted, void *p, uint4 v) { if (wanted) *(uint4 *)p = v; }
inline void load_columns(u32 r[4], u32 address, bool two) {
  device::exchange(&address, 1, [&](auto slots) {
    for (int m = 0; m < (two ? 4 : 2); m++)
      r[m] = ((const u32 *)device::at(slots[m * 8 + device::lane() / 4][0]))[device::lane() % 4];
  });
}
template <int N> inline void store_matrices(u32 address, const u32 *v) {
  device::exchange(&address, 1, [&](auto slots) {
    for (int m = 0; m < N; m++)
      for (int n = 0; n < 2; n++) // row is the thread's column, and the other way round
        ((u16 *)device::at(slots[m * 8 + device::lane() % 4 * 2 + n][0]))[device::lane() / 4] = (u16)(v[m] >> n * 16);
  });
}
inline void store_two_across(u32 address, const u32 *v) { store_matrices<2>(address, v); }
inline void store_four_across(u32 address, const u32 *v) { store_matrices<4>(address, v); }
inline void store_shared(u32 address, u16 v) { *(u16 *)device::at(address) = v; }
inline u32 transpose(u32 v) {
  u32 result = 0;
  device::exchange(&v, 1, [&](auto slots) {
    for (int n = 0; n < 2; n++) {
      const int row = device::lane() % 4 * 2 + n, column = device::lane() / 4;
      result |= (slots[row * 4 + column / 2][0] >> column % 2 * 16 & 0xffff) << n * 16;
    }
  });
  return result;
}

inline void meet_cluster() { device::meet(device::cluster); }
inline u32 in_block(u32 address, int rank) { return (address & 0xffffff) | (u32)rank << 24; }
inline device::Barrier &barrier_at(u32 address) { return device::blocks[address >> 24].barriers[address & 0xffffff]; }
inline void turn(device::Barrier &barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) barrier.phase++, barrier.pending = 1, device::idle = 0;
}
inline void make_barrier(u32 address) { barrier_at(address) = {}; }
inline void show_barriers() {}
inline void expect_bytes(u32 address, u32 bytes) {
  auto &barrier = barrier_at(address);
  barrier.bytes += bytes, barrier.pending--;
  turn(barrier);
}
inline void wait_for_phase(u32 address, u32 parity) {
  while ((barrier_at(address).phase & 1) == (int)parity) device::wait_a_bit();
}
template <typename Part> inline void send(u32 address, u32 barrier, Part part) {
  std::memcpy(device::at(address), &part, sizeof part);
  barrier_at(barrier).bytes -= sizeof part;
  turn(barrier_at(barrier));
}

// Fibers run in turns, so that memory is as they left it. A reader lets others run: it may be waiting for them.
inline void read_message(uint4 &v, const uint4 *p, bool wanted) {
  if (!wanted) return;
  if (++device::unanswered > 20'000'000) std::fprintf(stderr, "nobody sends what the kernel waits for\n"), std::abort();
  v = *p;
}
template <typename V> inline void write_message(V *p, V v) { *p = v, device::unanswered = 0; }
