// What is computed for one row of a small part of a model. Sizes `dim` are multiples of 16.
#pragma once
#include "vectors.h"

const int WIDEST = 512;  // numbers of an attention head, at most (mirrored in blocks.py)

// x / rms(x) * weight; `late`: the weight is 1 + weight and the rounding comes after it

template <class T>
static inline float inverse_rms(const T* x, int64_t dim, float eps) {
  Floats squares = {};
  for (int64_t d = 0; d < dim; d += LANES) squares += load(x + d) * load(x + d);
  return 1 / sqrtf(sum(squares) / dim + eps);
}

template <class T, class Out>
static inline void norm_row(const T* x, const T* weight, Out* out, int64_t dim, float eps, int64_t late) {
  const float factor = inverse_rms(x, dim, eps);
  for (int64_t d = 0; d < dim; d += LANES) {
    Floats y = load(x + d) * factor;
    if (late) {
      store(out + d, y * (load(weight + d) + 1.0f));
    } else {
      T rounded[LANES];
      store(rounded, y);
      store(out + d, load(rounded) * load(weight + d));
    }
  }
}

static inline Floats sigmoid(Floats x) {
  Floats e = exponential(x < 0.0f ? x : -x);
  return (x < 0.0f ? e : (Floats){} + 1.0f) / (e + 1.0f);
}

// silu(gate) * up of one row [gate, up]
template <class T>
static inline void silu_mul_row(const T* both, T* out, int64_t dim) {
  for (int64_t d = 0; d < dim; d += LANES) {
    Floats x = load(both + d);
    store(out + d, x * sigmoid(x) * load(both + dim + d));
  }
}

// one head: normed where there is a weight for it, and rotated
template <class T>
static inline void head_row(
    const T* from, const T* weight, const T* cos, const T* sin, T* to, int64_t dim, float eps, int64_t late) {
  const int64_t half = dim / 2;
  float y[WIDEST];
  if (weight)
    norm_row(from, weight, y, dim, eps, late);
  else
    for (int64_t d = 0; d < dim; d += LANES) store(y + d, load(from + d));
  for (int64_t d = 0; d < half; d += LANES) {
    Floats a = load(y + d), b = load(y + half + d);
    store(to + d, a * load(cos + d) - b * load(sin + d));
    store(to + half + d, b * load(cos + half + d) + a * load(sin + half + d));
  }
}
