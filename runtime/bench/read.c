/* Reading memory and nothing else, on all threads: the measure of products that wait for weights.
 */
#include "../simd/simd.h"

enum {
  STREAMS = 4, /* places of a piece that are read side by side: the fastest number on AMD's Zen 5 */
  LINES = 4,   /* of each */
  STEP = LINES * 64,
  PIECE = 129 * STREAMS * STEP /* bytes of a task: streams that begin in other sets of the caches */
};

typedef struct {
  const uint8_t* memory;
  int64_t bytes;
} read_job;

static void read_piece(const uint8_t* at, int64_t bytes) {
  const int64_t part = bytes / (STREAMS * STEP) * STEP;
  vi seen[LINES];
  EXT_UNROLL
  for (int line = 0; line < LINES; line++) seen[line] = vi_set1(0);
  for (int64_t i = 0; i < part; i += STEP)
    for (int stream = 0; stream < STREAMS; stream++) {
      EXT_UNROLL
      for (int line = 0; line < LINES; line++) {
        const uint8_t* from = at + stream * part + i + line * 64;
        EXT_UNROLL
        for (int v = 0; v < 64; v += 4 * VL) seen[line] |= vi_load((const int32_t*)(from + v));
      }
    }
  int32_t lanes[VL];
  vi_store(lanes, seen[0] | seen[1] | seen[2] | seen[3]);
  volatile int32_t sink = 0; /* so that nothing is left out */
  for (int i = 0; i < VL; i++) sink |= lanes[i];
}

static int read_pieces(void* context, int64_t begin, int64_t end) {
  const read_job* job = context;
  for (int64_t i = begin; i < end; i++)
    read_piece(job->memory + i * PIECE, i64_min(PIECE, job->bytes - i * PIECE));
  return EXT_OK;
}

/* Reads `bytes` from a whole line on, but for the last kilobyte at most. */
int EXT_NAME(ext_bench_read)(int64_t bytes, const void* memory) {
  read_job job = {memory, bytes};
  const int64_t pieces = bytes / PIECE + (bytes % PIECE != 0), threads = ext_num_threads();
  return ext_parallel_for(pieces, i64_max(1, pieces / (4 * threads)), read_pieces, &job);
}

__attribute__((visibility("default"))) int ext_bench_read(int64_t bytes, const void* memory);
EXT_DISPATCH(ext_bench_read, (int64_t bytes, const void* memory), (bytes, memory))
