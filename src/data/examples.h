/* Examples inside: inputs that are rows of tensors, wherever these come from. */
#ifndef DRA_SRC_DATA_EXAMPLES_H
#define DRA_SRC_DATA_EXAMPLES_H

#include "data/example_files.h"
#include "dra/data.h"

typedef struct dra_column { /* an input of all examples */
    dra_example_input         shown;
    dra_dtype                 stored; /* DRA_DTYPE_COUNT: an integer dra has no type for, or none */
    size_t                    integer; /* bytes of an integer; 0: it is none */
    bool                      is_signed;
    int64_t                   count; /* elements of one example */
    size_t                    bytes; /* of one example in a file */
    const dra_example_tensor *part;  /* one for each shard */
    /* Or texts: example i is ids[starts[i]] .. ids[starts[i + 1] - 1]. */
    int32_t *ids;
    int64_t *starts;
} dra_column;

typedef struct dra_table { /* all examples */
    const char       *path;
    dra_example_files files;
    size_t            n, parts;
    dra_column       *column; /* by the order of the files; allocated by malloc() */
    int64_t          *first;  /* (parts + 1): the first example of each shard, and how many */
    int64_t           N;
} dra_table;

struct dra_examples {
    dra_examples_config c;
    dra_table          *table;
    bool                shared; /* the table is that of others */
    int64_t             begin, end;
};

/* Free it also after a failure. */
dra_status dra_table_open(dra_table *t, const dra_examples_config *c, dra_error *err);
dra_status dra_table_open_texts(dra_table *t, const dra_examples_config *c, dra_error *err);
void       dra_table_free(dra_table *t);

const dra_column *dra_examples_column(const dra_examples *e, const char *name); /* NULL: none */
/* Where a row is: its numbers, and the file they are in. Not of texts. */
const unsigned char *dra_table_row(const dra_table *t, const dra_column *c, int64_t row,
                                   const char **path);
int64_t              dra_column_integer(const dra_column *c, const unsigned char *row, int64_t i);

#endif
