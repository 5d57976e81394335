/* dra/base.h - the basis of all other headers: status, error text, numbers, shapes.
 * Errors:  fallible functions return dra_status and fill `err` (may be NULL) with one line that
 *          names the place, what was found and what was expected. The library never exits, aborts
 *          or prints.
 * Threads: everything here is a plain value. */
#ifndef DRA_BASE_H
#define DRA_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define DRA_BEGIN_C extern "C" {
#define DRA_END_C }
#else
#define DRA_BEGIN_C
#define DRA_END_C
#endif

#if defined(DRA_BUILD) && defined(__GNUC__)
#define DRA_API __attribute__((visibility("default")))
#else
#define DRA_API
#endif

/* The version of these headers, defined only here: the build reads it from here. A library may have
 * another version than the headers that a program was compiled with, see dra_version() and
 * dra/abi.h. */
#define DRA_VERSION_MAJOR 0
#define DRA_VERSION_MINOR 1
#define DRA_VERSION_PATCH 0
#define DRA_VERSION_NUMBER                                                                         \
    (DRA_VERSION_MAJOR * 1000000 + DRA_VERSION_MINOR * 1000 + DRA_VERSION_PATCH)
#define DRA_VERSION_JOIN(major, minor, patch) #major "." #minor "." #patch
#define DRA_VERSION_SPELL(major, minor, patch) DRA_VERSION_JOIN(major, minor, patch)
#define DRA_VERSION_TEXT DRA_VERSION_SPELL(DRA_VERSION_MAJOR, DRA_VERSION_MINOR, DRA_VERSION_PATCH)

DRA_BEGIN_C

typedef enum dra_status {
    DRA_OK = 0,
    DRA_ERR_SHAPE,  /* sizes, ranks or axes do not fit                 */
    DRA_ERR_DTYPE,  /* an element type an op does not take             */
    DRA_ERR_VALUE,  /* an argument outside its range, a null handle    */
    DRA_ERR_NAME,   /* no such name, or a name used twice              */
    DRA_ERR_INDEX,  /* an index found at run time outside its range    */
    DRA_ERR_GRAD,   /* a gradient that does not exist                  */
    DRA_ERR_DEVICE, /* a missing kernel, a failure of the device       */
    DRA_ERR_MEMORY, /* out of memory, or a size that overflows         */
    DRA_ERR_BIND,   /* a program run with inputs unbound               */
    DRA_ERR_FILE,   /* the system does not let us open, read or write  */
    DRA_ERR_FORMAT, /* bytes of a file that break its format's rules   */
    DRA_ERR_BUSY,   /* no room now: to be tried again later            */
    DRA_STATUS_COUNT
} dra_status;

enum { DRA_ERROR_TEXT = 512 };

typedef struct dra_error {
    dra_status code;
    char       text[DRA_ERROR_TEXT]; /* one line, always terminated */
} dra_error;

/* The kind of the letter that a text starts with, for programs that show text. */
typedef enum dra_letter {
    DRA_LETTER_PLAIN,   /* UTF-8 that can be shown                              */
    DRA_LETTER_CONTROL, /* C0, DEL and C1, which terminals obey                 */
    DRA_LETTER_LAYOUT,  /* U+2028-2029, U+202A-202E, U+2066-2069: new lines and
                           directions, which move the text around them          */
    DRA_LETTER_NONE,    /* one byte that is not UTF-8 */
    DRA_LETTER_CUT      /* the text ends inside of UTF-8                        */
} dra_letter;

/* *used: how many of the bytes it is; 0 only where there are none, which are DRA_LETTER_CUT. */
DRA_API dra_letter dra_letter_of(const char *text, size_t bytes, size_t *used);

/* Makes a text one line that is safe at a terminal: every byte of a letter that is not plain
 * becomes '?'. Error texts are like that. */
DRA_API void dra_make_shown(char *text);

/* The name of a status, for logs: "shape", "dtype", ... */
DRA_API const char *dra_status_name(dra_status status);

/* The version of the library that runs, "major.minor.patch". */
DRA_API const char *dra_version(void);

/* Element types. What each one is (bytes, name) is a row of a table, see dra_dtype_info(). */
typedef enum dra_dtype {
    DRA_F32,
    DRA_F64, /* only in the double build */
    DRA_BF16,
    DRA_F16,
    DRA_I32,
    DRA_BOOL,
    /* Blocks of numbers that share a scale, as ggml stores them: only for parameters. Such a tensor
     * equals its dequantised numbers. Blocks lie along the last axis, a multiple of them. */
    DRA_Q4_0,
    DRA_Q4_1,
    DRA_Q5_0,
    DRA_Q5_1,
    DRA_Q8_0,
    DRA_Q4_K, /* this and the next two are written in mixtures */
    DRA_Q5_K,
    DRA_Q6_K,
    DRA_Q3_K, /* read, not written */
    DRA_DTYPE_COUNT
} dra_dtype;

/* The type all arithmetic is done in: float, or double in the build made for gradient checks. */
#ifdef DRA_REAL_DOUBLE
typedef double dra_real;
#define DRA_REAL DRA_F64
#else
typedef float dra_real;
#define DRA_REAL DRA_F32
#endif

typedef struct dra_dtype_info {
    const char *name;
    size_t      block_elements; /* 1 for plain types; quantised types pack several */
    size_t      block_bytes;
    bool        is_float; /* a storage form of real numbers */
} dra_dtype_info;

DRA_API const dra_dtype_info *dra_dtype_get(dra_dtype dtype); /* NULL outside the enum */

enum { DRA_MAX_RANK = 6 };

/* Row-major sizes; rank 0 is a scalar. Any size may be 0. */
typedef struct dra_shape {
    int32_t rank;
    int64_t dim[DRA_MAX_RANK];
} dra_shape;

DRA_API int64_t dra_shape_count(const dra_shape *s); /* elements; -1 when it overflows */
DRA_API bool    dra_shape_equal(const dra_shape *a, const dra_shape *b);

/* Bytes of a dense tensor; false when they overflow, the dtype is unknown, or its blocks do not
 * fill the last axis. */
DRA_API bool dra_type_bytes(dra_dtype dtype, const dra_shape *shape, size_t *out);

/* Writes "(4, 8)" and returns `text`. */
DRA_API const char *dra_shape_text(const dra_shape *s, char *text, size_t size);

/* DRA_SHAPE(2, 3, 4) in C: the shape with those sizes. A scalar is (dra_shape){0}. */
#ifndef __cplusplus
#define DRA_SHAPE_COUNT(a, b, c, d, e, f, n, ...) n
#define DRA_SHAPE(...)                                                                             \
    ((dra_shape){DRA_SHAPE_COUNT(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0), {__VA_ARGS__}})
#endif

/* Finds the name nearest to what was typed: start with {.typed = ...}, try each name, then `best`
 * is the one to suggest, or NULL when none is near. A name is near if it is what other programs
 * call the same thing ("batch-size" for "batch"), starts with the typed text, or differs in one
 * letter, in long ones in one of six more. */
typedef struct dra_guess {
    const char *typed, *best;
    size_t      wrong; /* how far `best` is; less is nearer */
} dra_guess;

/* Up to this, `wrong` means another spelling or a synonym; beyond it, a typing error. */
enum { DRA_GUESS_MEANT = 3 };

DRA_API void dra_guess_try(dra_guess *guess, const char *name);

/* Marks of a token, as bits: a pad changes no state and gives nothing; a reset puts the sequence
 * back to its initial state before the token, also on a pad; 0: plain. The first tokens of a
 * sequence may be its prefix, see dra/sequence.h. */
enum { DRA_MARK_PAD = 1, DRA_MARK_RESET = 2, DRA_MARK_SKIP = 4, DRA_MARK_PREFIX = 8 };

DRA_END_C
#endif
