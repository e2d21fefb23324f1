// A whole forward pass of rows that decode, for a model of the usual layers.
// Computes: for each layer x += o(attend(rope(norm(qkv(norm(x)))))), x += down(silu_mul(gate_up(norm(x)))); then
//           logits = head(norm(x)). A thread takes its rows through all layers: none waits for another.
// Shapes:   see Decode; T is float or bfloat16, sums are float32.
// Equals:   model(input_ids, position_ids).logits of the library's model with the engine's attention (plain.py's
//           run_model); tests/engine/test_decode.py compares them.
#pragma once
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#include <omp.h>

#include "attend.h"
#include "rows.h"

// Weights are [outputs / 16][words][16]: a word is a float, or two bfloat16 that follow each other
static inline Floats times(Floats sum, Words w, uint32_t x, float) {
  float f;
  memcpy(&f, &x, sizeof f);
  return sum + (Floats)w * f;
}
static inline Floats times(Floats sum, Words w, uint32_t x, bfloat16) {
#ifdef __AVX512BF16__
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)_mm512_set1_epi32(x));
#else
  sum = times(sum, w << 16, x << 16, 0.0f);
  return times(sum, w & 0xffff0000, x & 0xffff0000, 0.0f);
#endif
}

struct Linear {  // mirrored in decode.py
  int64_t in, out;
  const void *weight, *bias;
};

template <class T, int R, int W>
static void tile(const uint32_t* x, int64_t words, const uint32_t* weight, const T* bias, T* out, int64_t wide) {
  Floats sum[R][W];
  for (int r = 0; r < R; r++)
    for (int w = 0; w < W; w++) sum[r][w] = bias ? load(bias + w * LANES) : (Floats){};
  for (int64_t k = 0; k < words; k++) {
    Words column[W];
    for (int w = 0; w < W; w++) memcpy(&column[w], weight + (w * words + k) * LANES, sizeof(Words));
    for (int r = 0; r < R; r++)
      for (int w = 0; w < W; w++) sum[r][w] = times(sum[r][w], column[w], x[r * words + k], T());
  }
  for (int r = 0; r < R; r++)
    for (int w = 0; w < W; w++) store(out + r * wide + w * LANES, sum[r][w]);
}

template <class T, int W>
static void panel(const T* x, int64_t rows, const Linear& job, int64_t n, T* out) {
  const int64_t words = job.in * sizeof(T) / 4;
  const uint32_t *in = (const uint32_t*)x, *weight = (const uint32_t*)job.weight + n * words;
  const T* bias = job.bias ? (const T*)job.bias + n : nullptr;
#define TILE_OF(Q) tile<T, Q, W>(in + j * words, words, weight, bias, out + j * job.out + n, job.out)
  PASSES(TILE_OF, rows)
}

template <class T>
static void linear(const T* x, int64_t rows, const Linear& job, T* out) {
  int64_t n = 0;
  for (; n + 3 * LANES <= job.out; n += 3 * LANES) panel<T, 3>(x, rows, job, n, out);
  for (; n < job.out; n += LANES) panel<T, 1>(x, rows, job, n, out);
}

struct Layer {  // mirrored in decode.py
  const void *input_norm, *post_norm, *q_norm, *k_norm;
  Linear qkv, o, gate_up, down;
  void *keys, *values;
  int64_t window;
  float scale, unused;
};

struct Decode {  // mirrored in decode.py
  int64_t width, inner, layers, late;
  float eps, unused;
  const Layer* layer;
  const void* norm;
  Linear head;
  const void *x, *cos, *sin;  // [rows, width], [rows, dim]
  void* logits;               // [rows, vocabulary]
  const Job* job;             // attention; q, k, v and out are room for all rows
};

template <class T>
static void norms(const Decode& d, const T* x, const void* weight, T* out, int64_t rows) {
  for (int64_t i = 0; i < rows; i++)
    norm_row(x + i * d.width, (const T*)weight, out + i * d.width, d.width, d.eps, d.late);
}

template <class T>
static void add(T* x, const T* y, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(x + i, load(x + i) + load(y + i));
}

// The rows at places `from` to `to` of the queries, which are sorted by what they share
template <class T>
static void decode_some(const Decode& d, int64_t from, int64_t to, float* room) {
  Job job = *d.job;
  const int64_t n = to - from, width = d.width, dim = job.dim, all = job.heads + 2 * job.kv, *place = job.place + from;
  const int64_t seen = job.heads * dim;
  T* x = (T*)aligned_alloc(64, (n * (2 * width + all * dim + seen + 3 * d.inner) * sizeof(T) + 127) / 64 * 64);
  T *y = x + n * width, *qkv = y + n * width, *out = qkv + n * all * dim, *both = out + n * seen;
  T* act = both + 2 * n * d.inner;
  for (int64_t i = 0; i < n; i++) memcpy(x + i * width, (const T*)d.x + place[i] * width, width * sizeof(T));
  for (int64_t l = 0; l < d.layers; l++) {
    const Layer& layer = d.layer[l];
    job.layer = l, job.window = layer.window, job.scale = layer.scale, job.keys = layer.keys, job.values = layer.values;
    norms(d, x, layer.input_norm, y, n);
    linear(y, n, layer.qkv, qkv);
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = place[i];
      const T *cos = (const T*)d.cos + at * dim, *sin = (const T*)d.sin + at * dim, *row = qkv + i * all * dim;
      T *q = (T*)job.q + at * seen, *k = (T*)job.k + at * job.kv * dim, *v = (T*)job.v + at * job.kv * dim;
      for (int64_t h = 0; h < job.heads; h++)
        head_row(row + h * dim, (const T*)layer.q_norm, cos, sin, q + h * dim, dim, d.eps, d.late);
      for (int64_t h = 0; h < job.kv; h++)
        head_row(row + seen + h * dim, (const T*)layer.k_norm, cos, sin, k + h * dim, dim, d.eps, d.late);
      memcpy(v, row + seen + job.kv * dim, job.kv * dim * sizeof(T));
      keep<T>(job, at);
    }
    for (int64_t t = 0; t < job.tasks; t++) {
      const int64_t first = job.task[t] > from ? job.task[t] : from, last = job.task[t + 1] < to ? job.task[t + 1] : to;
      for (int64_t h = 0; h < job.kv && first < last; h++) attend<T>(job, t, first, last - first, h, room);
    }
    for (int64_t i = 0; i < n; i++) memcpy(out + i * seen, (const T*)job.out + place[i] * seen, seen * sizeof(T));
    linear(out, n, layer.o, y);
    add(x, y, n * width);
    norms(d, x, layer.post_norm, y, n);
    linear(y, n, layer.gate_up, both);
    for (int64_t i = 0; i < n; i++) silu_mul_row(both + 2 * i * d.inner, act + i * d.inner, d.inner);
    linear(act, n, layer.down, y);
    add(x, y, n * width);
  }
  norms(d, x, d.norm, y, n);
  T* logits = (T*)malloc(n * d.head.out * sizeof(T));
  linear(y, n, d.head, logits);
  for (int64_t i = 0; i < n; i++)
    memcpy((T*)d.logits + place[i] * d.head.out, logits + i * d.head.out, d.head.out * sizeof(T));
  free(logits);
  free(x);
}

template <class T>
static void decode(const Decode& d) {
  const int64_t rows = d.job->task[d.job->tasks], size = room_for(*d.job);
#pragma omp parallel
  {
    const int64_t t = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t each = ((rows + threads - 1) / threads + 7) / 8 * 8, from = t * each;
    const int64_t to = from + each < rows ? from + each : rows;
    float* room = (float*)malloc(size * sizeof(float));
    if (from < to) decode_some<T>(d, from, to, room);
    free(room);
  }
}
