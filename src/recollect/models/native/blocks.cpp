// Small parts of a model and their gradients, in one pass each; blocks.py calls them. T is float or bfloat16; sums are
// float32. Sizes `dim` are multiples of 16. `X_back` is the gradient of X. tests/models/test_native.py compares each
// with the function that it equals.
#include "rows.h"

#include <omp.h>

// Sums over rows, in an order that depends on the number of threads alone
struct Sums {
  int64_t size;
  float* all;
  explicit Sums(int64_t dim)
      : size(dim + LANES), all((float*)calloc(omp_get_max_threads() * (dim + LANES), sizeof(float))) {}
  float* mine() { return all + omp_get_thread_num() * size; }
  void give(float* out, int64_t dim) {
    for (int64_t d = 0; d < dim; d++) out[d] = 0;
    for (int t = 0; t < omp_get_max_threads(); t++)
      for (int64_t d = 0; d < dim; d++) out[d] += all[t * size + d];
    free(all);
  }
};

// ---- norms ----
// Computes: out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * w, where w is `weight`, or 1 + `weight` with `late` (then it is
//           rounded to T after the product, not before it).
// Shapes:   x, out, grad, to T [rows, dim]; weight T [dim]; weights (its gradient) float [dim].
// Equals:   the RMSNorm of the library's model, as LlamaRMSNorm or, with `late`, GemmaRMSNorm.

template <class T, class G>
static inline void norm_row_back(
    const T* x, const T* weight, const G* grad, T* to, float* weights, int64_t dim, float eps, int64_t late) {
  const float factor = inverse_rms(x, dim, eps), plus = late ? 1.0f : 0.0f;
  Floats along = {};
  for (int64_t d = 0; d < dim; d += LANES) {
    Floats g = load(grad + d), y = load(x + d) * factor;
    store(weights + d, load(weights + d) + g * y);
    along += g * (load(weight + d) + plus) * y;
  }
  const float mean = sum(along) / dim;
  for (int64_t d = 0; d < dim; d += LANES)
    store(to + d, (load(grad + d) * (load(weight + d) + plus) - load(x + d) * (factor * mean)) * factor);
}

template <class T>
static void norm(const T* x, const T* weight, T* out, int64_t rows, int64_t dim, float eps, int64_t late) {
#pragma omp parallel for if (rows * dim > 1 << 14)
  for (int64_t r = 0; r < rows; r++) norm_row(x + r * dim, weight, out + r * dim, dim, eps, late);
}

template <class T>
static void norm_back(
    const T* x, const T* weight, const T* grad, T* to, float* weights, int64_t rows, int64_t dim, float eps,
    int64_t late) {
  Sums sums(dim);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++)
    norm_row_back(x + r * dim, weight, grad + r * dim, to + r * dim, sums.mine(), dim, eps, late);
  sums.give(weights, dim);
}

// ---- gates ----
// Computes: out[r] = silu(gate[r]) * up[r], where both[r] = [gate[r], up[r]].
// Shapes:   both, to T [rows, 2 dim]; out, grad T [rows, dim].
// Equals:   torch.nn.functional.silu(gate) * up.

template <class T>
static void silu_mul(const T* both, T* out, int64_t rows, int64_t dim) {
#pragma omp parallel for if (rows * dim > 1 << 14)
  for (int64_t r = 0; r < rows; r++) silu_mul_row(both + 2 * r * dim, out + r * dim, dim);
}

template <class T>
static void silu_mul_back(const T* both, const T* grad, T* to, int64_t rows, int64_t dim) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; r++)
    for (int64_t d = 0; d < dim; d += LANES) {
      const int64_t at = 2 * r * dim + d;
      Floats x = load(both + at), up = load(both + at + dim), g = load(grad + r * dim + d), s = sigmoid(x);
      store(to + at, g * up * s * (1.0f + x * (1.0f - s)));
      store(to + at + dim, g * x * s);
    }
}

// ---- heads ----
// Computes: queries and keys = rope(norm(x)), values = x, for one row of all heads side by side. The norm is left out
//           where there is no weight. rope(y) = y * cos + [-y2, y1] * sin, for the halves y1 and y2 of a head.
// Shapes:   see Heads.
// Equals:   the q_norm, k_norm and apply_rotary_pos_emb of the library's attention.

struct Heads {  // mirrored in blocks.py
  int64_t tokens, heads, kv, dim, late;
  float eps, unused;
  const void *x, *cos, *sin, *q_weight, *k_weight;  // x [tokens, (heads + 2 kv) dim], cos and sin [tokens, dim]
  void *q, *k, *v;                                  // [tokens, heads or kv, dim]; backward: their gradients
  void *to;                                         // backward: the gradient of x …
  float *q_sums, *k_sums;                           // … and those of the weights
};

template <class T>
static void heads(const Heads& job) {
  const int64_t dim = job.dim, all = job.heads + 2 * job.kv;
#pragma omp parallel for if (job.tokens * all * dim > 1 << 14)
  for (int64_t i = 0; i < job.tokens; i++) {
    const T *cos = (const T*)job.cos + i * dim, *sin = (const T*)job.sin + i * dim;
    for (int64_t h = 0; h < job.heads + job.kv; h++) {
      const bool query = h < job.heads;
      const T *from = (const T*)job.x + (i * all + h) * dim, *weight = (const T*)(query ? job.q_weight : job.k_weight);
      T* to = query ? (T*)job.q + (i * job.heads + h) * dim : (T*)job.k + (i * job.kv + h - job.heads) * dim;
      head_row(from, weight, cos, sin, to, dim, job.eps, job.late);
    }
    const T* values = (const T*)job.x + (i * all + job.heads + job.kv) * dim;
    memcpy((T*)job.v + i * job.kv * dim, values, job.kv * dim * sizeof(T));
  }
}

template <class T>
static void heads_back(const Heads& job) {
  const int64_t dim = job.dim, half = dim / 2, all = job.heads + 2 * job.kv;
  Sums q_sums(dim), k_sums(dim);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < job.tokens; i++) {
    const T *cos = (const T*)job.cos + i * dim, *sin = (const T*)job.sin + i * dim;
    for (int64_t h = 0; h < job.heads + job.kv; h++) {
      const bool query = h < job.heads;
      const T *from = (const T*)job.x + (i * all + h) * dim, *weight = (const T*)(query ? job.q_weight : job.k_weight);
      const T* grad = query ? (T*)job.q + (i * job.heads + h) * dim : (T*)job.k + (i * job.kv + h - job.heads) * dim;
      T* to = (T*)job.to + (i * all + h) * dim;
      float g[WIDEST];
      for (int64_t d = 0; d < half; d += LANES) {
        Floats a = load(grad + d), b = load(grad + half + d);
        store(g + d, a * load(cos + d) + b * load(sin + half + d));
        store(g + half + d, b * load(cos + half + d) - a * load(sin + d));
      }
      if (weight)
        norm_row_back(from, weight, g, to, (query ? q_sums : k_sums).mine(), dim, job.eps, job.late);
      else
        for (int64_t d = 0; d < dim; d += LANES) store(to + d, load(g + d));
    }
    T* values = (T*)job.to + (i * all + job.heads + job.kv) * dim;
    memcpy(values, (const T*)job.v + i * job.kv * dim, job.kv * dim * sizeof(T));
  }
  q_sums.give(job.q_sums, dim);
  k_sums.give(job.k_sums, dim);
}

// ---- attention within segments (packing/micro_batch.py): what comes before, between and after the products ----
// The three together with two matrix products equal recollect.models.attention.small_sdpa with the mask of a Bucket.

// Computes: out[s, h, i] = flat[index[s, i], h]; places after the first that repeat it are padding and become 0.
// Shapes:   flat T [tokens, heads, dim]; index int64 [segments, length]; out T [segments, heads, length, dim].
// Equals:   flat[index].transpose(1, 2), with 0 for padding.
template <class T>
static void gather(
    const T* flat, const int64_t* index, T* out, int64_t segments, int64_t length, int64_t heads, int64_t dim) {
#pragma omp parallel for
  for (int64_t row = 0; row < segments * heads; row++) {
    const int64_t *places = index + row / heads * length, h = row % heads;
    for (int64_t i = 0; i < length; i++) {
      T* to = out + (row * length + i) * dim;
      if (i && places[i] == places[0])
        memset(to, 0, dim * sizeof(T));
      else
        memcpy(to, flat + (places[i] * heads + h) * dim, dim * sizeof(T));
    }
  }
}

// Computes: flat[index[s, i], h] = from[s, h, i], where every token is in one place.
// Shapes:   as gather, the other way.
// Equals:   flat.index_copy(0, index, from.transpose(1, 2)), without padding.
template <class T>
static void scatter(
    const T* from, const int64_t* index, T* flat, int64_t segments, int64_t length, int64_t heads, int64_t dim) {
#pragma omp parallel for
  for (int64_t row = 0; row < segments * heads; row++) {
    const int64_t *places = index + row / heads * length, h = row % heads;
    for (int64_t i = 0; i < length && (!i || places[i] != places[0]); i++)
      memcpy(flat + (places[i] * heads + h) * dim, from + (row * length + i) * dim, dim * sizeof(T));
  }
}

// Computes: flat[index[s, i], h] += from[s, h, i], always in the same order: a token may be in several segments.
// Shapes:   as scatter; flat is float.
// Equals:   flat.index_add(0, index, from.transpose(1, 2)), without padding.
template <class T>
static void scatter_add(
    const T* from, const int64_t* index, float* flat, int64_t segments, int64_t length, int64_t heads, int64_t dim) {
  const int64_t parts = dim / LANES;
#pragma omp parallel for
  for (int64_t task = 0; task < heads * parts; task++) {
    const int64_t h = task / parts, d = task % parts * LANES;
    for (int64_t s = 0; s < segments; s++) {
      const int64_t* places = index + s * length;
      for (int64_t i = 0; i < length && (!i || places[i] != places[0]); i++) {
        float* to = flat + (places[i] * heads + h) * dim + d;
        store(to, load(to) + load(from + ((s * heads + h) * length + i) * dim + d));
      }
    }
  }
}

// Computes: scores[s, h, i] = softmax over keys t of scale * scores[s, h, i, t]; query i of a segment sees the keys up to
//           before[s] + i, the last `window` of them or all (0). In place.
// Shapes:   scores T [segments, heads, n, m]; before int64 [segments].
// Equals:   torch.softmax(scale * scores + mask, -1).
template <class T>
static void causal_softmax(
    T* scores, const int64_t* before, int64_t segments, int64_t heads, int64_t n, int64_t m, float scale,
    int64_t window) {
#pragma omp parallel
  {
    float* y = (float*)malloc((m + LANES) * sizeof(float));
#pragma omp for
    for (int64_t row = 0; row < segments * heads * n; row++) {
      const int64_t place = before[row / (heads * n)] + row % n, last = place < m ? place : m - 1;
      int64_t first = window && place >= window ? place - window + 1 : 0;
      first = first > last ? last : first;  // padding: anything
      T* s = scores + row * m;
      Floats top = (Floats){} + UNSEEN, total = {};
      Integers at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
      for (int64_t t = 0; t <= last; t += LANES, at += LANES) {
        Floats x = load_some(s + t, m - t) * scale;
        x = (at < (int32_t)first) | (at > (int32_t)last) ? (Floats){} + UNSEEN : x;
        store(y + t, x);
        top = x > top ? x : top;
      }
      const float most = largest(top);
      for (int64_t t = 0; t <= last; t += LANES) {
        Floats x = exponential(load(y + t) - most);
        store(y + t, x);
        total += x;
      }
      const float factor = 1 / sum(total);
      for (int64_t t = 0; t < m; t += LANES)
        store_some(s + t, m - t, t <= last ? load(y + t) * factor : (Floats){});
    }
    free(y);
  }
}

// Computes: grad[r] = scale * w[r] * (grad[r] - sum(grad[r] * w[r])): the gradient of weights becomes that of scores.
// Shapes:   weights, grad T [rows, m].
// Equals:   the gradient of torch.softmax(scale * scores, -1).
template <class T>
static void softmax_back(const T* weights, T* grad, int64_t rows, int64_t m, float scale) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; row++) {
    const T* w = weights + row * m;
    T* g = grad + row * m;
    Floats along = {};
    for (int64_t t = 0; t < m; t += LANES) along += load_some(w + t, m - t) * load_some(g + t, m - t);
    const float mean = sum(along);
    for (int64_t t = 0; t < m; t += LANES)
      store_some(g + t, m - t, (load_some(g + t, m - t) - mean) * load_some(w + t, m - t) * scale);
  }
}

// ---- log-probabilities ----
// Computes: with p = softmax(factor * x): log p[target], the entropy -sum(p log p), and log sum exp(factor * x).
// Shapes:   logits, to T [rows, m]; target int64 [rows]; out, found float [3, rows]; by_logprob, by_entropy (the
//           gradients of the first two) float [rows].
// Equals:   training/learner/forward.py's _figures, of log_softmax.

template <class T>
static void logprob_entropy(const T* logits, const int64_t* target, float* out, int64_t rows, int64_t m, float factor) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; r++) {
    const T* x = logits + r * m;
    Floats top = (Floats){} + UNSEEN, total = {}, mean = {};
    const Floats none = (Floats){} + UNSEEN;
    Integers at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int64_t t = 0; t < m; t += LANES) {
      Floats y = load_some(x + t, m - t) * factor;
      y = at + (int32_t)t < (int32_t)m ? y : none;
      top = y > top ? y : top;
    }
    const float most = largest(top);
    for (int64_t t = 0; t < m; t += LANES) {
      Floats y = load_some(x + t, m - t) * factor - most, e = exponential(y);
      e = at + (int32_t)t < (int32_t)m ? e : (Floats){};
      total += e;
      mean += e * y;
    }
    const float z = sum(total), log_z = logf(z);
    out[r] = number(x[target[r]]) * factor - most - log_z;
    out[rows + r] = log_z - sum(mean) / z;
    out[2 * rows + r] = most + log_z;
  }
}

template <class T>
static void logprob_entropy_back(
    const T* logits, const int64_t* target, const float* found, const float* by_logprob, const float* by_entropy, T* to,
    int64_t rows, int64_t m, float factor) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; r++) {
    const T* x = logits + r * m;
    const float entropy = found[rows + r], log_z = found[2 * rows + r];
    const float a = by_logprob[r] * factor, b = by_entropy[r] * factor;
    for (int64_t t = 0; t < m; t += LANES) {
      Floats y = load_some(x + t, m - t) * factor - log_z, p = exponential(y > 0.0f ? (Floats){} : y);
      store_some(to + r * m + t, m - t, p * ((y + entropy) * -b - a));
    }
    T* hit = to + r * m + target[r];
    put(hit, number(*hit) + a);
  }
}

// ---- sampling ----
// Computes: with p = softmax(x / temperature): the first id at which the cumulative sum of p reaches uniform[r], and
//           log p[id]. Temperature 0: the first id with the highest logit, and log p at temperature 1.
// Shapes:   logits T [rows, m]; temperature float, uniform double, id int64, logprob float [rows].
// Equals:   engine/sampling.py's sample with plain=True.

template <class T>
static void sample_tokens(
    const T* logits, const float* temperature, const double* uniform, int64_t* id, float* logprob, int64_t rows,
    int64_t m) {
#pragma omp parallel if (rows * m > 1 << 16)
  {
    float* y = (float*)malloc((m + LANES) * sizeof(float));
#pragma omp for
    for (int64_t r = 0; r < rows; r++) {
      const T* x = logits + r * m;
      const bool greedy = temperature[r] <= 0;
      const float divisor = greedy ? 1.0f : temperature[r];
      Floats top = (Floats){} + UNSEEN;
      for (int64_t t = 0; t < m; t += LANES) {
        Floats z = load_some(x + t, m - t) / divisor;
        for (int i = m - t < LANES ? m - t : LANES; i < LANES; i++) z[i] = UNSEEN;
        store(y + t, z);
        top = z > top ? z : top;
      }
      const float most = largest(top);
      double total = 0, reached = 0;
      for (int64_t t = 0; t < m; t += LANES) {
        Floats e = exponential(load(y + t) - most);
        store(y + t, e);
        for (int i = 0; i < LANES; i++) total += e[i];  // in order, as below: the end is reached
      }
      const double goal = uniform[r] * total;
      int64_t at = 0;
      if (greedy)
        while (at < m - 1 && number(x[at]) < most) at++;
      else
        for (; at < m - 1; at++)
          if ((reached += y[at]) >= goal) break;
      id[r] = at;
      logprob[r] = number(x[at]) / divisor - most - logf(total);
    }
    free(y);
  }
}

#define EXPORT(f)                                       \
  extern "C" void* const f##_float32 = (void*)&f<float>; \
  extern "C" void* const f##_bfloat16 = (void*)&f<bfloat16>;
EXPORT(norm)
EXPORT(norm_back)
EXPORT(silu_mul)
EXPORT(silu_mul_back)
EXPORT(heads)
EXPORT(heads_back)
EXPORT(gather)
EXPORT(scatter)
EXPORT(scatter_add)
EXPORT(causal_softmax)
EXPORT(softmax_back)
EXPORT(logprob_entropy)
EXPORT(logprob_entropy_back)
EXPORT(sample_tokens)
