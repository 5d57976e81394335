/* One thread beside the loop and the models, for work that would block either: files and large
 * bodies. It does its work in order. */
#include "serve.h"

#include <stdlib.h>

static serve_mail *next_mail(serve_worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->mail && !w->stop) pthread_cond_wait(&w->wake, &w->lock);
    serve_mail *mail = w->mail;
    if (mail) w->mail = mail->next;
    if (!w->mail) w->last = &w->mail;
    w->n -= mail != NULL;
    pthread_mutex_unlock(&w->lock);
    return mail;
}

static void *run_worker(void *user)
{
    for (serve_mail *mail; (mail = next_mail(user));) mail->deliver(mail);
    return NULL;
}

bool serve_worker_start(serve_worker *w, int64_t most)
{
    *w = (serve_worker){.most = most, .last = &w->mail};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->started = pthread_create(&w->thread, NULL, run_worker, w) == 0;
    return w->started;
}

bool serve_worker_post(serve_worker *w, serve_mail *mail, bool always)
{
    mail->next = NULL;
    pthread_mutex_lock(&w->lock);
    const bool taken = !w->stop && (always || w->n < w->most);
    if (taken) {
        *w->last = mail;
        w->last = &mail->next;
        w->n++;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    return taken;
}

void serve_worker_stop(serve_worker *w)
{
    if (!w->started) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    /* The lock stays: new work is refused. */
}
