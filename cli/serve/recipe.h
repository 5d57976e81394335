/* A file of a state in pieces (pieces.h): a safetensors file, with the tensor "rest" and in its
 * metadata
 *   format  SERVE_PIECES_FORMAT          whole, rest  bytes of both
 *   pieces  their hashes, each with a ;   tokens       as the state has
 *   cuts    the whole file from its beginning, each with a ;: "N", so many bytes that are in the
 *           rest, or "P C A N", N bytes from byte A on of each of the C pieces from number P on */
#ifndef DRA_CLI_SERVE_RECIPE_H
#define DRA_CLI_SERVE_RECIPE_H

#include "dra/file.h"

#define SERVE_PIECES_FORMAT "dra-state-pieces"
#define SERVE_PIECES_FOLDER "/.pieces"
enum { SERVE_PIECES_PATH = 4096 };

typedef struct serve_cut { /* a stretch of the whole file */
    int64_t piece;         /* the first of them; -1: it is in the rest, after what was before */
    int64_t count;         /* pieces, one after the other */
    int64_t from, bytes;   /* in each of them */
} serve_cut;

typedef struct serve_recipe {
    size_t     whole, rest; /* bytes */
    size_t     n, n_cuts;
    uint64_t  *hash; /* (n) */
    size_t    *size; /* (n) */
    serve_cut *cuts;
} serve_recipe;

void       serve_recipe_free(serve_recipe *r);
dra_status serve_recipe_read(const dra_tensors *t, const char *path, serve_recipe *r,
                             dra_error *err);
/* What the file at `path` has; nothing, if it is not in pieces or not there. DRA_ERR_FORMAT: it is
 * damaged, and has none that can be found. */
dra_status serve_recipe_look(const char *path, serve_recipe *r, dra_error *err);

/* The folder that `path` is in; false: it is too long. */
bool serve_piece_folder(const char *path, char folder[SERVE_PIECES_PATH]);
void serve_piece_path(const char *folder, uint64_t hash, char path[SERVE_PIECES_PATH]);

/* Bytes from the beginning of a file. */
dra_status serve_read_some(const char *path, char *to, size_t bytes, dra_error *err);

#endif
