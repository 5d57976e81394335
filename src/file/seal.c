/* Seals of files; see seal.h. */
#include "file/seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "file/fail.h"
#include "file/json.h"

static const char zeros[DRA_SEAL_DIGITS + 1] = "0000000000000000";

void dra_seal_of(const void *data, size_t bytes, size_t at, dra_seal_text out)
{
    const unsigned char *p = data;
    dra_hash             h;
    dra_hash_begin(&h, 0);
    dra_hash_add(&h, p, at);
    dra_hash_add(&h, zeros, DRA_SEAL_DIGITS);
    dra_hash_add(&h, p + at + DRA_SEAL_DIGITS, bytes - at - DRA_SEAL_DIGITS);
    snprintf(out, sizeof(dra_seal_text), "%016" PRIx64, dra_hash_end(&h));
}

bool dra_seal_holds(const void *data, size_t bytes, size_t at)
{
    dra_seal_text digits;
    if (bytes < at || bytes - at < DRA_SEAL_DIGITS) return false;
    dra_seal_of(data, bytes, at, digits);
    return memcmp(digits, (const char *)data + at, DRA_SEAL_DIGITS) == 0;
}

dra_status dra_fail_damaged(dra_error *err, const char *path)
{
    return dra_fail_at(err, DRA_ERR_FORMAT, path,
                       "is damaged: its bytes are not those that were written");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char KEY[] = "hash", BEFORE[] = "{\n  \"hash\": \"";
enum { AT = sizeof BEFORE - 1, LAYOUT = JSON_INDENT(2) | JSON_REAL_PRECISION(17) };

dra_status dra_json_dump_sealed(dra_json *j, const json_t *members, const char *path, char **out,
                                size_t *bytes, dra_error *err)
{
    json_t       *object = dra_json_object(j);
    size_t        n = 0;
    dra_seal_text digits;
    dra_json_set(j, object, KEY, dra_json_text(j, zeros)); /* the first member */
    dra_json_update(j, object, members);
    const dra_status st = dra_json_dump(j, object, LAYOUT, path, out, &n, err);
    json_decref(object);
    if (st != DRA_OK) return st;
    dra_seal_of(*out, n, AT, digits);
    memcpy(*out + AT, digits, DRA_SEAL_DIGITS);
    if (bytes) *bytes = n;
    return DRA_OK;
}

dra_status dra_json_parse_sealed(const char *path, const char *text, size_t bytes, int depth,
                                 json_t **out, dra_error *err)
{
    dra_status st = dra_json_parse(path, text, bytes, (dra_json_rules){.depth = depth}, out, err);
    if (st != DRA_OK) return st;
    const bool there = bytes > AT && memcmp(text, BEFORE, AT) == 0;
    if (there && dra_seal_holds(text, bytes, AT)) {
        dra_json_delete(*out, KEY);
        return DRA_OK;
    }
    const bool none = !there && !json_object_get(*out, KEY);
    json_decref(*out);
    *out = NULL;
    return none ? dra_fail_at(err, DRA_ERR_FORMAT, path,
                              "has no hash: it is damaged, or another version of dra wrote it")
                : dra_fail_damaged(err, path);
}
