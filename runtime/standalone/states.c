/*
 * What an instance keeps from one run to the next.
 *
 * Each state has two buffers: a run reads one and writes the other, and they change places when it
 * has succeeded.  So nothing is copied, and a run that fails leaves the states as they were.  One
 * of which a run writes some rows in place has one buffer; the run itself undoes what it did.
 */
#include <stdio.h>

#include "instance.h"

size_t ext_bytes_of(const byoc_tensor* tensors, int32_t count) {
  size_t total = 0;
  for (int32_t i = 0; i < count; i++) total += ext_round_up(tensors[i].bytes);
  return total;
}

int ext_states_take(ext_instance* m, size_t* bytes) {
  const ext_model* model = m->model;
  const int32_t buffers = 2 * model->state_count;
  if (buffers == 0) return 1;
  const size_t pointers = ext_round_up(sizeof(void*) * (size_t)buffers);
  *bytes = pointers;
  for (int32_t i = 0; i < model->state_count; i++)
    *bytes += (model->in_place[i] ? 1 : 2) * ext_round_up(model->states[i].bytes);
  char* memory = ext_heap_take(&m->heap, *bytes);
  if (!memory) return 0;
  memset(memory, 0, *bytes);
  m->kept = (void**)memory;
  char* next = memory + pointers;
  for (int32_t i = 0; i < buffers; i++) {
    const int32_t state = i % model->state_count;
    const int shared = i >= model->state_count && model->in_place[state];
    m->kept[i] = shared ? m->kept[state] : next;
    next += shared ? 0 : ext_round_up(model->states[state].bytes);
  }
  return 1;
}

/* Where a state lies between runs. */
static void* state_of(const ext_instance* m, int32_t index) {
  return ext_states_of(m, m->turn)[index];
}

void ext_states_copy(ext_instance* to, const ext_instance* from) {
  for (int32_t i = 0; i < from->model->state_count; i++)
    memcpy(state_of(to, i), state_of(from, i), from->model->states[i].bytes);
}

void ext_states_clear(ext_instance* m) {
  for (int32_t i = 0; i < m->model->state_count; i++)
    memset(state_of(m, i), 0, m->model->states[i].bytes);
}

byoc_status ext_model_reset(ext_instance* m) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  m->message[0] = '\0';
  ext_states_clear(m);
  ext_instance_leave(m);
  return BYOC_OK;
}

static byoc_status check_states(ext_instance* m, const void* const* given) {
  m->message[0] = '\0';
  for (int32_t i = 0; i < m->model->state_count; i++) {
    if (given && (given[i] || m->model->states[i].bytes == 0)) continue;
    snprintf(m->message, sizeof m->message, "%s: the buffer of state %d (%.200s) is NULL",
             m->model->name, (int)i, m->model->states[i].name);
    return BYOC_ERR_ARGUMENT;
  }
  return BYOC_OK;
}

byoc_status ext_model_save(ext_instance* m, void* const* states) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  byoc_status status = check_states(m, (const void* const*)states);
  for (int32_t i = 0; !status && i < m->model->state_count; i++)
    if (states[i]) memcpy(states[i], state_of(m, i), m->model->states[i].bytes);
  ext_instance_leave(m);
  return status;
}

byoc_status ext_model_restore(ext_instance* m, const void* const* states) {
  if (!m) return BYOC_ERR_ARGUMENT;
  if (!ext_instance_enter(m)) return BYOC_ERR_BUSY;
  byoc_status status = check_states(m, states);
  for (int32_t i = 0; !status && i < m->model->state_count; i++)
    if (states[i]) memcpy(state_of(m, i), states[i], m->model->states[i].bytes);
  ext_instance_leave(m);
  return status;
}
