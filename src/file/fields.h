/* Structs described by tables. One table reads a struct from JSON, sets one field by its dotted
 * name, writes the struct, and knows the names to suggest when one is wrong. Zero is the default of
 * every field: a key that is not there leaves its field alone, and a field that is zero is not
 * written. Where a 0 says something else than the default, the struct has a number below 0 for it,
 * see `zero`, or the 0 is refused, see `unset`. */
#ifndef DRA_SRC_FILE_FIELDS_H
#define DRA_SRC_FILE_FIELDS_H

#include "base/arena.h"
#include "file/json.h"
#include "file/json_make.h"

typedef enum dra_field_kind {
    DRA_FIELD_INT,    /* int64_t                                                  */
    DRA_FIELD_REAL,   /* double; `given` as of a pair                             */
    DRA_FIELD_BOOL,   /* bool                                                     */
    DRA_FIELD_SWITCH, /* an int: 0 default, 1 true, 2 false                       */
    DRA_FIELD_CHOICE, /* an int: the number of one of `choices`                   */
    DRA_FIELD_NAME,   /* const char *: one of `choices`, NULL by default; see dra_field_own */
    DRA_FIELD_PAIR,   /* double[2]; a bool at `given`, if that is not 0, becomes true */
    DRA_FIELD_OBJECT, /* a struct of its own, with its own table                  */
    DRA_FIELD_INLINE, /* the same, whose keys stand among those of this table; its name is "" */
    DRA_FIELD_OWN, /* `size` bytes, whose keys stand among these, too: fields of what is at `given`,
                         a dra_field_own, told by `row`; its name is "" */
    DRA_FIELD_LIST,  /* `most` such structs; one, or a list of them; an int at `given` counts */
    DRA_FIELD_INTS,  /* const int64_t *: at most `most`; an int at `given` counts them */
    DRA_FIELD_REALS, /* const double *; the same                                 */
    DRA_FIELD_TEXT   /* char[most]: letters out of choices[0]                    */
} dra_field_kind;

/* Choices: the names of an enum's first `count` values, in its order. */
#define DRA_CHOICES(list, count, ...)                                                              \
    static const char *const list[] = {__VA_ARGS__, NULL};                                         \
    _Static_assert(sizeof(list) / sizeof *(list) == (size_t)(count) + 1, #list ": " #count)

typedef struct dra_field {
    const char             *name;
    dra_field_kind          kind;
    size_t                  offset;
    double                  min, max; /* of numbers, both included; equal: any */
    const char *const      *choices;  /* NULL at the end */
    const struct dra_field *fields;   /* ends with a row without a name */
    size_t                  given;
    bool        away; /* object, list, text: the struct has a pointer to it, which may be NULL */
    size_t      size; /* of one struct of a list, or away */
    int         most;
    const char *also;  /* another word for the first choice; NULL: there is none */
    bool        zero;  /* 0 is a number to ask for; the struct keeps it as -1 */
    const char *unset; /* what it is where the key is not there; NULL: the first choice, or 0.
                        * A number cannot be given as 0 where this is another one, that is anything
                        * but 0, "none", "never" and "required" */
    const char *about; /* what it is, for users; of a struct: its keys are told there */
    /* Field i of what a program brings, by its offset in the bytes; false: beyond the last. */
    bool (*row)(const void *own, size_t i, struct dra_field *out);
} dra_field;

/* What a program brings besides `choices`: structs that begin with their name, a const char *; NULL
 * at the end, or NULL. A DRA_FIELD_NAME that is "own:NAME" puts one of them at `given`. */
typedef const void *const *dra_field_own;

/* Fills `to` from a JSON object. `place` begins every error: a file's name. */
dra_status dra_fields_read(const dra_field *table, const char *place, const json_t *object,
                           void *to, dra_error *err);
/* memory: of what lies away: it is never written to, a new one takes its place. */
dra_status dra_fields_read_own(const dra_field *table, const char *place, const json_t *object,
                               dra_field_own own, dra_arena *memory, void *to, dra_error *err);
/* Sets the field with this dotted name ("gamma.range") from a text: JSON, or a bare word. One name
 * for a list of structs sets them all; with a number ("mixer.1.memory") it sets one. */
dra_status dra_fields_set(const dra_field *table, void *to, const char *name, const char *text,
                          dra_error *err);
dra_status dra_fields_set_own(const dra_field *table, void *to, dra_field_own own,
                              dra_arena *memory, const char *name, const char *text,
                              dra_error *err);
/* Copies what lies away, or makes it: one empty struct of a list. */
dra_status dra_fields_bring(const dra_field *table, void *in, dra_arena *memory, dra_error *err);
/* Whether a 0 of this number is refused: it would be read as the default, another number. */
bool dra_field_zero_is_unset(const dra_field *f);
/* Visits the fields in their order, with their dotted names, those of an object that says nothing
 * about itself in its place. false: beyond the last. */
bool dra_fields_at(const dra_field *table, size_t i, char *name, size_t size,
                   const dra_field **field);
/* Whether the field of this dotted name is not its default, in one struct of a list at least. */
bool dra_fields_has(const dra_field *table, const char *name, const void *in);
/* Copies that field to another struct of the table, with lists of the same length and, away, of its
 * own; from NULL: puts it back to its default. */
void dra_fields_copy(const dra_field *table, const char *name, void *to, const void *from);
/* The first key that is not its default; NULL: there is none. */
const char *dra_fields_said(const dra_field *table, const void *in);
/* Whether numbers are in their ranges, and choices among those that there are, in a struct that a
 * program has filled, of a table without objects; `what` begins an error. */
dra_status dra_fields_check(const dra_field *table, const char *what, const void *in,
                            dra_error *err);
dra_status dra_field_check(const dra_field *f, const char *what, const void *in, dra_error *err);
/* The struct as a new JSON object, for json_decref(); the maker knows whether it is whole. */
json_t *dra_fields_write(dra_json *j, const dra_field *table, const void *from);

#endif
