// What attention_kernel.py and decode.py call: attend.h says what `attend_*` computes, decode.h what `decode_*` does.
#include "decode.h"

template <class T>
static void run(const Job& job) {
  const int64_t size = room_for(job);
#pragma omp parallel
  {
    float* room = (float*)malloc(size * sizeof(float));
#pragma omp for schedule(static)
    for (int64_t i = 0; i < job.fresh; i++) keep<T>(job, i);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < job.tasks * job.kv; i++) {
      const int64_t t = i / job.kv;
      attend<T>(job, t, job.task[t], job.task[t + 1] - job.task[t], i % job.kv, room);
    }
    free(room);
  }
}

extern "C" void* const attend_float32 = (void*)&run<float>;
extern "C" void* const attend_bfloat16 = (void*)&run<bfloat16>;
extern "C" void* const decode_float32 = (void*)&decode<float>;
extern "C" void* const decode_bfloat16 = (void*)&decode<bfloat16>;
