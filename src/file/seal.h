/* Seals: a file that holds the hash of all its bytes (XXH64, base/hash.h), as 16 hexadecimal digits
 * that count as '0' in it. Where the digits are is fixed by the format:
 *   safetensors  {"__metadata__":{"dra":"2","hash":"DIGITS", ... right after the header's length
 *   JSON         {, newline, two blanks, "hash": "DIGITS", ...
 * A file says in two ways that it has one, so that no flip of a single bit makes it one that needs
 * none: by the member and by its place. */
#ifndef DRA_SRC_FILE_SEAL_H
#define DRA_SRC_FILE_SEAL_H

#include "dra/file.h"
#include "file/json_make.h"

enum { DRA_SEAL_DIGITS = 16 };
typedef char dra_seal_text[DRA_SEAL_DIGITS + 1];

/* The digits that `bytes` at `data` should have from byte `at` on. */
void       dra_seal_of(const void *data, size_t bytes, size_t at, dra_seal_text out);
bool       dra_seal_holds(const void *data, size_t bytes, size_t at);
dra_status dra_fail_damaged(dra_error *err, const char *path);

/* ---- safetensors ----------------------------------------------------------------------------- */

#define DRA_SEAL_VERSION_KEY "dra"
#define DRA_SEAL_VERSION "2"
/* What comes before the digits, after the length of the header. */
#define DRA_SEAL_BEFORE                                                                            \
    "{\"__metadata__\":{\"" DRA_SEAL_VERSION_KEY "\":\"" DRA_SEAL_VERSION "\",\"hash\":\""
enum { DRA_SEAL_AT = 8 + (int)sizeof DRA_SEAL_BEFORE - 1 };

/* As dra_tensors_write(), sealed. */
dra_status dra_tensors_write_sealed(const char *path, const dra_tensor_item *items, size_t n,
                                    const dra_metadata_item *metadata, size_t n_metadata,
                                    dra_error *err);
/* Whether the file says that it is sealed; and whether the seal holds, which reads all of it. What
 * is not sealed passes. */
bool       dra_tensors_sealed(const dra_tensors *t);
dra_status dra_tensors_check(const dra_tensors *t, dra_error *err);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The text of an object, sealed. The caller frees *out; `members` stays as it is. */
dra_status dra_json_dump_sealed(dra_json *j, const json_t *members, const char *path, char **out,
                                size_t *bytes, dra_error *err);
/* Parses an object; its member "hash", without which it is refused, is checked and taken out. */
dra_status dra_json_parse_sealed(const char *path, const char *text, size_t bytes, int depth,
                                 json_t **out, dra_error *err);

#endif
