/* dra serve: models behind HTTP. One thread runs the event loop and all functions here, unless
 * noted; one thread for each model loads it and steps its engine. Results of the engine are
 * posted to the loop as messages (mail), so that neither thread waits for the other. */
#ifndef DRA_CLI_SERVE_SERVE_H
#define DRA_CLI_SERVE_SERVE_H

#include "args.h"
#include "http.h"
#include "json.h"
#include "text.h"

#include "dra/engine.h"
#include "dra/template.h"

#include <pthread.h>

enum {
    SERVE_NAME = 64,
    SERVE_BUCKETS = 18,
    SERVE_TOP = 20,
    SERVE_STOPS = 16,
    SERVE_STOP_BYTES = 4096,
    SERVE_STOP_IDS = 256,
    SERVE_BIASES = 1024
};

#define SERVE_TEMP "..temp." /* names of states on their way begin like this */

typedef struct serve         serve;
typedef struct serve_model   serve_model;
typedef struct serve_call    serve_call;
typedef struct serve_job     serve_job;
typedef struct serve_grammar serve_grammar;
typedef struct serve_form    serve_form;
typedef struct serve_shelf   serve_shelf;
typedef struct serve_request serve_request;
typedef struct serve_pieces  serve_pieces;

/* ---- errors ---------------------------------------------------------------------------------- */

typedef struct serve_error { /* as OpenAI's interface has them */
    int         status;
    char        text[400];
    char        param[64]; /* "": none */
    const char *code;      /* NULL: none */
    serve_limit limit;     /* which acts */
} serve_error;

/* Fills it and returns false. param may be NULL. */
bool serve_wrong(serve_error *e, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same where a limit acts, which has a status and a code. */
bool serve_limited(serve_error *e, serve_limit limit, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What the library found; DRA_ERR_VALUE and others that are the client's are 400. */
bool serve_wrong_status(serve_error *e, const dra_error *err);
void serve_error_text(const serve_error *e, serve_text *out); /* as JSON */
void serve_fail(http_conn *c, const serve_error *e);
/* Sends a JSON text and takes it; 500 where it got no memory. */
void serve_reply(http_conn *c, int status, serve_text *json);

/* ---- models ---------------------------------------------------------------------------------- */

typedef enum serve_phase { SERVE_LOADS, SERVE_READY, SERVE_FAILED } serve_phase;

typedef struct serve_seconds { /* a histogram */
    int64_t bucket[SERVE_BUCKETS + 1];
    int64_t count;
    double  sum;
} serve_seconds;

extern const double serve_bounds[SERVE_BUCKETS]; /* upper ones of the buckets, in seconds */

typedef struct serve_mail serve_mail;
struct serve_mail {
    serve_mail *next;
    void (*deliver)(serve_mail *mail); /* in the loop; frees it */
};

typedef struct serve_worker { /* worker.c */
    pthread_t       thread;
    bool            started, stop;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t  wake;
    serve_mail     *mail, **last;
    int64_t         n, most; /* that wait */
} serve_worker;

/* most: errands that wait. */
bool serve_worker_start(serve_worker *w, int64_t most);
/* Has it delivered in the worker's thread. false: too many wait (unless `always`), or it has
 * stopped. */
bool serve_worker_post(serve_worker *w, serve_mail *mail, bool always);
/* Returns when everything posted is done. */
void serve_worker_stop(serve_worker *w);

struct serve_model {
    serve       *server;
    char         name[SERVE_NAME + 1];
    cli_source   from;
    cli_model    m;
    cli_drafting drafting;
    dra_engine  *engine;
    dra_template *template;
    char                 *template_text, *ending; /* ending: a stop string, or NULL */
    serve_form           *form; /* of calls of tools; NULL: the template writes none */
    dra_generation_config habits;
    int64_t               created;
    serve_phase           phase; /* as the loop knows it */
    dra_error             error;
    serve_mail            loaded;
    serve_shelf          *shelf;  /* names of states */
    serve_pieces         *pieces; /* of their files, in the worker; NULL: they are whole */
    pthread_t             thread;
    bool                  started;
    pthread_mutex_t       lock; /* of the rest */
    pthread_cond_t        wake;
    bool                  woken, stop;
    serve_mail           *posts, **last_post;
    serve_seconds         steps;
};

bool serve_name_ok(const char *name); /* [A-Za-z0-9._-]{1,64} */
/* The same, and none of those that states on their way have. */
bool serve_state_name_ok(const char *name);
bool serve_model_open(serve *s, serve_model *m, const char *word, dra_error *err);
bool serve_model_start(serve_model *m);
void serve_model_close(serve_model *m); /* waits for its thread */
/* Lets the model's thread deliver it between two steps. */
void serve_model_post(serve_model *m, serve_mail *mail);
void serve_mail_send(serve *s, serve_mail *mail); /* from any thread */

/* The model that is asked for; NULL: the first. */
serve_model *serve_model_find(serve *s, const char *name, serve_error *e);

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef struct serve_token { /* a dra_job_token on its way */
    serve_mail   mail;
    serve_job   *job;
    int32_t      id;
    bool         prompt, ends;
    double       logprob;
    int64_t      top;
    dra_logprob *most;
    char        *text, *look;    /* look: JSON, or NULL */
    size_t       bytes, counted; /* counted: of the memory of requests */
} serve_token;

typedef enum serve_work {
    SERVE_WRITE,  /* `data`, which is taken over, to the file `name`       */
    SERVE_READ,   /* the file `name`, which is then the text of the result */
    SERVE_LOOK,   /* norms of the state `name`, the same                   */
    SERVE_LINK,   /* the file `name` becomes another name of the file `data` */
    SERVE_UNLINK, /* the file `name` goes                                  */
    SERVE_PLACE,  /* the file `data` becomes `name`, in pieces where it has several */
    SERVE_RESTORE /* `name` becomes the whole file of `data`, which is in pieces */
} serve_work;

struct serve_job {
    serve_mail   mail; /* of its end */
    serve_job   *next, **link;
    serve_call  *call; /* NULL: nobody waits for it any more */
    serve_model *model;
    uint64_t     id;
    int64_t      index; /* for the caller */
    void (*token)(serve_job *job, const serve_token *token);
    void (*end)(serve_job *job, const dra_job_result *result);
    dra_job_result result;
    char          *text, *vector; /* copies of the result's */
    bool           alone;         /* `end` is called though no call waits */
    bool           looks, lost;   /* lost: a token got no memory */
    bool           crowded;       /* ... as requests have all that they may have */
    int64_t        looked;
    serve_work     work; /* of one that is no job of the engine */
    char          *name;
    serve_text     data;
    serve_job     *after;   /* of those that wait for something of the shelf */
    void          *subject; /* of one that is alone */
    size_t         most;    /* bytes of a file that is read */
    size_t         filed;   /* bytes of a file that was placed; */
    bool           pieces;  /* it is in pieces */
    serve_grammar *grammar; /* that its text follows, held until the end; NULL: none */
};

/* Work that would block the loop is done by the worker, or, where it looks at memory, by the
 * model's thread; it ends as a job does. */
bool serve_work_start(serve_call *call, serve_model *m, serve_work work, const char *name,
                      serve_text  *data, void (*end)(serve_job *, const dra_job_result *),
                      serve_error *e);

/* Submits; token, end and user of the config are set here. false: e says why, and nothing comes. */
bool serve_job_start(serve_call *call, serve_model *m, dra_job_config *config, int64_t index,
                     void (*token)(serve_job *, const serve_token *),
                     void (*end)(serve_job *, const dra_job_result *), serve_error *e);
/* The same for jobs and work that no call waits for: `end` finds `subject` in the job. */
bool serve_job_alone(serve_model *m, dra_job_config *config, void *subject,
                     void (*end)(serve_job *, const dra_job_result *), serve_error *e);
bool serve_work_alone(serve_model *m, serve_work work, const char *name, serve_text *data,
                      void *subject, void (*end)(serve_job *, const dra_job_result *));
/* One that waits until its end is reported on the loop; error NULL: success. NULL: no memory. */
serve_job *serve_job_wait(serve_call *call, serve_model *m,
                          void (*end)(serve_job *, const dra_job_result *));
void       serve_job_tell(serve_job *job, const dra_error *error);
/* A state of the engine goes. */
void serve_state_forget(serve_model *m, const char *name);

/* ---- calls: requests that wait for jobs ------------------------------------------------------ */

struct serve_call { /* the first member of what a route keeps */
    serve      *server;
    http_conn  *conn;
    serve_call *next, **link;
    serve_job  *jobs;
    double      deadline, spoke;
    size_t      held;               /* bytes of the memory of requests */
    bool        streams, looks;     /* looks: tokens tell what the memory holds */
    const char *failed;             /* what comes before an error in a stream; NULL: nothing */
    void (*free)(serve_call *call); /* what the route added; not the call itself */
    json_t     *body;               /* what was asked may point into it */
    serve_error error;              /* what the worker found; status 0: nothing */
    /* An errand of the worker. */
    serve_mail mail;
    void (*work)(serve_call *call), (*back)(serve_call *call);
    char  *text; /* a large body that is not read yet */
    size_t bytes, cost;
    bool   large, away, over; /* over: it has ended while it was away */
};

/* Registers a call, the first member of `size` bytes from malloc, as waiting. */
void serve_call_begin(serve *s, serve_call *call, http_conn *conn, void (*release)(serve_call *));
/* Takes bytes of the memory of requests until it ends. */
bool serve_call_hold(serve_call *call, size_t bytes, serve_error *e);
void serve_call_loose(serve_call *call, size_t bytes);
/* Reads the body of its request; a large one is read, and later done(), by the worker. Then `next`
 * is called on the loop, where call->body is NULL if call->error says why; that may be at once. */
void serve_call_read(serve_call *call, const serve_request *r, void (*next)(serve_call *));
/* Releases the memory of its body, of which little is left. */
void serve_call_stripped(serve_call *call);
/* `work` for a call, by the worker if its body is large: it sees nothing of the loop, and the call
 * is not freed meanwhile. Then `back` is called on the loop, unless the call has ended. */
void serve_call_do(serve_call *call, void (*work)(serve_call *), void (*back)(serve_call *));
/* Its jobs are cancelled, and it is freed. */
void serve_call_end(serve_call *call);
/* Answers with an error, also inside a stream, and ends. */
void serve_call_fail(serve_call *call, const serve_error *e);
void serve_call_failed(serve_call *call, const dra_job_result *result); /* the same of a job */
void serve_call_say(serve_call *call, const serve_text *event);         /* data of a stream */

typedef struct serve_made { /* a call that is answered by a text of JSON, without jobs */
    serve_call   call;
    serve_model *model;
    serve_text   answer;
} serve_made;

/* Makes one, the first member of `size` bytes of zeros, and reads its body. */
void serve_made_start(const serve_request *r, size_t size, void (*next)(serve_call *));
/* Lets `work` write the answer, and sends it; without a model, the error. */
void serve_made_do(serve_made *m, void (*work)(serve_call *));

/* ---- the server ------------------------------------------------------------------------------ */

typedef struct serve_key {
    const char *text, *name; /* name: "" where it has none */
    size_t      n;
    uint64_t    owner;        /* of states and kept prefixes: the same of keys with the same name */
    bool        reads, rules; /* only reads; sees figures and states of all */
    int64_t     requests, tokens; /* a minute; 0: what the options say */
} serve_key;

typedef struct serve_keys {
    size_t     n;
    serve_key *all;
    char      *text; /* of the file, in parts */
} serve_keys;

enum { SERVE_ROUTES = 32, SERVE_STATUS = 600 };

enum { SERVE_FIRST_TOKEN, SERVE_TOKEN, SERVE_WAITING, SERVE_REQUEST, SERVE_TIMES };

typedef struct serve_tally { /* of an owner of keys */
    uint64_t owner;
    char     name[HTTP_ID + 1];
    int64_t  requests, read, cached, written;
    double   since;                      /* seconds, from when on it has left: */
    double   requests_left, tokens_left; /* of this minute's, which come back bit by bit */
} serve_tally;

struct serve {
    const serve_args  *args;
    struct event_base *base;
    struct event      *mail_event, *tick, *signals[3];
    http_server       *http;
    int                pipe[2]; /* wakes the loop */
    pthread_mutex_t    lock;    /* of mail */
    serve_mail        *mail, **last_mail;
    size_t             n_models;
    serve_model       *models;
    serve_call        *calls;
    serve_worker       worker;
    bool               draining, failed;
    double             drain_until;
    serve_keys         keys;
    serve_limits       limits;
    size_t             memory_limit, max_answer, max_state, state_quota, state_disk;
    int                log;        /* of requests; -1: none */
    char               extra[768]; /* headers of all answers */
    char               temp[512];  /* a folder for temporary files; "": none yet */
    uint64_t           temps;
    int64_t            counts[SERVE_ROUTES][SERVE_STATUS];
    int64_t            cancelled;
    serve_seconds      seconds[SERVE_TIMES];
    size_t             n_tallies;
    serve_tally       *tallies;
    int                port;
};

void serve_tick_start(serve *s); /* the clock goes while there are calls */
void serve_drained(serve *s);    /* a call has ended: the loop may, too */

double   serve_now(void); /* seconds, of the monotonic clock */
uint64_t serve_random(void);

/* Reads keys and finds this machine's addresses. Returns the exit status. */
int  serve_safety(serve *s);
bool serve_allowed(serve *s, const http_head *h, serve_error *e);
/* A file with an error leaves the keys as they are. */
bool serve_keys_read(serve_keys *keys, const char *path, dra_error *err);
void serve_keys_free(serve_keys *keys);
/* The owner of this name, or "@" and the number of one; "": of this key. Never 0. */
uint64_t serve_owner_of(const char *name);
/* Its name, while a key has it; else the number. */
void serve_owner_name(const serve *s, uint64_t owner, char *name, size_t size);
/* The key of a request; NULL: it has none of them. */
const serve_key *serve_key_of(const serve *s, const http_head *h);

struct serve_request {
    serve           *server;
    http_conn       *conn;
    const http_head *head;
    uint64_t         owner;       /* of states */
    bool             all;         /* an admin asks for those of all */
    const char      *body, *rest; /* rest: of the path, after that of the route */
    size_t           bytes;
};

typedef struct serve_route {
    const char *method, *path, *name; /* a path that ends in / takes what follows */
    void (*answer)(const serve_request *r);
    bool open;  /* needs no key */
    bool file;  /* its body is one */
    bool rules; /* needs a key with [admin], where keys are needed */
} serve_route;

extern const serve_route serve_routes[];
extern const size_t      serve_n_routes;

/* Files of states, and temporary ones. */
bool serve_files_open(serve *s, dra_error *err);
void serve_files_close(serve *s);
/* Where a file on its way may be made, which has the number s->temps then; and its path again. */
void serve_temp_path(serve *s, char *path, size_t size);
void serve_temp_again(const serve *s, uint64_t n, char *path, size_t size);
/* Names that were added or removed in the folder of `path` stay so after a crash. */
void serve_file_sync(const char *path);
/* Whole or not at all, as files that are written are. */
dra_status serve_file_link(const char *from, const char *to, dra_error *err);
dra_status serve_file_remove(const char *from, const char *path, dra_error *err); /* from: NULL */
/* Of a state in the state directory. */
bool serve_state_path(const serve_model *m, uint64_t owner, const char *name, char *path,
                      size_t size);
/* The folder of an owner's states, which no state has as its name. */
bool serve_files_folder(const serve_model *m, uint64_t owner, char *path, size_t size);
void serve_files_make(const serve_model *m, uint64_t owner);
/* Calls `each` for all files of states; false: it said so. */
bool serve_files_find(const serve_model *m,
                      bool (*each)(void *user, uint64_t owner, const char *name, const char *path),
                      void *user);
/* In the thread of the model: norms of a running job's state, or of a named one, as JSON. */
void serve_look_text(serve_model *m, uint64_t job, const char *state, serve_text *out);

/* --log, opened again on SIGHUP: a file that was moved away is made anew. */
bool serve_log_open(serve *s, dra_error *err);
void serve_log_close(serve *s);
void serve_log(void *user, const http_head *h, const http_record *r);

/* tally.c: what is counted when a request or a job has ended. */
void serve_seconds_add(serve_seconds *x, double seconds);
void serve_ended(void *user, const http_head *h, const http_record *r);
/* Whether a key may ask now; *wait: seconds until then, if not. */
bool serve_rate_allows(serve *s, const serve_key *key, double *wait, serve_error *e);
void serve_tally_job(serve *s, const dra_job_result *r);

/* Tells the service manager, if there is one: "READY=1", "STOPPING=1". */
void serve_notify(const char *word);
/* Whether all models are ready; if not, *word says what they do. */
bool serve_is_ready(const serve *s, const char **word);

/* On the loop. */
bool serve_admit(void *user, http_conn *c, const http_head *h, http_wish *wish);
void serve_dispatch(void *user, http_conn *c, const http_head *h, const char *body, size_t bytes);
void serve_answered(void *user, const http_head *h, int status);

void serve_health(const serve_request *r);
void serve_ready(const serve_request *r);
void serve_apply_template(const serve_request *r);
void serve_models_list(const serve_request *r);
void serve_models_one(const serve_request *r);
void serve_metrics(const serve_request *r);
void serve_tokenize(const serve_request *r);
void serve_detokenize(const serve_request *r);
void serve_tokenizer_info(const serve_request *r);
void serve_completions(const serve_request *r);
void serve_chat(const serve_request *r);
void serve_responses(const serve_request *r);
void serve_messages(const serve_request *r);
void serve_embeddings(const serve_request *r);
void serve_states_list(const serve_request *r);
void serve_states_get(const serve_request *r);
void serve_states_post(const serve_request *r);
void serve_states_put(const serve_request *r);
void serve_states_delete(const serve_request *r);
void serve_page(const serve_request *r);
void serve_sampler(const serve_request *r);

/* Lines of the page, NULL at the end; made by the build. */
extern const char *const serve_page_html[], *const serve_page_css[], *const serve_page_js[];

#endif
