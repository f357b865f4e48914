/*
 * What an instance keeps from one run to the next.
 *
 * Each state has two buffers: a run reads one and writes the other, and they change places when it
 * has succeeded.  So nothing is copied, and a run that fails leaves the states as they were.  One
 * of which a run writes some rows in place has one buffer; the run itself undoes what it did.  So
 * has one that grows, with room for all rows from the beginning: the system gives pages only as
 * they are written.
 */
#include "instance.h"

size_t ext_bytes_of(const byoc_tensor* tensors, int32_t count) {
  size_t total = 0;
  for (int32_t i = 0; i < count; i++) total += ext_round_up(tensors[i].bytes);
  return total;
}

static int grows(const ext_instance* m, int32_t state) {
  return m->model->state_kind[state] == EXT_STATE_GROWS;
}

/* The rows that states have which grow. */
static int64_t* rows_of(ext_instance* m) {
  return &m->sizes[m->model->axis_count];
}

/* Bytes of a buffer of a state with the instance's sizes; SIZE_MAX for too many. */
static size_t room_of(const ext_instance* m, int32_t state) {
  const byoc_tensor* t = &ext_states_of(m)[state];
  if (!grows(m, state)) return ext_round_up(t->bytes);
  size_t bytes = t->alignment * (size_t)m->capacity;
  for (int32_t axis = 1; axis < t->ndim; axis++)
    if (__builtin_mul_overflow(bytes, (size_t)t->shape[axis], &bytes)) return SIZE_MAX;
  return bytes > PTRDIFF_MAX ? SIZE_MAX : ext_round_up(bytes);
}

static int32_t extents_of_states(const ext_instance* m) {
  int32_t total = 0;
  for (int32_t i = 0; i < m->model->state_count; i++) total += m->model->states[i].ndim;
  return total;
}

/* Whether the memory of the states is of these sizes; notes them where `extents` are to be. */
static int compare_extents(const ext_instance* m, int64_t* extents, int note) {
  for (int32_t i = 0; i < m->model->state_count; i++) {
    const byoc_tensor* t = &ext_states_of(m)[i];
    for (int32_t axis = 0; axis < t->ndim; axis++, extents++) {
      if (note) *extents = t->shape[axis];
      if (*extents != t->shape[axis] && !(axis == 0 && grows(m, i))) return 0;
    }
  }
  return 1;
}

int ext_states_take(ext_instance* m, size_t* bytes) {
  const ext_model* model = m->model;
  const size_t count = (size_t)model->state_count;
  if (count == 0) return 1;
  const size_t numbers = (size_t)extents_of_states(m) * sizeof(int64_t);
  const size_t head =
      ext_round_up(sizeof(ext_kept) + numbers + count * (2 * sizeof(void*) + sizeof(size_t)));
  *bytes = head;
  for (int32_t i = 0; i < model->state_count; i++) {
    const size_t buffers = model->state_kind[i] == EXT_STATE_REPLACED ? 2 : 1;
    if (__builtin_add_overflow(*bytes, buffers * room_of(m, i), bytes)) return 0;
  }
  char* memory = ext_heap_take(&m->heap, *bytes);
  if (!memory) return 0;
  ext_kept* kept = m->kept = (ext_kept*)memory;
  kept->extents = (int64_t*)(kept + 1);
  kept->bytes = (size_t*)(memory + sizeof *kept + numbers);
  kept->buffers = (void**)(kept->bytes + count);
  compare_extents(m, kept->extents, 1);
  char* next = memory + head;
  for (size_t i = 0; i < 2 * count; i++) {
    const size_t state = i % count;
    const int shared = i >= count && model->state_kind[state] != EXT_STATE_REPLACED;
    if (i < count) kept->bytes[state] = room_of(m, (int32_t)state);
    kept->buffers[i] = shared ? kept->buffers[state] : next;
    next += shared ? 0 : kept->bytes[state];
  }
  ext_states_clear(m);
  return 1;
}

byoc_status ext_states_fit(ext_instance* m) {
  if (m->model->state_count == 0) return BYOC_OK;
  if (m->kept && compare_extents(m, m->kept->extents, 0)) return BYOC_OK;
  if (m->kept && m->begun)
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT,
                             "states have other sizes than this run; reset before it");
  ext_heap_give(&m->heap, m->kept);
  m->kept = NULL;
  size_t bytes = 0;
  if (ext_states_take(m, &bytes)) return BYOC_OK;
  return ext_instance_fail(m, BYOC_ERR_MEMORY, "no %zu bytes for the states", bytes);
}

/* Where a state lies between runs. */
static void* state_of(const ext_instance* m, int32_t index) {
  return ext_buffers_of(m, m->turn)[index];
}

void ext_states_copy(ext_instance* to, const ext_instance* from) {
  for (int32_t i = 0; i < from->model->state_count; i++)
    memcpy(state_of(to, i), state_of(from, i), ext_states_of(from)[i].bytes);
  to->begun = from->begun;
}

void ext_states_clear(ext_instance* m) {
  m->begun = 0;
  for (int32_t i = 0; m->kept && i < m->model->state_count; i++)
    if (!grows(m, i)) memset(state_of(m, i), 0, m->kept->bytes[i]);
}

/* The tensors of the next run, of which some have as many rows as the states. */
static void set_rows(ext_instance* m, int64_t rows) {
  *rows_of(m) = rows;
  if (m->sized) ext_sizes_measure(m);
}

void ext_states_advance(ext_instance* m) {
  m->turn = 1 - m->turn;
  m->begun = 1;
  if (m->sizes) set_rows(m, *rows_of(m) + m->needs.step);
  m->message[0] = '\0'; /* what the next run would say, it says itself */
}

byoc_status ext_model_reset(ext_instance* m) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  ext_states_clear(m);
  if (m->sizes) set_rows(m, 0);
  m->message[0] = '\0';
  ext_instance_leave(m);
  return BYOC_OK;
}

static byoc_status check_states(ext_instance* m, const void* const* given) {
  for (int32_t i = 0; i < m->model->state_count; i++) {
    const byoc_tensor* t = &ext_states_of(m)[i];
    if (given && (given[i] || t->bytes == 0)) continue;
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "the buffer of state %d (%.200s) is NULL",
                             (int)i, t->name);
  }
  return BYOC_OK;
}

byoc_status ext_model_save(ext_instance* m, void* const* states) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  m->message[0] = '\0';
  byoc_status status = m->sizes ? ext_sizes_measure(m) : BYOC_OK;
  if (!status) status = check_states(m, (const void* const*)states);
  if (!status && m->sizes) status = ext_states_fit(m);
  for (int32_t i = 0; !status && i < m->model->state_count; i++)
    if (states[i]) memcpy(states[i], state_of(m, i), ext_states_of(m)[i].bytes);
  ext_instance_leave(m);
  return status;
}

/* Makes room for so many rows; what the states were is lost then. */
static byoc_status begin_with(ext_instance* m, const void* const* states, int64_t rows) {
  const int64_t before = *rows_of(m);
  if (rows < 0)
    return ext_instance_fail(m, BYOC_ERR_ARGUMENT, "rows is %lld; need 0 or more", (long long)rows);
  if (rows > m->capacity)
    return ext_instance_fail(m, BYOC_ERR_FULL, "states have room for %lld rows, not for %lld",
                             (long long)m->capacity, (long long)rows);
  *rows_of(m) = rows;
  byoc_status status = ext_sizes_measure(m);
  if (!status) status = check_states(m, states);
  if (status) {
    set_rows(m, before);
    return status;
  }
  m->begun = 0;
  status = ext_states_fit(m);
  if (status) set_rows(m, 0);
  return status;
}

byoc_status ext_model_restore(ext_instance* m, const void* const* states, int64_t rows) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  m->message[0] = '\0';
  byoc_status status = m->sizes ? begin_with(m, states, rows) : check_states(m, states);
  for (int32_t i = 0; !status && i < m->model->state_count; i++)
    if (states[i]) memcpy(state_of(m, i), states[i], ext_states_of(m)[i].bytes);
  if (!status) m->begun = 1;
  ext_instance_leave(m);
  return status;
}

int64_t ext_model_rows(const ext_instance* m) {
  return m ? m->sizes[m->model->axis_count] : 0;
}
