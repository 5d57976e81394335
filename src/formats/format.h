/* Formats of model folders. A format translates its config.json into a dra_model_config and back,
 * and says by rules which tensors of its files hold which parameters: a table, or one that is made
 * for a config. dra's own has no rules: a parameter is the tensor of its name. */
#ifndef DRA_SRC_FORMATS_FORMAT_H
#define DRA_SRC_FORMATS_FORMAT_H

#include "base/arena.h"
#include "dra/model.h"
#include "file/json.h"
#include "file/json_make.h"
#include "formats/tensor_source.h"

enum { DRA_TENSOR_NAME = 160 };

/* Kinds of files that name and lay out the tensors of one model differently. */
typedef enum dra_dialect {
    DRA_DIALECT_FOLDER,   /* that of the format's folders                       */
    DRA_DIALECT_OLD,      /* of older folders and GGUF; read, never written     */
    DRA_DIALECT_ORIGINAL, /* of RWKV's trainers; GPT-2 of nanoGPT               */
    DRA_DIALECT_CPP       /* of rwkv.cpp                                        */
} dra_dialect;

/* How parts that are stored in one tensor lie in it. */
typedef enum dra_part_place {
    DRA_PARTS_OUT,   /* along the outputs                          */
    DRA_PARTS_FRONT, /* an axis in front, each part a whole        */
    DRA_PARTS_IN     /* along the inputs                           */
} dra_part_place;

/* Numbers that are stored in place of a parameter p. */
typedef enum dra_stored_as {
    DRA_AS_IT_IS,
    DRA_AS_NEG_EXP, /* -e^p      */
    DRA_AS_DECAY,   /* e^(-e^p)  */
    DRA_AS_EXP,     /* e^p       */
    DRA_AS_PLUS_ONE /* p + 1     */
} dra_stored_as;

/* In which order a file has the rows of a head that are rotated in pairs, where the parameter has
 * the other. */
typedef enum dra_row_order {
    DRA_ROWS_AS_THEY_ARE,
    DRA_ROWS_HALVES,     /* first all first ones of pairs, then all second ones */
    DRA_ROWS_NEIGHBOURS, /* pair by pair */
    DRA_ROWS_TILED /* head g r + j of `groups` groups of r heads is there number j groups + g */
} dra_row_order;

/* One parameter, and which part of a file it is. "*" stands for the number of a layer. */
typedef struct dra_name_rule {
    const char *ours, *theirs;
    const char *instead; /* another name of the tensor, tried after the first; or NULL            */
    const char *also;    /* another tensor that holds the same numbers, and is written; or NULL   */
    const char *unread;  /* one more for layer 0, which no reader looks at; or NULL               */
    bool transposed;     /* stored (in, out), not (out, in)                                       */
    int  part, parts;    /* stored with others: part `part` of `parts`                        */
    dra_part_place place;
    int            ones;  /* axes of size 1 in front, of parts in front after their axis        */
    int            rank;  /* more of them at the end, up to this many axes                      */
    bool           flat;  /* all axes as one                                                   */
    bool           loose; /* read whatever its axes are, if it has as many numbers             */
    dra_stored_as  as;
    int64_t        halved_every; /* stored divided by 2^(layer / this); 0: as it is            */
    dra_shape      shape; /* there, of as many numbers; rank 0: as the parameter's             */
    dra_row_order  order; /* rows are there in this order, of heads of... */
    int64_t        head_rows, groups; /* ... so many */
    bool           inward;            /* not of rows, but of columns */
    /* Rows of parts take turns: the tensor has `blocks` blocks, and in each part k has rows[k] of
     * them, after those of the parts before. NULL: parts are equal. */
    const int64_t *rows;
    int64_t        blocks;
    const int64_t *mixers; /* only of layers l with mixers[l] == mixer; NULL: of all */
    int64_t        mixer;
} dra_name_rule;

/* A tensor that follows from the config: checked where a file has it, and always written. */
typedef struct dra_constant {
    const char *name;
    int64_t     n;
    dra_real   *data; /* (n) */
} dra_constant;

enum { DRA_CONSTANTS_MOST = 6 }; /* two of each stack */

/* The rules of a config. */
typedef struct dra_name_rules {
    const struct dra_format *format;
    dra_dialect              dialect;
    const char *prefix, *wrapped; /* that names may have; the first is written, but not of the */
    const char *head;             /* head */
    int64_t     blocks;           /* tensors "blk.N." from here on are not read; 0: all are */
    const dra_name_rule *row;     /* the last has no name; NULL: dra's own */
    int                  constants;
    dra_constant         constant[DRA_CONSTANTS_MOST];
    dra_arena            arena; /* holds what was made for the config */
} dra_name_rules;

/* Reading and writing config.json as Hugging Face does: null is the default, 1.0 is 1, and keys
 * that are not known stay. */
struct dra_format;
typedef struct dra_keys {
    const struct dra_format *format; /* whose keys they are */
    const char              *place;
    json_t                  *object;
    dra_error               *err;
    dra_status               status; /* the first error stays */
    dra_json                 json;   /* makes the values that are put */
} dra_keys;

typedef struct dra_format {
    const char *name; /* the model_type */
    /* Whether a config of this model_type is meant; NULL: it is. */
    bool (*fits)(const json_t *object);
    int         rwkv;           /* of RWKV: its version; 0: it is none of these */
    const char *prefix;         /* that names of tensors may have, and have when written, but for */
    const char *head;           /* this one */
    const char *wrapped;        /* another prefix that they may have; or NULL */
    const dra_name_rule *rules; /* the last has no name; or, where names depend on options, */
    dra_status (*make_rules)(const dra_model_config *c, dra_name_rules *out, dra_error *err);
    const char *const *ignored;    /* endings of tensors that hold no weights; NULL at the end */
    const char *const *skipped;    /* beginnings of those of parts that are not read; likewise */
    const char        *class_name; /* in Hugging Face's library; NULL: the format is not its */
    void (*read)(dra_keys *k, dra_model_config *c); /* NULL: dra's own */
    void (*write)(dra_keys *k, const dra_model_config *c);
    /* Sets a key by the name that it has there; false: there is none, and *st is DRA_OK. NULL: only
     * dra's own names are set. */
    bool (*set)(dra_model_config *c, const char *name, const char *value, dra_status *st,
                dra_error *err);
    const void *family;  /* what functions that several formats share know of this one */
    bool        ordered; /* rules bring rows that rotate into the order of its files */
} dra_format;

const dra_format *dra_format_of(const dra_model_config *c);

#define DRA_FORMAT_ROW(kind, table, name) extern const dra_format dra_format_##table;
#include "dra/formats.def"
#undef DRA_FORMAT_ROW

/* ---- configs --------------------------------------------------------------------------------- */

/* The same with one key and its older name (or NULL). */
int64_t     dra_keys_int(dra_keys *k, const char *key, const char *old, int64_t fallback);
double      dra_keys_real(dra_keys *k, const char *key, double fallback); /* 0 <= x < 1 */
double      dra_keys_number(dra_keys *k, const char *key, double most, double fallback);
bool        dra_keys_bool(dra_keys *k, const char *key, bool fallback);
const char *dra_keys_text(dra_keys *k, const char *key, const char *fallback);
/* "PLACE: KEY is FOUND, expected ..." */
void dra_keys_refuse(dra_keys *k, const char *key, const char *expected);
/* Takes a value of k->json over. */
void dra_keys_put(dra_keys *k, const char *key, json_t *value);

/* n mixers of a config that is read, to write to; NULL: no memory, as the status says. */
dra_mixer_config *dra_keys_mixers(dra_keys *k, dra_model_config *c, int n);
/* Which of them its n sublayers of attention have. */
void dra_keys_pattern(dra_keys *k, dra_model_config *c, int n, const int64_t *pattern);

/* A config of one of the formats above from its JSON, into one with memory of its own. */
dra_status dra_format_read(const dra_format *f, const char *place, json_t *object,
                           dra_model_config *out, dra_error *err);
/* Puts the config into `object`, whose other keys stay; refuses what the format cannot express. */
dra_status dra_format_write(const char *place, const dra_model_config *c, json_t *object,
                            dra_error *err);
/* The format that model_type names; NULL: none. */
const dra_format *dra_format_named(const json_t *object);
/* All model_types, with commas between them. */
void dra_format_names(char *text, size_t size);
/* What dra's own config.json keeps under one key, as a new reference: of a foreign config all keys
 * that writing the same model would not write again, with model_type; of dra's own what it has
 * kept. NULL: nothing. */
#define DRA_KEPT_KEYS "hugging_face"
json_t *dra_format_others(dra_json *j, const char *place, json_t *object);
/* The config of a file that stands alone, from names and shapes: RWKV of rwkv.cpp, or by the names
 * of its original checkpoints (formats/rwkv/infer.c), or GPT-2 of nanoGPT (gpt2_infer.c). */
dra_status dra_format_infer(const dra_tensor_source *s, dra_model_config *c, dra_error *err);
/* What only the file knows: whether there is a head of its own, ranks. */
dra_status dra_format_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err);

/* Says in which order heads have the rows that rotate. false: out of memory. */
bool dra_config_turn_rows(dra_model_config *c, bool halves);

/* "PLACE: WHAT cannot hold KEY this, only that", where two configs differ. */
dra_status dra_config_compare(const char *place, const char *what, const dra_model_config *meant,
                              const dra_model_config *can, dra_error *err);

/* The config as JSON in dra's own names, everything filled in (config.c). NULL: no memory. */
json_t *dra_model_config_object(const dra_model_config *c);
/* The text of config.json: the config and the other keys of `object`; to be freed. NULL: err says
 * why not. */
char *dra_model_config_dump(const char *place, const dra_model_config *c, json_t *object,
                            dra_error *err);
/* Writes config.json of a folder, which is made where there is none, with the other keys of the one
 * in the folder `like`. Hugging Face's names the dtype of the matrices next to it. */
dra_status dra_folder_write_config(const char *folder, const dra_model_config *config,
                                   const char *like, dra_dtype dtype, dra_error *err);

/* ---- tensors --------------------------------------------------------------------------------- */

/* What a file speaks. */
dra_dialect dra_dialect_of(const dra_tensor_source *s);
dra_status  dra_name_rules_create(const dra_model_config *c, dra_dialect dialect,
                                  dra_name_rules *out, dra_error *err);
void        dra_name_rules_free(dra_name_rules *n); /* all zero is allowed */
/* The rule for a parameter, or NULL: it is stored under its own name. *l: its layer. */
const dra_name_rule *dra_name_rules_find(const dra_name_rules *n, const char *param, int64_t *l);
/* Whether a name fits a pattern; *l: what stands for its "*". */
bool dra_pattern_fits(const char *pattern, const char *name, int64_t *l);
/* A pattern with the number of a layer for its "*". */
void dra_pattern_fill(const char *prefix, const char *pattern, int64_t l,
                      char name[DRA_TENSOR_NAME]);
/* The name of its tensor when written, and its shape there. Returns name. */
const char *dra_name_rule_name(const dra_name_rules *n, const dra_name_rule *r, int64_t l,
                               char name[DRA_TENSOR_NAME]);
dra_shape   dra_name_rule_shape(const dra_name_rule *r, const dra_shape *ours);
/* The layout of the parameter in its tensor t. */
dra_param_layout dra_name_rule_layout(const dra_name_rule *r, const dra_tensor_info *t);
/* Whether that says all: its numbers are there as they are, and in no other order. */
bool dra_name_rule_in_place(const dra_name_rule *r);
/* The same of the numbers of a parameter in tensor e: nothing is added to them either. */
bool dra_param_in_place(const dra_tensor_source_entry *e, const dra_name_rule *r,
                        const dra_spec *p);

/* The tensor that a pattern names, with or without a prefix; NULL: missing. */
const dra_tensor_source_entry *dra_format_look(const dra_name_rules *n, const dra_tensor_source *s,
                                               const char *pattern, int64_t l);
/* The tensor that holds parameter `p`; NULL: missing. *rule as above. */
const dra_tensor_source_entry *dra_format_find(const dra_name_rules *n, const dra_tensor_source *s,
                                               const dra_spec *p, const dra_name_rule **rule);
/* The shape of what was found is right. */
dra_status dra_format_check(const dra_format *f, const dra_tensor_source_entry *e,
                            const dra_name_rule *r, const dra_spec *p, dra_error *err);
/* Its numbers; `to` has room for them. */
dra_status dra_name_rule_read(const dra_tensor_source_entry *e, const dra_name_rule *r,
                              const dra_spec *p, dra_real *to, dra_error *err);
/* Backwards: puts the numbers of a parameter in their place in the tensor `to`. */
void dra_name_rule_write(const dra_name_rule *r, const dra_spec *p, const dra_real *from,
                         dra_real *to);

/* ---- files that are written ------------------------------------------------------------------ */

enum { DRA_PARTS_MOST = 6 };

typedef struct dra_file_tensor { /* a tensor of a file, and the parameters in it */
    char                 name[DRA_TENSOR_NAME];
    dra_shape            shape;
    const dra_name_rule *rule; /* of the first; those of the others follow it in the table */
    int                  param[DRA_PARTS_MOST];
    int64_t              first; /* number of the parameter: experts before it have tensors too */
} dra_file_tensor;

/* All tensors that a format makes of parameters, named and shaped as those of the file `like`, or,
 * if it is NULL, as the rules say. *out is to be freed. -1: no memory. */
int dra_file_tensor_list(const dra_name_rules *rules, const dra_specs *params,
                         const dra_tensor_source *like, dra_file_tensor **out);

/* The numbers of parameter i, good until the next call. NULL: err says why not. */
typedef const dra_real *(*dra_get_param)(void *user, int i, dra_error *err);

/* The numbers of a tensor: those of a parameter, or put together in `room`. */
const dra_real *dra_file_tensor_fill(const dra_file_tensor *t, const dra_specs *params,
                                     dra_get_param get, void *user, dra_real *room, dra_error *err);

dra_tensor_item dra_constant_item(const dra_constant *c);

typedef struct dra_weights_writer { /* a file to write */
    const dra_name_rules *rules;
    const dra_specs      *params;
    dra_get_param         get;
    /* Or parameter i as it is stored already, and its layout; may be NULL: only get is asked. */
    const void *(*stored)(void *user, int i, dra_param_layout *layout);
    void                    *user;
    size_t                   n_extra; /* further tensors */
    const dra_tensor_item   *extra;
    const dra_tensor_source *like; /* or NULL, see dra_file_tensor_list() */
} dra_weights_writer;

dra_status dra_weights_write(const dra_weights_writer *s, const char *path, dra_error *err);
/* A file of weights that are tensors already. */
dra_status dra_weights_write_items(const dra_format *format, const char *path,
                                   const dra_tensor_item *items, size_t n, dra_error *err);

/* All tensors of the model are there, and no others: both are listed. Constants are right. */
dra_status dra_format_compare(const dra_model *m, const dra_name_rules *n,
                              const dra_tensor_source *s, dra_error *err);

#endif
