// The engine's attention on CPUs.
// Computes: out[i] = softmax(scale * q[i] K_i, capped by softcap) V_i, where K_i and V_i are the first `shared` tokens of
//           the query's prefix, then the first `own` tokens of its row's slot, the last `window` of all or all (0).
//           New keys and values are stored first. The queries of one task attend to one prefix; they are done together,
//           so its keys and values are loaded once for all.
// Shapes:   see Job; T is float or bfloat16, scores and sums are float32.
// Equals:   engine/plain_attention.py's RowsAttention.attend, and for prefixes plain_prefill.py's ChunkPrefill.attend;
//           tests/engine/test_batching.py and test_backend.py compare them.
#pragma once
#include "vectors.h"

const int TILE = 2 * LANES;  // tokens per tile

// out[j][t] = q[j] . keys[:, t] for a whole number of tiles; keys are [dim, stride]; W vectors at a time
template <class T, int Q, int W>
static int64_t scores(
    const float* q, int64_t dim, const T* keys, int64_t stride, int64_t t, int64_t n, float* out, int64_t width) {
  for (; t + W * LANES <= n; t += W * LANES) {
    Floats sum[Q][W] = {};
    for (int64_t d = 0; d < dim; d++)
      for (int w = 0; w < W; w++) {
        Floats x = load(keys + d * stride + t + w * LANES);
        for (int j = 0; j < Q; j++) sum[j][w] += x * q[j * dim + d];
      }
    for (int j = 0; j < Q; j++)
      for (int w = 0; w < W; w++) store(out + j * width + t + w * LANES, sum[j][w]);
  }
  return t;
}

// out[j] += sum over t of weights[j][t] * values[t]; values are [tokens, dim]
template <class T, int Q, int W>
static int64_t mix(const float* weights, int64_t width, const T* values, int64_t n, int64_t dim, int64_t d, float* out) {
  for (; d + W * LANES <= dim; d += W * LANES) {
    Floats sum[Q][W] = {};
    for (int64_t t = 0; t < n; t++)
      for (int w = 0; w < W; w++) {
        Floats x = load(values + t * dim + d + w * LANES);
        for (int j = 0; j < Q; j++) sum[j][w] += x * weights[j * width + t];
      }
    for (int j = 0; j < Q; j++)
      for (int w = 0; w < W; w++) store(out + j * dim + d + w * LANES, load(out + j * dim + d + w * LANES) + sum[j][w]);
  }
  return d;
}

template <class T, int Q>
static void all_scores(const float* q, int64_t dim, const T* keys, int64_t stride, int64_t n, float* out, int64_t width) {
  const int wide = Q > 4 ? 2 : Q > 2 ? 4 : 8;  // as many sums as registers hold
  int64_t t = scores<T, Q, wide>(q, dim, keys, stride, 0, n, out, width);
  scores<T, Q, 2>(q, dim, keys, stride, t, n, out, width);
}

template <class T, int Q>
static void all_mixed(const float* weights, int64_t width, const T* values, int64_t n, int64_t dim, float* out) {
  int64_t d = mix<T, Q, (Q > 4 ? 2 : 4)>(weights, width, values, n, dim, 0, out);
  d = mix<T, Q, 1>(weights, width, values, n, dim, d, out);
  for (; d < dim; d++)
    for (int j = 0; j < Q; j++)
      for (int64_t t = 0; t < n; t++) out[j * dim + d] += number(values[t * dim + d]) * weights[j * width + t];
}

// Any number of queries, in passes of 8, 4, 2, 1
#define PASSES(call, count)                     \
  for (int64_t j = 0, left = count; left > 0;) { \
    if (left >= 8) {                            \
      call(8);                                  \
      j += 8, left -= 8;                        \
    } else if (left >= 4) {                     \
      call(4);                                  \
      j += 4, left -= 4;                        \
    } else if (left >= 2) {                     \
      call(2);                                  \
      j += 2, left -= 2;                        \
    } else {                                    \
      call(1);                                  \
      j += 1, left -= 1;                        \
    }                                           \
  }

static inline int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE * TILE; }

struct Job {  // mirrored in attention_kernel.py
  int64_t heads, kv, dim, layer;
  int64_t slots, capacity, tasks, window;  // window 0: none
  float scale, softcap;                    // softcap 0: none
  const void *q, *k, *v;                   // [tokens, heads or kv heads, dim]; q only of the tokens that ask
  void *out, *keys, *values;               // keys [slots, kv, dim, capacity], values [slots, kv, capacity, dim]
  int64_t fresh, prefill;                  // new tokens, to be stored first; `prefill`: they belong to prefixes …
  const int64_t *slot, *spot;              // [fresh] slot (or memory) and place there
  const int64_t *into;                     // [fresh] … with room for so many tokens
  const int64_t *task;                     // [tasks + 1] first query of each task; all of one task attend to one prefix
  const int64_t *row, *own, *shared;       // [queries] slot, and how many own and shared tokens it sees
  const int64_t *place;                    // [queries] where it is in q and out
  const int64_t *base, *room;              // [tasks] the prefix's memory (0: none) and tokens allocated there
};

template <class T>
static void keep(const Job& job, int64_t i) {
  const T *k = (const T*)job.k + i * job.kv * job.dim, *v = (const T*)job.v + i * job.kv * job.dim;
  const int64_t room = job.prefill ? job.into[i] : job.capacity, head = job.dim * room, all = head * job.kv;
  T* keys = job.prefill ? (T*)job.slot[i] + 2 * job.layer * all : (T*)job.keys + job.slot[i] * all;
  T* values = job.prefill ? keys + all : (T*)job.values + job.slot[i] * all;
  for (int64_t h = 0; h < job.kv; h++) {
    for (int64_t d = 0; d < job.dim; d++) keys[h * head + d * room + job.spot[i]] = k[h * job.dim + d];
    memcpy(values + h * head + job.spot[i] * job.dim, v + h * job.dim, job.dim * sizeof(T));
  }
}

// Scores become weights: `shared` of them, then from `gap` on `own` of them; those beyond the window become 0
static void softmax(const Job& job, float* s, int64_t shared, int64_t gap, int64_t own) {
  const int64_t end = gap + own, outside = job.window ? shared + own - job.window : 0;
  if (job.softcap > 0)
    for (int64_t t = 0; t < end; t++) s[t] = job.softcap * tanhf(s[t] / job.softcap);
  for (int64_t t = shared; t < gap; t++) s[t] = UNSEEN;
  for (int64_t t = end; t < tiles(end); t++) s[t] = UNSEEN;
  for (int64_t t = 0; t < outside; t++) s[t < shared ? t : gap + t - shared] = UNSEEN;
  Floats top = load(s);
  for (int64_t t = LANES; t < end; t += LANES) top = load(s + t) > top ? load(s + t) : top;
  float most = top[0], total = 0;
  for (int i = 1; i < LANES; i++) most = top[i] > most ? top[i] : most;
  Floats sum = {};
  for (int64_t t = 0; t < end; t += LANES) {
    Floats x = exponential(load(s + t) - most);
    store(s + t, x);
    sum += x;
  }
  for (int i = 0; i < LANES; i++) total += sum[i];
  for (int64_t t = 0; t < end; t += LANES) store(s + t, load(s + t) / total);
}

template <class T>
static void attend(const Job& job, int64_t task, int64_t first, int64_t rows, int64_t h, float* room) {
  const int64_t dim = job.dim, per = job.heads / job.kv;
  int64_t shared = 0, own = 0;
  for (int64_t r = first; r < first + rows; r++) {
    shared = job.shared[r] > shared ? job.shared[r] : shared;
    own = job.own[r] > own ? job.own[r] : own;
  }
  const int64_t gap = tiles(shared), width = gap + tiles(own), count = rows * per;
  float *q = room, *out = q + count * dim, *s = out + count * dim;
  for (int64_t j = 0; j < count; j++) {
    const T* from = (const T*)job.q + (job.place[first + j / per] * job.heads + h * per + j % per) * dim;
    for (int64_t d = 0; d < dim; d++) q[j * dim + d] = number(from[d]) * job.scale;
  }
  memset(out, 0, count * dim * sizeof(float));
  const int64_t size = job.room[task] * dim * job.kv;  // of one prefix's keys of one layer
  const T* prefix = (const T*)job.base[task] + 2 * job.layer * size + h * job.room[task] * dim;
#define SHARED(Q) all_scores<T, Q>(q + j * dim, dim, prefix, job.room[task], gap, s + j * width, width)
  if (shared) PASSES(SHARED, count)
  for (int64_t r = 0; r < rows; r++) {
    const int64_t n = job.own[first + r];
    const T* keys = (const T*)job.keys + (job.row[first + r] * job.kv + h) * dim * job.capacity;
    float *mine = q + r * per * dim, *here = s + r * per * width + gap;
#define OWN(Q) all_scores<T, Q>(mine + j * dim, dim, keys, job.capacity, tiles(n), here + j * width, width)
    PASSES(OWN, per)
    for (int64_t j = 0; j < per; j++) softmax(job, s + (r * per + j) * width, job.shared[first + r], gap, n);
  }
#define MIX(Q) all_mixed<T, Q>(s + j * width, width, prefix + size, shared, dim, out + j * dim)
  if (shared) PASSES(MIX, count)
  for (int64_t r = 0; r < rows; r++) {
    const T* values = (const T*)job.values + (job.row[first + r] * job.kv + h) * dim * job.capacity;
    float *here = s + r * per * width + gap, *mine = out + r * per * dim;
#define MIX_OWN(Q) all_mixed<T, Q>(here + j * width, width, values, job.own[first + r], dim, mine + j * dim)
    PASSES(MIX_OWN, per)
  }
  for (int64_t j = 0; j < count; j++) {
    T* to = (T*)job.out + (job.place[first + j / per] * job.heads + h * per + j % per) * dim;
    for (int64_t d = 0; d < dim; d++) put(to + d, out[j * dim + d]);
  }
}

// Floats that `attend` needs for the largest task
static int64_t room_for(const Job& job) {
  int64_t most = 0, rows = 0;
  for (int64_t t = 0; t < job.tasks; t++) {
    int64_t n = job.task[t + 1] - job.task[t];
    rows = n > rows ? n : rows;
    for (int64_t r = job.task[t]; r < job.task[t + 1]; r++) {
      int64_t seen = tiles(job.shared[r]) + TILE + tiles(job.own[r]);
      most = seen > most ? seen : most;
    }
  }
  return rows * (job.heads / job.kv) * (2 * job.dim + 2 * most);
}
