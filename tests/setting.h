/* A row of the harness of mixers with everything it is fed, and the invariants, by their files. */
#ifndef DRA_TESTS_SETTING_H
#define DRA_TESTS_SETTING_H

#include "mixers.h"

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-12
#else
#define EQUAL 1e-5
#endif

enum { B = 2, T = 20, MOST = 96 };

typedef struct setting {
    const mixer_row *row;
    dra_mixer       *mixer; /* one of these three */
    dra_sublayer    *sublayer;
    dra_model       *model;
    dra_module       vectors; /* the model as one that reads vectors */
    trial            t;
    dra_real        *param[MOST], *x, *u;
    dra_states      *start, *initial;
    uint64_t         seed;
} setting;

void open_setting(setting *s, const mixer_row *row);
void close_setting(setting *s);
/* Another mixer for the same inputs. */
void open_mixer(setting *s, const dra_mixer_config *config);
void close_mixer(setting *s);
/* Its steps, which must give what `fused` gave. */
void expect_steps(const setting *s, const trial *t, const outcome *fused);

void expect_ok(dra_status st, const dra_error *err);
/* Within EQUAL; same: bit for bit in outputs and states. */
void expect_equal(const trial *t, const outcome *a, const outcome *b, bool same, const char *what);

dra_real *numbers(uint64_t *seed, int64_t n, double size);
double    upstream(const void *user, int i, int64_t b, int64_t k);
/* Copies the rows of n tokens to where they stand in a trial. */
void join(const trial *t, dra_real *to, const dra_real *from, int64_t first, int64_t n);

bool ends_with(const char *name, const char *end);
/* A sum of weights, by which something is divided: positive. Also with a blend's prefix. */
bool is_sum(const char *name);

/* mixers.c */
void chunks_equal_whole(setting *s);
void fused_equals_steps(setting *s);
void fresh_equals_initial(setting *s);
void nothing_comes_from_later(setting *s);
void rows_stand_alone(setting *s);
void threads_change_nothing(setting *s);
void levels_agree(setting *s);
/* mixers_marks.c */
void pads_do_nothing(setting *s);
void resets_separate(setting *s);
void marks_survive_chunks(setting *s);
void resets_forget(setting *s);
void skips_leave_no_trace(setting *s);
void skips_survive_chunks(setting *s);
void prefixes_survive_chunks(setting *s);
/* (B, T): prefixes of several lengths, also after resets and with pads between. */
const int32_t *prefix_marks(void);
/* mixers_reading.c */
void readers_continue(setting *s);
void pools_continue(setting *s);
void files_continue(setting *s);
void long_runs_stay_flat(setting *s);
/* mixers_grads.c */
void gradients_are_derivatives(setting *s);

#endif
