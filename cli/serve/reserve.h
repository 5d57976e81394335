/* Memory of libevent. It does not look at everything it is refused: a connection whose write
 * call-back got no memory is silent for good. So where the system has none, small pieces come from
 * a reserve, once it is armed; while half of it is in use no connection is taken. One thread. */
#ifndef DRA_CLI_SERVE_RESERVE_H
#define DRA_CLI_SERVE_RESERVE_H

#include <stdbool.h>

void http_reserve_open(void); /* before anything else of libevent */
void http_reserve_arm(void);  /* the server has started */
bool http_reserve_low(void);

#endif
