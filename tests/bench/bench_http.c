// SPDX-License-Identifier: MIT
// Requests per second of one GET path over loopback with keep-alive connections.
// Loopback only: `bench_http PORT [PATH [CONNECTIONS [SECONDS]]]`. It has its own
// tiny reader, so that the figure is the server's and not a client library's. A
// server that closes a connection after so many requests gets a new one.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONN = 1024, MAX_SAMPLES = 4 << 20 };

typedef struct {
  int fd;
  double sent;     // time of the request under way, seconds
  size_t have;     // bytes of the answer read so far
  char buf[4096];
} conn;

static conn conns[MAX_CONN];
static float *samples;
static size_t n_samples;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static int ep;
static struct sockaddr_in addr;

static int open_conn(conn *c) {
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(c->fd, (struct sockaddr *)&addr, sizeof addr)) {
    perror("connect");
    return -1;
  }
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
  return epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
}

static int send_request(conn *c, const char *req, size_t n) {
  c->have = 0;
  c->sent = now();
  return send(c->fd, req, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

// 1 = a whole answer is there, 0 = more to come, 2 = closed between answers, -1 = broken.
static int read_answer(conn *c) {
  ssize_t n = recv(c->fd, c->buf + c->have, sizeof c->buf - 1 - c->have, 0);
  if ((n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE))) && !c->have) return 2;
  if (n <= 0) return n < 0 && errno == EAGAIN ? 0 : -1;
  c->have += (size_t)n;
  c->buf[c->have] = 0;
  char *body = strstr(c->buf, "\r\n\r\n");
  if (!body) return 0;
  char *len = strstr(c->buf, "Content-Length: ");
  if (!len || strncmp(c->buf, "HTTP/1.1 200", 12) != 0) return -1;
  return c->have >= (size_t)(body + 4 - c->buf) + strtoul(len + 16, NULL, 10);
}

int main(int argc, char **argv) {
  int port = argc > 1 ? atoi(argv[1]) : 0;
  if (port <= 0) {
    fputs("usage: bench_http PORT [PATH [CONNECTIONS [SECONDS]]]\n", stderr);
    return 2;
  }
  const char *path = argc > 2 ? argv[2] : "/health";
  int n_conn = argc > 3 ? atoi(argv[3]) : 64;
  double seconds = argc > 4 ? atof(argv[4]) : 3;
  if (n_conn < 1 || n_conn > MAX_CONN || seconds <= 0 || seconds > 60) return 2;
  samples = malloc(sizeof *samples * MAX_SAMPLES);
  if (!samples) return 1;
  char req[512];
  size_t n_req = (size_t)snprintf(req, sizeof req, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", path, port);
  ep = epoll_create1(0);
  addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (int i = 0; i < n_conn; i++) {
    if (open_conn(&conns[i]) || send_request(&conns[i], req, n_req)) return 1;
  }
  double start = now(), end = start + seconds;
  size_t count = 0;
  while (now() < end) {
    struct epoll_event evs[256];
    int n = epoll_wait(ep, evs, 256, 100);
    for (int i = 0; i < n; i++) {
      conn *c = evs[i].data.ptr;
      int r = read_answer(c);
      if (r < 0) {
        fputs("bad answer\n", stderr);
        return 1;
      }
      if (!r) continue;
      if (r == 2) {
        close(c->fd);
        if (open_conn(c) || send_request(c, req, n_req)) return 1;
        continue;
      }
      if (n_samples < MAX_SAMPLES) samples[n_samples++] = (float)(now() - c->sent);
      count++;
      (void)send_request(c, req, n_req);  // when it is closed, the next read says so
    }
  }
  double took = now() - start;
  qsort(samples, n_samples, sizeof *samples, by_value);
  if (!n_samples) return 1;
  printf("%s: %.0f requests/s, %d connections, p50 %.2f ms, p99 %.2f ms\n", path, (double)count / took, n_conn,
         samples[n_samples / 2] * 1e3, samples[n_samples * 99 / 100] * 1e3);
  free(samples);
  return 0;
}
