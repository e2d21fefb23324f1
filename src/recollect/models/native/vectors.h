// Vectors of 16 floats, read from and written to float32 or bfloat16, for the sources that build.py compiles.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef int32_t Integers __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
struct bfloat16 {
  uint16_t bits;
};

static inline Floats load(const float* p) {
  Floats v;
  memcpy(&v, p, sizeof v);
  return v;
}
static inline Floats load(const bfloat16* p) {
  Halves h;
  memcpy(&h, p, sizeof h);
  return (Floats)(__builtin_convertvector(h, Words) << 16);
}
static inline void store(float* p, Floats v) { memcpy(p, &v, sizeof v); }
static inline void store(bfloat16* p, Floats v) {  // to nearest, ties to even
  Words w = (Words)v;
  Halves h = __builtin_convertvector((w + 0x7fff + ((w >> 16) & 1)) >> 16, Halves);
  memcpy(p, &h, sizeof h);
}
static inline float number(float x) { return x; }
static inline float number(bfloat16 x) {
  uint32_t bits = (uint32_t)x.bits << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline void put(float* p, float x) { *p = x; }
static inline void put(bfloat16* p, float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  p->bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

const float UNSEEN = -1e30f;

// exp of numbers <= 0
static inline Floats exponential(Floats x) {
  Floats inside = x < -87.0f ? (Floats){} - 87.0f : x;
  Integers n = __builtin_convertvector(inside * 1.44269504f - 0.5f, Integers);  // truncates: to the nearest
  Floats whole = __builtin_convertvector(n, Floats);
  Floats r = (inside - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return x < -87.0f ? (Floats){} : (Floats)((Integers)p + (n << 23));
}

const int LANES = 16;  // floats per vector

static inline float sum(Floats v) {
  float total = 0;
  for (int i = 0; i < LANES; i++) total += v[i];
  return total;
}
static inline float largest(Floats v) {
  float most = v[0];
  for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
  return most;
}

// the last numbers of a row, which may be fewer than a vector
template <class T>
static inline Floats load_some(const T* p, int64_t n) {
  if (n >= LANES) return load(p);
  T some[LANES] = {};
  memcpy(some, p, n * sizeof(T));
  return load(some);
}
template <class T>
static inline void store_some(T* p, int64_t n, Floats v) {
  if (n >= LANES) return store(p, v);
  T some[LANES];
  store(some, v);
  memcpy(p, some, n * sizeof(T));
}
