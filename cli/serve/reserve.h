/* Memory of libevent, which does not check all of its allocations: a connection whose write
 * call-back gets no memory never answers again. So where the system has none, small pieces come
 * from a reserve, once it is armed; while half of it is in use no connection is accepted. One
 * thread. */
#ifndef DRA_CLI_SERVE_RESERVE_H
#define DRA_CLI_SERVE_RESERVE_H

#include <stdbool.h>

void http_reserve_open(void); /* before anything else of libevent */
void http_reserve_arm(void);  /* the server has started */
bool http_reserve_low(void);

#endif
