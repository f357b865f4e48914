/*
 * What an instance says of the last call, with the name of its model.
 */
#include <stdarg.h>
#include <stdio.h>

#include "instance.h"

byoc_status ext_instance_fail(ext_instance* m, byoc_status status, const char* format, ...) {
  const int used = snprintf(m->message, sizeof m->message, "%s: ", m->model->name);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(m->message + used, sizeof m->message - (size_t)used, format, arguments);
  va_end(arguments);
  return status;
}
