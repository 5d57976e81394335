/* Names of states of a model: what each stands for, whether that is in memory, and its file. All of
 * it is on the loop but serve_shelf_open().
 *
 * What a name stands for never changes. In memory it is a state of the engine under a name of its
 * own, which no client knows. With a state directory the file of a name follows it: one thing at a
 * time is done with a file, and when that is done the name is looked at again. */
#ifndef DRA_CLI_SERVE_SHELF_H
#define DRA_CLI_SERVE_SHELF_H

#include "serve.h"

#include <sys/types.h>

typedef struct serve_kept { /* what names stand for */
    int        refs;        /* names that stand for it, files that hold it, calls that need it */
    int        names, files;
    char       handle[SERVE_NAME + 1]; /* its name in the engine */
    bool       held, loading;          /* held: it is in memory */
    int64_t    tokens;                 /* -1: not known */
    size_t     bytes;
    size_t     memory; /* that it takes, while it is held */
    size_t     disk;   /* bytes of its file besides pieces; 0: not known */
    bool       pieces; /* its file is in pieces */
    uint64_t   temp;   /* number of the whole file that is being loaded; 0: none */
    double     used;   /* seconds since 1970 */
    dev_t      device; /* of its file, at the start */
    ino_t      number;
    serve_job *waiting; /* for its loading, by `after` */
} serve_kept;

typedef struct serve_state {
    serve_model *model;
    uint64_t     owner;
    char         name[SERVE_NAME + 1];
    serve_kept  *body;   /* NULL: it was deleted, and is removed after its file */
    serve_kept  *filed;  /* what its file has; NULL: there is none */
    serve_kept  *failed; /* what could not be written, and why: */
    dra_error    error;
    serve_kept  *coming;  /* what is being written */
    bool         busy;    /* something is being done with the file */
    double       created; /* seconds since 1970 */
    serve_job   *waiting; /* until the file has the body, by `after` */
} serve_state;

struct serve_shelf {
    serve_state **all; /* by owner, then by name */
    size_t        n, room;
    uint64_t      handles; /* made so far */
    int           lock;    /* of the folder of the model; 0: none */
    struct event *clock;   /* looks for old ones; NULL: none are too old */
};

/* In the thread of the model, before anybody asks: what the state directory has. */
dra_status serve_shelf_open(serve_model *m, dra_error *err);
/* The rest of it. */
bool serve_shelf_start(serve_model *m);
void serve_shelf_close(serve_model *m);

/* NULL: there is none. */
serve_state *serve_shelf_find(const serve_model *m, uint64_t owner, const char *name);
/* The i-th of an owner, in the order of names; NULL: there are no more. */
serve_state *serve_shelf_at(const serve_model *m, uint64_t owner, size_t i);
/* The i-th of all owners; NULL: it was deleted, or (*more is false) there are no more. */
serve_state *serve_shelf_any(const serve_model *m, size_t i, bool *more);
/* Whether an owner may have a state of this name. */
bool serve_shelf_has_room(const serve_model *m, uint64_t owner, const char *name, serve_error *e);
/* An unused name in the engine. */
void serve_shelf_handle(serve_model *m, char handle[SERVE_NAME + 1]);
/* The name stands for a state of the engine from now on, which is the shelf's, also on failure.
 * `end` is called when its file is written; its call may be NULL. */
bool serve_shelf_put(serve_call *call, serve_model *m, uint64_t owner, const char *name,
                     const char  *handle, void (*end)(serve_job *, const dra_job_result *),
                     serve_error *e);
/* Another name for the same. */
bool serve_shelf_fork(serve_call *call, const serve_state *from, const char *name,
                      void (*end)(serve_job *, const dra_job_result *), serve_error *e);
/* `end` is called when the file is gone, too. */
bool serve_shelf_delete(serve_call *call, serve_state                                 *x,
                        void (*end)(serve_job *, const dra_job_result *), serve_error *e);
/* Loads the body of a name into memory; `end` is called when it is there, at once if it is
 * already. */
bool serve_shelf_load(serve_call *call, serve_state                                 *x,
                      void (*end)(serve_job *, const dra_job_result *), serve_error *e);
/* The file of what a name stands for; false: there is none. */
bool serve_shelf_path(const serve_state *x, char *path, size_t size);

typedef struct serve_shelf_figures { /* of all owners */
    int64_t names, held, files;
    size_t  held_bytes, file_bytes;
} serve_shelf_figures;
serve_shelf_figures serve_shelf_count(const serve_model *m);

#endif
