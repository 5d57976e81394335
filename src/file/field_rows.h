/* Rows of tables of fields: a key is called as its field is. */
#ifndef DRA_SRC_FILE_FIELD_ROWS_H
#define DRA_SRC_FILE_FIELD_ROWS_H

#include <stddef.h>

#include "file/fields.h"

enum { MOST = 1 << 20 }; /* of every size */

/* `start` says what a key that is not there stands for. */
#define INT(s, f, start, text)                                                                     \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_INT, .offset = offsetof(s, f), .max = MOST, .unset = start,  \
        .about = text                                                                              \
    }
#define REAL(s, f, lo, hi, start, text)                                                            \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_REAL, .offset = offsetof(s, f), .min = lo, .max = hi,        \
        .unset = start, .about = text                                                              \
    }
#define BOOL(s, f, text)                                                                           \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_BOOL, .offset = offsetof(s, f), .unset = "false",            \
        .about = text                                                                              \
    }
#define SWITCH(s, f, start, text)                                                                  \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_SWITCH, .offset = offsetof(s, f), .unset = start,            \
        .about = text                                                                              \
    }
#define CHOICE(s, f, list, text)                                                                   \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_CHOICE, .offset = offsetof(s, f), .choices = list,           \
        .about = text                                                                              \
    }
#define NAME(s, f, list, start, text)                                                              \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_NAME, .offset = offsetof(s, f), .choices = list,             \
        .unset = start, .about = text                                                              \
    }
#define OBJECT(s, f, table, text)                                                                  \
    {                                                                                              \
        .name = #f, .kind = DRA_FIELD_OBJECT, .offset = offsetof(s, f), .fields = table,           \
        .about = text                                                                              \
    }

#endif
