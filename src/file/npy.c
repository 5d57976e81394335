/* The header of a .npy file:
 *   bytes 0..5   "\x93NUMPY"; then the version, major and minor
 *   N            length of the text, 2 bytes in version 1.0, 4 in 2.0, little-endian
 *   text         a dictionary as Python writes it, and spaces:
 *                {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   the rest     the numbers
 * [NumPy Enhancement Proposal 1] */
#include "file/npy.h"

#include <string.h>

#include "file/fail.h"
#include "file/format.h"

enum { MAGIC = 6, VERSION = 8, DESCR_MOST = 16 };

typedef struct cursor {
    const char *at, *end;
} cursor;

typedef struct header {
    char      descr[DESCR_MOST];
    bool      fortran;
    dra_shape shape;
} header;

/* ---- Python's notation ----------------------------------------------------------------------- */

static void skip_spaces(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

/* Takes `text` where it comes next. */
static bool take_word(cursor *c, const char *text)
{
    const size_t n = strlen(text);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0) return false;
    c->at += n;
    return true;
}

/* A text between quotes of either kind, without any escapes. */
static bool take_text(cursor *c, char *to, size_t room)
{
    skip_spaces(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    const char  *from = c->at + 1, *end = memchr(from, *c->at, (size_t)(c->end - from));
    const size_t n = end ? (size_t)(end - from) : room;
    if (n >= room || memchr(from, '\\', n)) return false;
    memcpy(to, from, n);
    to[n] = '\0';
    c->at = end + 1;
    return true;
}

static bool take_size(cursor *c, int64_t *out)
{
    const char *from;
    skip_spaces(c);
    from = c->at;
    for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *c->at - '0', out))
            return false;
    return c->at > from;
}

/* (), (3,), (3, 4) */
static bool take_shape(cursor *c, dra_shape *s)
{
    *s = (dra_shape){0};
    if (!take_word(c, "(")) return false;
    while (!take_word(c, ")")) {
        if (s->rank == DRA_MAX_RANK || !take_size(c, &s->dim[s->rank])) return false;
        s->rank++;
        if (!take_word(c, ",")) return s->rank > 1 && take_word(c, ")");
    }
    return true;
}

/* Each of the three keys once, in any order. */
static bool take_header(cursor *c, header *h)
{
    bool descr = false, order = false, shape = false;
    char key[DESCR_MOST];
    if (!take_word(c, "{")) return false;
    while (!take_word(c, "}")) {
        if (!take_text(c, key, sizeof key) || !take_word(c, ":")) return false;
        if (!descr && strcmp(key, "descr") == 0) {
            if (!(descr = take_text(c, h->descr, sizeof h->descr))) return false;
        } else if (!order && strcmp(key, "fortran_order") == 0) {
            h->fortran = take_word(c, "True");
            if (!(order = h->fortran || take_word(c, "False"))) return false;
        } else if (!shape && strcmp(key, "shape") == 0) {
            if (!(shape = take_shape(c, &h->shape))) return false;
        } else {
            return false;
        }
        if (!take_word(c, ",")) {
            if (!take_word(c, "}")) return false;
            break;
        }
    }
    skip_spaces(c);
    return descr && order && shape && c->at == c->end;
}

/* ---- the file -------------------------------------------------------------------------------- */

static const dra_file_dtype *dtype_of(const char *descr)
{
    static const char *const known[][2] = {{"<f2", "F16"}, {"<f4", "F32"}, {"<f8", "F64"},
                                           {"|i1", "I8"},  {"<i2", "I16"}, {"<i4", "I32"},
                                           {"<i8", "I64"}, {"|u1", "U8"},  {"<u2", "U16"},
                                           {"<u4", "U32"}, {"<u8", "U64"}, {"|b1", "BOOL"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i][0], descr) == 0) return dra_file_dtype_find(known[i][1]);
    return NULL;
}

/* Where the text of the header is. */
static dra_status find_header(const char *path, const unsigned char *file, size_t bytes,
                              cursor *out, dra_error *err)
{
    if (bytes < VERSION + 2 || memcmp(file, "\x93NUMPY", MAGIC) != 0)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "is not an array of NumPy (.npy)");
    const int major = file[MAGIC], minor = file[MAGIC + 1];
    if (major < 1 || major > 2 || minor != 0)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "version %d.%d of NumPy's format, expected 1.0 or 2.0", major, minor);
    const size_t width = major == 1 ? 2 : 4;
    size_t       n = 0;
    if (bytes >= VERSION + width) memcpy(&n, file + VERSION, width); /* little-endian */
    if (bytes < VERSION + width || n > bytes - VERSION - width)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "its header is cut short");
    const char *text = (const char *)file + VERSION + width;
    *out = (cursor){text, text + n};
    return DRA_OK;
}

static dra_status check_header(const char *path, const header *h, size_t left, size_t *bytes,
                               dra_error *err)
{
    const dra_file_dtype *dtype = dtype_of(h->descr);
    char                  room[DRA_BRIEF];
    size_t                bits;
    if (!dtype)
        return dra_fail_at(err, DRA_ERR_DTYPE, path,
                           "dtype '%s', expected one of f2 f4 f8 i1 i2 i4 i8 u1 u2 bool, "
                           "little-endian",
                           dra_brief(h->descr, room));
    if (h->fortran)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "is in Fortran order, expected C order (numpy.ascontiguousarray)");
    if (!dra_bits_of(&h->shape, dtype->bits, &bits))
        return dra_fail_at(err, DRA_ERR_SHAPE, path, "its shape is too large");
    *bytes = bits / 8;
    if (*bytes == left) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, path, "its header says %zu bytes of numbers, found %zu",
                       *bytes, left);
}

dra_status dra_npy_read(const char *path, const char *name, const unsigned char *file, size_t bytes,
                        dra_tensor_info *out, dra_error *err)
{
    cursor     c = {0};
    header     h = {0};
    dra_status st = find_header(path, file, bytes, &c, err);
    *out = (dra_tensor_info){0};
    if (st != DRA_OK) return st;
    const unsigned char *data = (const unsigned char *)c.end;
    if (!take_header(&c, &h))
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "its header is damaged, or says more than descr, fortran_order and "
                           "shape");
    st = check_header(path, &h, bytes - (size_t)(data - file), &out->bytes, err);
    if (st != DRA_OK) return st;
    const dra_file_dtype *dtype = dtype_of(h.descr);
    out->name = name;
    out->dtype_name = dtype->name;
    out->dtype = dtype->dtype;
    out->shape = h.shape;
    out->data = data;
    return DRA_OK;
}
