#ifndef KERNWRIGHT_C_H
#define KERNWRIGHT_C_H

#include <stddef.h>

/* A thin C ABI over kernwright::Service for other languages. Every function that can fail returns 0
 * on success and -1 on failure; kw_last_error() then has the reason, for the calling thread. What
 * `Service` says of forked processes holds here too. The library stays loaded when it is closed
 * with dlclose. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kw_service kw_service;
typedef struct kw_kernel kw_kernel;
typedef struct kw_baked kw_baked;
typedef struct kw_chain_builder kw_chain_builder;
typedef struct kw_chain kw_chain;

/* Set all bytes to zero for the defaults; then set struct_size. Fields are only ever added at the
 * end: those that a caller's struct_size leaves out take their defaults. */
typedef struct kw_options {
  size_t struct_size;       /* sizeof(kw_options) of the caller */
  const char* cache;        /* cache directory, or NULL */
  const char* template_dir; /* a folder of own templates, or NULL */
  const char* sku;          /* profile id to work without a GPU, or NULL */
  const char* on_miss;    /* "predict", "tune_now", "tune_in_background", "fail"; NULL: "predict" */
  int device;             /* the GPU's number */
  double tune_seconds;    /* budget of one tuning; 0: 30 */
  const char* l2;         /* tuned for an L2 that is "cold", "warm" or "mixed"; NULL: "cold" */
  const char* worker;     /* the program that tuning measures in, or NULL to look for it */
  int measure_in_process; /* not 0: without it; a candidate that faults costs the process the GPU */
  const char* epilogue;   /* a file with a function that problems name as their epilogue, or NULL */
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

/* A JSON object: problem, template, configuration, match, measured_us, predicted_us, arguments,
 * best_path ("stream", "graph" or "rebind"; null where that was not measured). Valid until the
 * kernel is released. */
const char* kw_describe(const kw_kernel* kernel);

/* Launches on `stream` in the current context: device pointers of the tensors in the operation's
 * order, then scalars (missing ones take their defaults; `scalars` may be NULL if there are none).
 */
int kw_launch(const kw_kernel* kernel, void* stream, const void* const* tensors,
              size_t tensor_count, const double* scalars, size_t scalar_count, void* workspace);

/* The same, having asked the driver whether the GPU can reach all of the memory: for debugging. */
int kw_launch_checked(const kw_kernel* kernel, void* stream, const void* const* tensors,
                      size_t tensor_count, const double* scalars, size_t scalar_count,
                      void* workspace);

/* The kernel with these arguments as a CUDA graph of the current context, with a workspace of its
 * own: launched for about a third of the host's cost. Stays valid when the kernel is released and
 * the service closed. Used by one thread at a time; its launches follow each other. */
int kw_bake(const kw_kernel* kernel, const void* const* tensors, size_t tensor_count,
            const double* scalars, size_t scalar_count, kw_baked** baked);

/* Launches on `stream`, which is not being captured. */
int kw_launch_baked(kw_baked* baked, void* stream);

/* Other pointers and scalars for launches from now on. Up to four sets that come back stay
 * ready: alternating between them costs no driver call. */
int kw_rebind(kw_baked* baked, const void* const* tensors, size_t tensor_count,
              const double* scalars, size_t scalar_count);

/* Adds the launch, with its present arguments, to the capture that `stream` is in. The graph that
 * comes of it is destroyed before the baked launch is released. */
int kw_add_to_capture(const kw_baked* baked, void* stream);

/* To be called when its last launch has finished. */
void kw_release_baked(kw_baked* baked);

/* One argument of a kernel in a chain. */
typedef enum kw_chain_arg_kind {
  KW_POINTER,   /* a device pointer that stays */
  KW_SCALAR,    /* a scalar that stays */
  KW_PARAMETER, /* a pointer of the caller's, from kw_chain_parameter */
  KW_BUFFER     /* memory of the chain's own, from kw_chain_buffer */
} kw_chain_arg_kind;

typedef struct kw_chain_arg {
  int kind; /* a kw_chain_arg_kind */
  const void* pointer;
  double scalar;
  size_t slot;
  long long offset_bytes; /* added to the slot's address */
} kw_chain_arg;

/* Kernels that follow each other, with the wiring of their arguments, as one object. A builder is
 * told parameters, buffers and kernels in order; kw_chain_build makes the chain, bound to the
 * current context. It stays valid when kernels are released and the service is closed. */
int kw_chain_begin(kw_chain_builder** builder);
int kw_chain_parameter(kw_chain_builder* builder, const void* address, size_t* slot);
int kw_chain_buffer(kw_chain_builder* builder, size_t bytes, size_t* slot);
int kw_chain_add(kw_chain_builder* builder, const kw_kernel* kernel, const kw_chain_arg* arguments,
                 size_t count);
int kw_chain_build(const kw_chain_builder* builder, kw_chain** chain);
void kw_chain_end(kw_chain_builder* builder);

/* Launches all kernels on `stream`, by the chain's path. Used by one thread at a time. */
int kw_launch_chain(kw_chain* chain, void* stream);

/* Other addresses for all parameters, in order, from the next launch on. */
int kw_rebind_chain(kw_chain* chain, const void* const* parameters, size_t count);

/* Adds the kernels to the capture that `stream` is in. */
int kw_add_chain_to_capture(const kw_chain* chain, void* stream);

/* "stream", "graph" and, where a kernel waits for its predecessor itself, "programmatic_stream" and
 * "programmatic_graph". A new chain is launched as a "graph". */
int kw_set_chain_path(kw_chain* chain, const char* path);

/* Finds the kernels that gain by an early start, times every path on `stream` and stays with the
 * one of the shortest period; of those that tie, with the one that costs the host least. The
 * chain's results are overwritten. */
int kw_tune_chain(kw_chain* chain, void* stream);

/* A JSON object: kernels, memory_bytes, early_kernels (the places of those that start early on
 * programmatic paths), path, and every path with host_us and period_us once tuned.
 * Valid until the next kw_set_chain_path, kw_tune_chain or kw_release_chain. */
const char* kw_describe_chain(const kw_chain* chain);

/* To be called when its last launch has finished. */
void kw_release_chain(kw_chain* chain);

/* The calling thread's last failure, "" if there was none. Valid until its next failing call. */
const char* kw_last_error(void);

/* "0.1.0" */
const char* kw_version(void);

#ifdef __cplusplus
}
#endif

#endif
