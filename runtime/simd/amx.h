/*
 * amx.h - the words for AMX's tiles: registers of 16 rows of 64 bytes.
 *
 *   tile_file             the registers 0 .. 7 of a thread; their numbers are literals
 *   tile_begin, tile_end  around all others, on each thread: nothing else touches the registers
 *   tile_begin_rows(rows) the same where the upper two of 2 x 2 tiles, and the left one of A, have
 *                         min(rows, 16) rows, and the lower ones the others: sums in 0 .. 3, A in 4
 *                         and 5, B in 6 and 7.  Fewer rows take less time
 *   tile_load(t, n, p, stride), tile_store
 *                         rows `stride` bytes apart, which may be 0 for a load
 *   tile_load_once        tile_load of what comes from L2 and is not read again soon: L1 keeps what
 *                         it has
 *   tile_written()        between what C wrote and the tile_load that reads it
 *   tile_zero(t, n)
 *   tile_dot(t, c, a, b)  c[i][j] += a[i][2 q] b[q][j][0] + a[i][2 q + 1] b[q][j][1], q < 16: sums
 *                         [16][16] of fp32, a row of bf16 [16][32], two rows of a panel [16][16][2]
 *   tile_dot_unsigned, tile_dot_signed(t, c, a, b)
 *                         c[i][j] += sum_r a[i][4 q + r] b[q][j][r], r < 4, q < 16: sums [16][16]
 * of int32, rows of uint8 or int8 [16][64], four rows of a panel of int8 [16][16][4]
 *
 * Where sums end after fewer than 64 terms, K has `quads` groups of four for a whole session:
 *   tile_begin_quads(quads)
 *                         16, 8 or 4, in place of tile_begin
 *   tile_load_rows(t, n, p, stride, quads)
 *                         rows of 4 quads bytes
 *   tile_load_panel(t, n, p, quads)
 *                         quads rows of a panel
 *   tile_dot_mixed(t, c, a, b, quads)
 *                         as the others, of int8 rows and a panel of uint8
 *
 * The instructions, or with EXT_TILES_WITHOUT_UNIT what they do in plain C, for tests on any CPU.
 */
#ifndef EXT_AMX_H_
#define EXT_AMX_H_

#include "simd.h"

enum {
  TILE_ROWS = 16,
  TILE_PAIRS = 16, /* rows of B, by two; of bytes by four */
  TILE_BYTES = 64  /* of a row */
};

#if defined(EXT_TILES_WITHOUT_UNIT)

typedef struct {
  uint8_t tile[8][TILE_ROWS][TILE_BYTES];
} tile_file;

EXT_INLINE void tile_begin(void) {}
EXT_INLINE void tile_begin_rows(int64_t rows) {
  (void)rows;
}
EXT_INLINE void tile_end(void) {}
EXT_INLINE void tile_written(void) {}
EXT_INLINE void tile_load(tile_file* t, int n, const void* p, int64_t stride) {
  for (int i = 0; i < TILE_ROWS; i++)
    memcpy(t->tile[n][i], (const uint8_t*)p + i * stride, TILE_BYTES);
}
EXT_INLINE void tile_load_once(tile_file* t, int n, const void* p, int64_t stride) {
  tile_load(t, n, p, stride);
}
EXT_INLINE void tile_store(const tile_file* t, int n, void* p, int64_t stride) {
  for (int i = 0; i < TILE_ROWS; i++) memcpy((uint8_t*)p + i * stride, t->tile[n][i], TILE_BYTES);
}
EXT_INLINE void tile_zero(tile_file* t, int n) {
  memset(t->tile[n], 0, sizeof t->tile[n]);
}
EXT_INLINE float tile_number(uint16_t bf16) {
  uint32_t bits = (uint32_t)bf16 << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
/* Nearly all of the time of what is tested so, whatever else is compiled quickly for that. */
#define EXT_WRITTEN_OUT static __attribute__((unused, noinline, optimize("O3")))
EXT_WRITTEN_OUT void tile_dot(tile_file* t, int sums, int rows, int panel) {
  float c[TILE_ROWS][16], b[2 * TILE_PAIRS][16];
  uint16_t a[TILE_ROWS][2 * TILE_PAIRS], pairs[TILE_PAIRS][16][2];
  memcpy(c, t->tile[sums], sizeof c);
  memcpy(a, t->tile[rows], sizeof a);
  memcpy(pairs, t->tile[panel], sizeof pairs);
  for (int p = 0; p < 2 * TILE_PAIRS; p++)
    for (int j = 0; j < 16; j++) b[p][j] = tile_number(pairs[p / 2][j][p % 2]);
  for (int i = 0; i < TILE_ROWS; i++)
    for (int q = 0; q < TILE_PAIRS; q++) {
      const float even = tile_number(a[i][2 * q]), odd = tile_number(a[i][2 * q + 1]);
      for (int j = 0; j < 16; j++) c[i][j] += even * b[2 * q][j] + odd * b[2 * q + 1][j];
    }
  memcpy(t->tile[sums], c, sizeof c);
}
/* Rows, and the panel, whose bytes have a sign or none. */
EXT_WRITTEN_OUT void tile_dot_bytes(const int rows_signed, const int panel_signed, tile_file* t,
                                    int sums, int rows, int panel, int64_t quads) {
  uint32_t c[TILE_ROWS][16], b[TILE_BYTES][16];
  memcpy(c, t->tile[sums], sizeof c);
  for (int64_t p = 0; p < 4 * quads; p++)
    for (int j = 0; j < 16; j++) {
      const uint8_t byte = t->tile[panel][p / 4][4 * j + p % 4];
      b[p][j] = (uint32_t)(panel_signed ? (int8_t)byte : byte);
    }
  for (int i = 0; i < TILE_ROWS; i++)
    for (int64_t p = 0; p < 4 * quads; p++) {
      const uint8_t byte = t->tile[rows][i][p];
      const uint32_t a = (uint32_t)(rows_signed ? (int8_t)byte : byte);
      for (int j = 0; j < 16; j++) c[i][j] += a * b[p][j];
    }
  memcpy(t->tile[sums], c, sizeof c);
}
EXT_INLINE void tile_dot_unsigned(tile_file* t, int sums, int rows, int panel) {
  tile_dot_bytes(0, 1, t, sums, rows, panel, TILE_PAIRS);
}
EXT_INLINE void tile_dot_signed(tile_file* t, int sums, int rows, int panel) {
  tile_dot_bytes(1, 1, t, sums, rows, panel, TILE_PAIRS);
}
EXT_INLINE void tile_dot_mixed(tile_file* t, int sums, int rows, int panel, int64_t quads) {
  tile_dot_bytes(1, 0, t, sums, rows, panel, quads);
}
EXT_INLINE void tile_begin_quads(int64_t quads) {
  (void)quads;
}
EXT_INLINE void tile_load_rows(tile_file* t, int n, const void* p, int64_t stride, int64_t quads) {
  for (int i = 0; i < TILE_ROWS; i++)
    memcpy(t->tile[n][i], (const uint8_t*)p + i * stride, (size_t)(4 * quads));
}
EXT_INLINE void tile_load_panel(tile_file* t, int n, const void* p, int64_t quads) {
  memcpy(t->tile[n], p, (size_t)(quads * TILE_BYTES));
}

#else

typedef struct {
  char none;
} tile_file;

typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_configuration;

EXT_INLINE void tile_begin(void) {
  /* All registers whole.  A constant, as the compiler knows only of the first bytes to be read. */
  static const tile_configuration all = {.palette = 1,
                                         .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                         .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&all);
}
EXT_INLINE void tile_begin_rows(int64_t rows) {
  const uint8_t upper = (uint8_t)(rows < TILE_ROWS ? rows : TILE_ROWS);
  const uint8_t lower = (uint8_t)(rows > TILE_ROWS ? rows - TILE_ROWS : TILE_ROWS);
  const tile_configuration some = {.palette = 1,
                                   .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                   .rows = {upper, upper, lower, lower, upper, lower, 16, 16}};
  __asm__ volatile("" : : "r"(&some) : "memory"); /* all of it is in memory */
  _tile_loadconfig(&some);
}
/* The same with registers 4 and 5 for rows of 4 quads bytes, 6 and 7 for quads rows of a panel. */
EXT_INLINE void tile_begin_quads(int64_t quads) {
  static const tile_configuration of_8 = {.palette = 1,
                                          .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
                                          .rows = {16, 16, 16, 16, 16, 16, 8, 8}};
  static const tile_configuration of_4 = {.palette = 1,
                                          .row_bytes = {64, 64, 64, 64, 16, 16, 64, 64},
                                          .rows = {16, 16, 16, 16, 16, 16, 4, 4}};
  if (quads == 8)
    _tile_loadconfig(&of_8);
  else if (quads == 4)
    _tile_loadconfig(&of_4);
  else
    tile_begin();
}
EXT_INLINE void tile_end(void) {
  _tile_release();
}
EXT_INLINE void tile_written(void) {
  __asm__ volatile("" : : : "memory");
}
/* A statement each, in which the register's number becomes text. */
#define tile_load(t, n, p, stride) \
  do {                             \
    (void)(t);                     \
    _tile_loadd(n, p, stride);     \
  } while (0)
#define tile_load_once(t, n, p, stride) \
  do {                                  \
    (void)(t);                          \
    _tile_stream_loadd(n, p, stride);   \
  } while (0)
#define tile_store(t, n, p, stride) \
  do {                              \
    (void)(t);                      \
    _tile_stored(n, p, stride);     \
  } while (0)
#define tile_zero(t, n) \
  do {                  \
    (void)(t);          \
    _tile_zero(n);      \
  } while (0)
#define tile_dot(t, sums, rows, panel) \
  do {                                 \
    (void)(t);                         \
    _tile_dpbf16ps(sums, rows, panel); \
  } while (0)
#define tile_dot_unsigned(t, sums, rows, panel) \
  do {                                          \
    (void)(t);                                  \
    _tile_dpbusd(sums, rows, panel);            \
  } while (0)
#define tile_dot_signed(t, sums, rows, panel) \
  do {                                        \
    (void)(t);                                \
    _tile_dpbssd(sums, rows, panel);          \
  } while (0)
#define tile_load_rows(t, n, p, stride, quads) \
  do {                                         \
    (void)(t), (void)(quads);                  \
    _tile_loadd(n, p, stride);                 \
  } while (0)
#define tile_load_panel(t, n, p, quads) \
  do {                                  \
    (void)(t), (void)(quads);           \
    _tile_loadd(n, p, TILE_BYTES);      \
  } while (0)
#define tile_dot_mixed(t, sums, rows, panel, quads) \
  do {                                              \
    (void)(t), (void)(quads);                       \
    _tile_dpbsud(sums, rows, panel);                \
  } while (0)

#endif
#endif /* EXT_AMX_H_ */
