/* A shared object without memories. */
int dra_something_else(void);
int dra_something_else(void) { return 1; }
