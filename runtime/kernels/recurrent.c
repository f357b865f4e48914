/*
 * The steps of a recurrent layer (formulas: ext_recurrent.h): per step the product of the states
 * with packed weights, [batch, units] x [units, gates * units], and the gates.
 *
 *   x [step][row][direction][block][gate][16], r [direction][block][units][gate][16]
 *
 * A block is 16 units: its gates' weights are one stream of memory, its sums stay in L1, and its
 * functions run on the other blocks' products meanwhile.  Odd steps take the blocks in the reverse
 * order, so that what the last step read last is still in the cache where all of it is not.
 *
 * Directions, and groups of rows of a large batch, are independent; what is left of the threads
 * share the blocks of each step (turns.h).
 */
#include "../turns.h"
#include "recurrent_bytes.h"
#include "recurrent_fused.h"
#include "subnormals.h"

/* Rows of a group at least: as many multiply-adds for each weight as hide its way from L2. */
static const int64_t GROUP_ROWS = 4;
/* Multiply-adds of a thread's part of a step at least: some microsecond, a few times what threads
 * take to meet. */
static const int64_t PART_MACS = 1 << 15;
typedef struct {
  const ext_recurrent_params* p;
  const ext_recurrent_weights* w;
  const float *x, *bias, *peepholes;
  const int32_t* lengths;
  float* y;
  int64_t gates, blocks, width, turns; /* turns of a step: EXT_GRU has two */
  int64_t groups, parts;               /* of rows; of a step */
  int64_t weight_bytes;                /* of an element of r */
  int far;                             /* weights are asked for ahead */
  int usual;                           /* sigmoid and tanh, no clip */
  int fused;                           /* the cells of recurrent_fused.h */
  gate_function functions[2][3];
  float *h[2], *c;       /* [direction][row][width]; of even and odd steps */
  float *update, *reset; /* z and u h of EXT_GRU */
  /* Of weights that are integers: bytes of h [part][direction][row][width], as each part of a step
   * makes them for itself, and what they stand for [part][direction][row]. */
  int integers;
  qa* bytes;
  byte_range* ranges;
} recurrent_job;

/* Rows [begin, end) of a direction. */
typedef struct {
  const recurrent_job* job;
  int64_t direction, begin, end;
  ext_turns turns;
} recurrent_lane;

/* Where row `row` of the batch is at a step; behind its length nothing changes. */
typedef struct {
  int64_t time;
  int is_over;
} recurrent_place;

static recurrent_place place_of(const recurrent_job* job, int64_t direction, int64_t row,
                                int64_t step) {
  const ext_recurrent_params* p = job->p;
  const int64_t length = job->lengths ? job->lengths[row] : p->steps;
  const int backwards = direction == 1 || p->reverse;
  if (step >= length) return (recurrent_place){step, 1};
  return (recurrent_place){backwards ? length - 1 - step : step, 0};
}

EXT_INLINE void sum_tile_of(const int narrow, int far, int64_t rows, int64_t gates, const void* r,
                            int64_t units, const float* h, int64_t h_row, float* t) {
#define SUM_ROWS(n, g, i)                                    \
  case n:                                                    \
    if (n == 1 && far)                                       \
      sum_rows(narrow, n == 1, n, g, r, units, h, h_row, t); \
    else                                                     \
      sum_rows(narrow, 0, n, g, r, units, h, h_row, t);      \
    return;
#define SUM_GATES(g)                                     \
  case g:                                                \
    switch (rows) { EXT_RECURRENT_ROWS(SUM_ROWS, g, 0) } \
    return;
  switch (gates) { SUM_GATES(1) SUM_GATES(2) SUM_GATES(3) SUM_GATES(4) }
#undef SUM_GATES
#undef SUM_ROWS
}

static void sum_tile(int far, int64_t rows, int64_t gates, const void* r, int64_t units,
                     const float* h, int64_t h_row, float* t) {
  sum_tile_of(0, far, rows, gates, r, units, h, h_row, t);
}

static void sum_tile_bf16(int far, int64_t rows, int64_t gates, const void* r, int64_t units,
                          const float* h, int64_t h_row, float* t) {
  sum_tile_of(1, far, rows, gates, r, units, h, h_row, t);
}

/* What a lane does at a step, or at one of its two turns. */
typedef struct {
  const recurrent_lane* lane;
  int64_t step, gates; /* gates of this turn */
  int second;          /* of EXT_GRU's turns */
  const char* r;       /* of the direction: panels */
  const float* h;      /* of the direction: states that are multiplied */
  qa* bytes;           /* of the direction, as this part has them */
  byte_range* ranges;
} recurrent_turn;

/* Block `block` of a row, whose sums are t. */
EXT_INLINE recurrent_cell cell_at(const recurrent_turn* turn, int64_t block, int64_t row,
                                  recurrent_place place, const float* t) {
  const recurrent_job* job = turn->lane->job;
  const ext_recurrent_params* p = job->p;
  const int64_t d = turn->lane->direction, step = turn->step;
  const int64_t state = (d * p->batch + row) * job->width + block * EXT_PANEL;
  const int64_t vector = (d * job->blocks + block) * EXT_PANEL;
  return (recurrent_cell){
      .sums = t,
      .x = job->x + place.time * p->x_step + row * p->x_row + vector * job->gates,
      .h_before = job->h[step & 1] + state,
      .peepholes = job->peepholes ? job->peepholes + 3 * vector : NULL,
      .bias = job->bias + (job->bias ? vector : 0),
      .h = job->h[(step + 1) & 1] + state,
      .c = job->c + state,
      .update = job->update + state,
      .reset = job->reset + state,
  };
}

/* Writes a cell's state to y, zero behind the row's length. */
EXT_INLINE void give_row(const recurrent_turn* turn, int64_t block, int64_t row,
                         recurrent_place place, const float* h) {
  const recurrent_job* job = turn->lane->job;
  const ext_recurrent_params* p = job->p;
  const int64_t units = i64_min(EXT_PANEL, p->units - block * EXT_PANEL);
  const int64_t d = turn->lane->direction;
  float* y = job->y + place.time * p->y_step + d * p->y_direction + row * p->y_row;
  for (int v = 0; v < EXT_PANEL; v += VL)
    vf_store_n(y + block * EXT_PANEL + v, place.is_over ? vf_zero() : vf_load(h + v),
               clamp_lanes(units - v));
}

/* The functions of row `row`, whose sums are t, and its result of block `block`. */
static void finish_row(const recurrent_turn* turn, int64_t block, int64_t row, const float* t) {
  const recurrent_job* job = turn->lane->job;
  const ext_recurrent_params* p = job->p;
  const int64_t d = turn->lane->direction;
  const recurrent_place place = place_of(job, d, row, turn->step);
  const recurrent_cell cell = cell_at(turn, block, row, place, t);
  if (!place.is_over && job->fused)
    fused_cells(1, p, job->functions[d], &cell);
  else if (!place.is_over && job->usual)
    cell_of(1, p, job->functions[d], turn->second, &cell);
  else if (!place.is_over)
    cell_of(0, p, job->functions[d], turn->second, &cell);
  else
    copy_run(cell.h, cell.h_before, EXT_PANEL);
  if (job->y && (job->turns == 1 || turn->second)) give_row(turn, block, row, place, cell.h);
}

/* The same of FUSED_ROWS rows of one length. */
static void finish_rows(const recurrent_turn* turn, int64_t block, int64_t row, const float* t) {
  const recurrent_job* job = turn->lane->job;
  const int64_t d = turn->lane->direction;
  const recurrent_place place = place_of(job, d, row, turn->step);
  recurrent_cell cells[FUSED_ROWS];
  for (int i = 0; i < FUSED_ROWS; i++)
    cells[i] = cell_at(turn, block, row + i, place, t + i * TILE_ROW);
  fused_cells(FUSED_ROWS, job->p, job->functions[d], cells);
  for (int i = 0; job->y && i < FUSED_ROWS; i++) give_row(turn, block, row + i, place, cells[i].h);
}

/* Sums of rows [first, past) with weights that are integers. */
static void sum_integers(const recurrent_turn* turn, int64_t block, int64_t first, int64_t past,
                         float* t) {
  const recurrent_job* job = turn->lane->job;
  const int64_t vector = turn->lane->direction * job->blocks + block;
  const int64_t quads = ceil_div(job->p->units, 4);
  const byte_block b = {.r = (const int8_t*)job->w->r + vector * quads * 4 * TILE_ROW,
                        .sums = job->w->sums + vector * TILE_ROW,
                        .scale = job->w->scale + vector * TILE_ROW,
                        .quads = quads};
  sum_byte_rows(past - first, &b, turn->bytes + first * job->width, job->width,
                turn->ranges + first, t);
}

/* Block `block` of all rows; `next` is read after it. */
static void run_block(const recurrent_turn* turn, int64_t block, int64_t next) {
  const recurrent_lane* lane = turn->lane;
  const recurrent_job* job = lane->job;
  const int64_t rows = lane->end - lane->begin, tiles = ceil_div(rows, RECURRENT_ROWS);
  const int64_t units = job->p->units, step = units * turn->gates * EXT_PANEL, at = block * step;
  _Alignas(EXT_ALIGN) float t[RECURRENT_ROWS * TILE_ROW];
  for (int64_t tile = 0; tile < tiles; tile++) {
    const int64_t first = lane->begin + tile * rows / tiles;
    const int64_t past = lane->begin + (tile + 1) * rows / tiles;
    if (job->integers)
      sum_integers(turn, block, first, past, t);
    else
      (job->weight_bytes == 2 ? sum_tile_bf16 : sum_tile)(
          job->far, past - first, turn->gates, turn->r + at * job->weight_bytes, units,
          turn->h + first * job->width, job->width, t);
    if (job->far && past == lane->end)
      for (int64_t i = 0; i < WEIGHTS_AHEAD; i += EXT_ALIGN)
        __builtin_prefetch(turn->r + next * step * job->weight_bytes + i);
    int64_t row = first;
    for (; job->fused && !job->lengths && row + FUSED_ROWS <= past; row += FUSED_ROWS)
      finish_rows(turn, block, row, t + (row - first) * TILE_ROW);
    for (; row < past; row++) finish_row(turn, block, row, t + (row - first) * TILE_ROW);
  }
}

/* Makes bytes of the lane's states: each part of a step its own, as none waits for another. */
static void quantise_lane(recurrent_turn* turn, int64_t part) {
  const recurrent_lane* lane = turn->lane;
  const recurrent_job* job = lane->job;
  const int64_t first = (part * job->p->directions + lane->direction) * job->p->batch;
  turn->bytes = job->bytes + first * job->width;
  turn->ranges = job->ranges + first;
  for (int64_t row = lane->begin; row < lane->end; row++)
    turn->ranges[row] =
        quantise_states(turn->h + row * job->width, job->p->units, turn->bytes + row * job->width);
}

/* Part `part` of the blocks of a step. */
static void run_part(const void* context, int64_t at, int64_t part) {
  const recurrent_lane* lane = context;
  const recurrent_job* job = lane->job;
  const ext_recurrent_params* p = job->p;
  const int64_t step = at / job->turns, d = lane->direction;
  const int64_t states = d * p->batch * job->width;
  const int64_t block_weights = p->units * EXT_PANEL, weights = job->blocks * block_weights;
  recurrent_turn turn = {.lane = lane,
                         .step = step,
                         .gates = job->gates,
                         .r = (const char*)job->w->r + d * weights * job->gates * job->weight_bytes,
                         .h = job->h[step & 1] + states};
  if (job->turns == 2) {
    turn.second = at % 2;
    turn.gates = turn.second ? 1 : 2;
    if (turn.second) {
      turn.r += 2 * weights * job->weight_bytes;
      turn.h = job->reset + states;
    }
  }
  if (job->integers) quantise_lane(&turn, part);
  const int64_t begin = part * job->blocks / job->parts,
                end = (part + 1) * job->blocks / job->parts;
  for (int64_t i = begin; i < end; i++) {
    const int64_t next = i64_min(i + 1, end - 1);
    if (step & 1)
      run_block(&turn, begin + end - 1 - i, begin + end - 1 - next);
    else
      run_block(&turn, i, next);
  }
}

/* Items are (lane, part). */
static int run_lanes(void* context, int64_t begin, int64_t end) {
  recurrent_lane* lanes = context;
  const recurrent_job* job = lanes->job;
  for (int64_t item = begin; item < end; item++) {
    recurrent_lane* lane = lanes + item / job->parts;
    ext_take_turns(&lane->turns, item % job->parts, job->p->steps * job->turns, run_part, lane);
  }
  return EXT_OK;
}

static void plan_threads(recurrent_job* job) {
  const ext_recurrent_params* p = job->p;
  const int64_t threads = ext_num_threads(), macs = p->units * p->units * job->gates / job->turns;
  job->groups = job->parts = 1;
  if (threads <= p->directions) return;
  const int64_t each = threads / p->directions;
  job->groups = i64_max(1, i64_min(each, p->batch / GROUP_ROWS));
  const int64_t rows = ceil_div(p->batch, job->groups);
  const int64_t parts = i64_min(i64_min(each / job->groups, MOST_PARTS), job->blocks);
  job->parts = i64_max(1, i64_min(parts, rows * macs / PART_MACS));
}

/* The first states, padded to whole blocks, as the kernel keeps them. */
static void set_states(const recurrent_job* job, const float* source, float* states) {
  const ext_recurrent_params* p = job->p;
  zero_run(states, p->directions * p->batch * job->width);
  if (!source) return;
  for (int64_t d = 0; d < p->directions; d++)
    for (int64_t row = 0; row < p->batch; row++)
      copy_run(states + (d * p->batch + row) * job->width,
               source + d * p->state_direction + row * p->state_row, p->units);
}

static void give_states(const recurrent_job* job, const float* states, float* result) {
  const ext_recurrent_params* p = job->p;
  if (!result) return;
  for (int64_t d = 0; d < p->directions; d++)
    for (int64_t row = 0; row < p->batch; row++)
      copy_run(result + d * p->state_direction + row * p->state_row,
               states + (d * p->batch + row) * job->width, p->units);
}

/* Takes memory for what there is of each state; NULL where there is none. */
static void* take_memory(recurrent_job* job, int64_t lanes) {
  const int64_t rows = job->p->directions * job->p->batch, state = rows * job->width;
  const int64_t kept = lanes * (int64_t)sizeof(recurrent_lane) + 5 * state * (int64_t)sizeof(float);
  const int64_t copies = job->integers ? job->parts : 0;
  const int64_t bytes = copies * state * (int64_t)sizeof(qa);
  const int64_t ranges = copies * rows * (int64_t)sizeof(byte_range);
  char* memory = ext_workspace_alloc((size_t)(kept + bytes + ranges));
  if (!memory) return NULL;
  float* states = (float*)(memory + lanes * (int64_t)sizeof(recurrent_lane));
  job->h[0] = states;
  job->h[1] = states + state;
  job->c = states + 2 * state;
  job->update = states + 3 * state;
  job->reset = states + 4 * state;
  job->bytes = (qa*)(memory + kept);
  job->ranges = (byte_range*)(memory + kept + bytes);
  return memory;
}

static int run_layer(recurrent_job* job, const float* h, const float* c, float* last_h,
                     float* last_c) {
  const ext_recurrent_params* p = job->p;
  const int64_t count = p->directions * job->groups;
  recurrent_lane* lanes = take_memory(job, count);
  if (!lanes) return EXT_ERR_MEMORY;
  set_states(job, h, job->h[0]);
  set_states(job, c, job->c);
  for (int64_t i = 0; i < count; i++) {
    const int64_t group = i % job->groups;
    lanes[i] = (recurrent_lane){.job = job,
                                .direction = i / job->groups,
                                .begin = group * p->batch / job->groups,
                                .end = (group + 1) * p->batch / job->groups,
                                .turns = {.count = job->parts}};
  }
  int status = ext_parallel_products(count * job->parts, 1, run_lanes, lanes);
  give_states(job, job->h[p->steps & 1], last_h);
  give_states(job, job->c, last_c);
  ext_workspace_free(lanes);
  return status;
}

int EXT_NAME(ext_recurrent)(const ext_recurrent_params* p, const ext_recurrent_weights* w,
                            const float* x, const int32_t* lengths, const float* h, const float* c,
                            float* y, float* last_h, float* last_c) {
  static const int64_t gates[] = {
      [EXT_RNN] = 1, [EXT_GRU] = 3, [EXT_GRU_RESET_LAST] = 3, [EXT_LSTM] = 4};
  if (p->directions < 1 || p->directions > 2 || (uint32_t)p->kind > EXT_LSTM)
    return EXT_ERR_ARGUMENT;
  if (w->dtype != EXT_FLOAT32 && w->dtype != EXT_BFLOAT16 &&
      (w->dtype != EXT_INT8 || p->kind != EXT_LSTM))
    return EXT_ERR_ARGUMENT;
  if (p->units <= 0 || p->batch <= 0) return EXT_OK;
  for (int64_t row = 0; lengths && row < p->batch; row++)
    if (lengths[row] < 0 || lengths[row] > p->steps) return EXT_ERR_INDEX;
  recurrent_job job = {.p = p,
                       .w = w,
                       .x = x,
                       .bias = p->kind == EXT_GRU_RESET_LAST ? w->bias : NULL,
                       .peepholes = p->kind == EXT_LSTM ? w->peepholes : NULL,
                       .lengths = lengths,
                       .y = y,
                       .gates = gates[p->kind],
                       .turns = p->kind == EXT_GRU ? 2 : 1,
                       .usual = !(p->clip > 0.0f),
                       .weight_bytes = w->dtype == EXT_FLOAT32 ? 4 : 2,
                       .integers = w->dtype == EXT_INT8};
  job.blocks = ceil_div(p->units, EXT_PANEL);
  job.width = job.blocks * EXT_PANEL;
  for (int i = 0; i < 3 * p->directions; i++) {
    job.functions[i / 3][i % 3] = (gate_function){p->functions[i], p->alphas[i], p->betas[i]};
    job.usual &= p->functions[i] == (i % 3 ? EXT_GATE_TANH : EXT_GATE_SIGMOID);
  }
  job.fused = job.usual && has_fused_cells(p, job.peepholes);
  plan_threads(&job);
  job.far =
      asks_ahead() && job.blocks * job.gates * EXT_PANEL * p->units * job.weight_bytes / job.parts >
                          ext_cache_sizes()->l2;
  return run_layer(&job, h, c, last_h, last_c);
}

EXT_DISPATCH(ext_recurrent,
             (const ext_recurrent_params* p, const ext_recurrent_weights* w, const float* x,
              const int32_t* lengths, const float* h, const float* c, float* y, float* last_h,
              float* last_c),
             (p, w, x, lengths, h, c, y, last_h, last_c))
