/* Files of states in pieces, so that states which begin with the same text share what it takes.
 *
 * Of a state that grows with its text, the items of so many tokens of all layers are a piece, a
 * file of its own in FOLDER/.pieces, which is called by a hash of what it has and never changes.
 * NAME.state has the rest and says which pieces belong where; the whole file can be made of it
 * again, byte for byte, and has a hash of all of it (which is checked when it is loaded).
 *
 * Pieces are counted: a piece goes with the last NAME.state that has it. They are written before
 * such a file and go after it, so that a process which is killed leaves pieces that nobody needs,
 * at worst, and those go when the next one starts. All functions but serve_pieces_bytes() are for
 * one thread at a time. */
#ifndef DRA_CLI_SERVE_PIECES_H
#define DRA_CLI_SERVE_PIECES_H

#include "dra/sequence.h"

typedef struct serve_pieces serve_pieces; /* of one model */

/* Pieces have `bytes` or somewhat more. NULL: no memory. The specs are borrowed. */
serve_pieces *serve_pieces_open(const dra_specs *specs, size_t bytes);
void          serve_pieces_close(serve_pieces *p); /* NULL is allowed */
/* Whether there may be any: states of these specs grow. */
bool serve_pieces_grow(const dra_specs *specs);

/* The file `whole` becomes `path`, in pieces where it has several, and is gone. *bytes: of `path`;
 * *pieces: whether it is in pieces. On failure `path` is as it was, and `whole` is gone, too. */
dra_status serve_pieces_place(serve_pieces *p, const char *whole, const char *path, size_t *bytes,
                              bool *pieces, dra_error *err);
/* Makes the whole file again. */
dra_status serve_pieces_restore(const char *path, const char *whole, dra_error *err);
/* `path` is about to be another name of the file `from`, or is about to go (`from` NULL): `change`
 * does that. */
dra_status serve_pieces_change(serve_pieces *p, const char *from, const char *path,
                               dra_status (*change)(const char *from, const char *path,
                                                    dra_error *err),
                               dra_error *err);

/* At the start: what the file has is in use. *whole: bytes of the whole file; 0: it is not in
 * pieces. false: no memory, or it cannot be read: then nothing is removed, however long this is
 * open. */
bool serve_pieces_found(serve_pieces *p, const char *path, size_t *whole);
/* After all of a folder were found: removes what nobody needs. */
void serve_pieces_sweep(serve_pieces *p, const char *folder);

/* Of all pieces in a folder, each counted once; NULL: in all folders. */
size_t serve_pieces_bytes(serve_pieces *p, const char *folder);

#endif
