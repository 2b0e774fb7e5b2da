#ifndef KERNWRIGHT_C_H
#define KERNWRIGHT_C_H

#include <stddef.h>

/* A thin C ABI over kernwright::Service for other languages. Every function that can fail returns 0
 * on success and -1 on failure; kw_last_error() then has the reason, for the calling thread. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kw_service kw_service;
typedef struct kw_kernel kw_kernel;

/* Set all bytes to zero for the defaults; then set struct_size. Fields are only ever added at the
 * end: those that a caller's struct_size leaves out take their defaults. */
typedef struct kw_options {
  size_t struct_size;       /* sizeof(kw_options) of the caller */
  const char* cache;        /* cache directory, or NULL */
  const char* template_dir; /* a folder of own templates, or NULL */
  const char* sku;          /* profile id to work without a GPU, or NULL */
  const char* on_miss;      /* "predict", "tune_now" or "fail"; NULL: "predict" */
  int device;               /* the GPU's number */
  double tune_seconds;      /* budget of one tuning; 0: 30 */
  const char* l2;           /* tuned for an L2 that is "cold", "warm" or "mixed"; NULL: "cold" */
  const char* worker;       /* the program that tuning measures in, or NULL to look for it */
  int measure_in_process; /* not 0: without it; a candidate that faults costs the process the GPU */
} kw_options;

/* Opens a service; `options` may be NULL. */
int kw_open(const kw_options* options, kw_service** service);

/* Closes it; kernels obtained from it stay valid until they are released. */
void kw_close(kw_service* service);

/* The best kernel for a problem in its text form, "matmul m=4096 n=6144 k=4096 dtype=bf16". */
int kw_get_best_kernel(kw_service* service, const char* problem, kw_kernel** kernel);

/* Tunes the problem for about `seconds` and returns the winner. */
int kw_tune(kw_service* service, const char* problem, double seconds, kw_kernel** kernel);

void kw_release(kw_kernel* kernel);

/* Device bytes a launch needs as workspace. */
size_t kw_workspace_bytes(const kw_kernel* kernel);

/* A JSON object: problem, template, configuration, match, measured_us, predicted_us, arguments.
 * Valid until the kernel is released. */
const char* kw_describe(const kw_kernel* kernel);

/* Launches on `stream` in the current context: device pointers of the tensors in the operation's
 * order, then scalars (missing ones take their defaults; `scalars` may be NULL if there are none).
 */
int kw_launch(const kw_kernel* kernel, void* stream, const void* const* tensors,
              size_t tensor_count, const double* scalars, size_t scalar_count, void* workspace);

/* The calling thread's last failure, "" if there was none. Valid until its next failing call. */
const char* kw_last_error(void);

/* "0.1.0" */
const char* kw_version(void);

#ifdef __cplusplus
}
#endif

#endif
