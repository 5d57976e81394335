/* Names of a module's state in its graph, and the layouts of its parameters. */
#ifndef DRA_SRC_MODULE_H
#define DRA_SRC_MODULE_H

#include "device/array.h"
#include "sequence/states.h"

enum { DRA_NAME_TEXT = 160, DRA_NAME_MOST = DRA_NAME_TEXT - 8 };

/* "kind.name": kind is "state" for what comes in, "next" for what goes out. */
const char *dra_state_name(char text[DRA_NAME_TEXT], const char *kind, const char *name);

/* Inputs of a call that reads rows of a pool: i32 (B), where the state of each comes from; (1, B),
 * where it goes, -1: nowhere. */
#define DRA_POOL_FROM "pool.from"
#define DRA_POOL_TO "pool.to"

/* The tensor that a parameter of this shape is stored in: its shape, its bytes, and where element
 * k of the parameter is in it. */
dra_shape dra_param_layout_shape(const dra_param_layout *f, const dra_shape *s);
size_t    dra_param_layout_bytes(const dra_param_layout *f, const dra_shape *s);
size_t    dra_param_layout_place(const dra_param_layout *f, const dra_shape *s, size_t k);
bool      dra_param_layout_equal(const dra_param_layout *a, const dra_param_layout *b);

/* The matrix at i becomes W + scale B A with two new parameters, NAME.lora_A (rank, I), drawn, and
 * NAME.lora_B (O, rank), 0 at first [Hu et al. 2022]. */
void dra_specs_adapt(dra_specs *s, int i, int64_t rank, double scale);
/* State i starts at a new parameter beside its number, start.NAME, 0 at first. */
void dra_specs_add_start(dra_specs *params, dra_specs *states, int i);
/* No parameter that is in the list now is trained. */
void dra_specs_freeze(dra_specs *s);

typedef struct dra_lend { /* a parameter, see dra_reader_borrow() */
    const char      *name;
    dra_param_layout form;
    const void      *data;
    size_t           bytes;
} dra_lend;

/* dra_reader_borrow() of them all, in few uploads. After an error some may be bound. */
dra_status dra_reader_borrow_all(dra_reader *r, const dra_lend *list, size_t n, dra_error *err);

dra_device  *dra_reader_device(const dra_reader *r);
dra_session *dra_reader_session(const dra_reader *r);
/* dra_reader_finish(), and up to DRA_FETCHES downloads from its device in the same wait. */
dra_status dra_reader_fetch(dra_reader *r, const dra_fetch *more, size_t n, dra_error *err);
/* dra_reader_read_rows() of a module with a context, which is read first, as by
 * dra_reader_read_context(). NULL: it was read before. */
dra_status dra_reader_read_rows_context(dra_reader *r, dra_states *pool,
                                        const dra_context_text *context, int64_t n,
                                        const int64_t *rows, int64_t T, const int32_t *mark,
                                        int n_inputs, const dra_named *inputs, dra_error *err);
/* Compiles the program that reads T tokens of B fresh sequences, and as many of a context if the
 * module has one, so that the session knows its size. *states: bytes of their states. */
dra_status dra_reader_measure(dra_reader *r, int64_t B, int64_t T, bool marked, size_t *states,
                              dra_error *err);

/* Adds what the clamp of states of a module counted, if anything, to an i32 state of this name. */
void dra_module_count_clamped(dra_graph *g, const char *name);

#endif
